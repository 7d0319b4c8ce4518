"""A decode load and its measurement: settings, windows, notes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from qwendeploy.documents import Window
from qwendeploy.verification import statistics as st
from qwendeploy.verification.loads.arrivals import Span
from qwendeploy.verification.loads.streams import Streams
from qwendeploy.verification.loads.watch import Watch
from qwendeploy.verification.wire.records import Ratio, ratio_of
from qwendeploy.verification.wire.server import Surface

Counted = Literal["continuous", "final", "chunk_ratio", "metrics", "none"]


@dataclass(frozen=True)
class DecodeSettings:
    """What to measure and for how long."""

    concurrency: int
    context: int
    contexts: Literal["shared", "separate"] = "separate"
    window_s: float = 10.0
    windows: int = 6
    min_windows: int = 3
    settle_s: float = 45.0
    """Longest wait for a steady rate."""
    patience_s: float = 30.0
    """A stream that the server keeps waiting this long, while others decode, will not run."""
    stagger_s: float = 0.02
    ceiling: int | None = None
    """Tokens that no stream's context may exceed before the windows are over."""
    expected_user_tps: float | None = None
    seed: str = "decode"


@dataclass
class DecodeLoad:
    """One load and what is known of it so far."""

    settings: DecodeSettings
    surface: Surface
    streams: Streams
    watch: Watch
    begin: float
    windows: list[Window] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    """The arrivals of each window."""
    notes: list[str] = field(default_factory=list)
    steady: bool | None = None
    whole: bool = False
    """All windows were measured, or those that decide; false while it runs or if cut short."""
    counted: Counted = "none"
    prompt: int | None = None
    """Prompt tokens that were asked for."""
    ratio: Ratio | None = None
    """Tokens of a chunk, where that is how tokens are counted."""

    def close(self, span: Span) -> None:
        """Add the window that a span of arrivals makes, with what casts doubt on it."""
        settings = self.settings
        samples = self.watch.between(span.start - 0.2, span.end + 0.2)
        offered = [s.metrics for s in samples if s.metrics is not None]
        running = [v for m in offered if (v := m.get("running")) is not None]
        waiting = [v for m in offered if (v := m.get("waiting")) is not None]
        usage = [v for m in offered if (v := m.get("kv_usage")) is not None]
        pair = self.watch.around(span.start, span.end)
        preempted = pair[1].since(pair[0], "preemptions") if pair else None
        length = pair[1].acceptance_length(pair[0]) if pair else None
        changed = [t for t in self.streams.changes if span.start < t <= span.end]
        low = min([span.streams, *(s.streams for s in samples)])
        doubts = []
        if changed:
            doubts.append(f"{len(changed)} requests started or ended")
        if low < settings.concurrency:
            doubts.append(f"{low} of {settings.concurrency} requests decoded")
        if running and min(running) < settings.concurrency:
            doubts.append(f"server ran {min(running):g}")
        # one of our own streams that just ended may still be counted beside the one after it
        others = bool(running) and max(running) > settings.concurrency
        if others:
            doubts.append(f"server ran {max(running):g}, more than this client sent")
        elif self.watch.ended_of_others(span.start, span.end, self.streams.ends):
            others = True
            doubts.append("other clients' requests ended")
        if others and self.surface.facts.continuous_usage:
            others = not self.watch.little_of_others(span.start, span.end)
        if waiting and max(waiting) > 0:
            doubts.append(f"{max(waiting):g} waited")
        if preempted:
            doubts.append(f"{preempted:g} preemptions")
        factor, self.counted = self._token_factor(span)
        self.spans.append(span)
        self.windows.append(
            Window(
                start_s=span.start - self.begin,
                duration_s=span.seconds,
                tokens=span.tokens * factor,
                aggregate_tps=span.rate * factor,
                tpot_ms=st.mean(span.tpots) * 1e3 / factor if span.tpots else None,
                running_low=low,
                server_running_low=min(running) if running else None,
                server_running_high=max(running) if running else None,
                waiting_high=max(waiting) if waiting else None,
                preemptions=preempted,
                acceptance_length=length,
                kv_usage=max(usage) if usage else None,
                clean=not doubts,
                others=others,
                turnover=bool(changed) and not preempted and not (waiting and max(waiting) > 0),
                note="; ".join(doubts),
            )
        )

    def _token_factor(self, span: Span) -> tuple[float, Counted]:
        """Return tokens per counted unit in a span, and how that is known.

        Usage on every chunk counts tokens themselves. Else the server's own counter says how many
        tokens the chunks of the span held; without it, requests that finished, or the trial, do.
        """
        if self.surface.facts.continuous_usage:
            return 1.0, "continuous"
        counted = self.watch.counted(span.start, span.end)
        if counted is not None and counted[0]:
            return counted[0] / counted[1], "metrics"
        finished = ratio_of(self.streams.records)
        self.ratio = finished or self.surface.per_chunk
        if self.ratio is None:
            return 1.0, "none"
        return self.ratio.value, "final" if finished else "chunk_ratio"
