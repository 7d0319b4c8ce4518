"""From the windows of a decode load to its figures, counters and distributions."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qwendeploy.documents import Distribution, Step, Window
from qwendeploy.figures import Figure, Kind
from qwendeploy.verification import statistics as st
from qwendeploy.verification.metrics import Metrics

if TYPE_CHECKING:
    from qwendeploy.verification.decode import Decode

SOURCE = "this run"


def measured(interval: st.Interval, unit: str, source: str = SOURCE) -> Figure:
    """Return an interval as a figure of this machine; times and rates do not fall below zero."""
    floor = 0.0 if interval.mean >= 0 else interval.low
    return Figure(
        value=interval.mean,
        unit=unit,
        low=min(max(interval.low, floor), interval.mean),
        high=max(interval.high, interval.mean),
        level=interval.level,
        kind=Kind.MEASURED_HERE,
        source=source,
        n=interval.n,
    )


def decode_step(decode: Decode) -> Step:
    """Return what a decode load measured so far."""
    settings, windows = decode.settings, decode.windows
    judged = judged_windows(windows)
    rates = [window.aggregate_tps for window in judged]
    times = [window.start_s for window in judged]
    if len(judged) < len(windows):
        left = len(windows) - len(judged)
        decode.notes.append(f"{left} windows left out of the figures: a stream ended inside")
    counts = decode.streams.counts()
    if decode.counted in ("chunk_ratio", "final"):
        decode.notes.append(
            "the server does not count tokens per chunk: windows are chunks times their mean length"
        )
    if windows and not decode.whole:
        decode.notes.append(f"cut short after {len(windows)} of {settings.windows} windows")
    figures, reasons = _figures(decode)
    contexts = [decode.streams.mean_context((s.start + s.end) / 2) for s in decode.spans]
    known = [context for context in contexts if context is not None]
    prompts = [r.prompt_tokens for r in decode.streams.records if r.prompt_tokens is not None]
    broken = decode.streams.broken.is_set()
    return Step(
        name=f"decode c={settings.concurrency} context={settings.context}",
        shape="decode",
        concurrency=settings.concurrency,
        context=settings.context,
        contexts=settings.contexts,
        status="failed" if broken or not windows else "complete" if decode.whole else "incomplete",
        duration_s=time.perf_counter() - decode.begin,
        prompt_tokens=st.mean(prompts) if prompts else None,
        texts=dict(Counter(decode.surface.prompts.kind_at(i) for i in range(settings.concurrency))),
        context_mean=st.mean(known) if known else None,
        counted=decode.counted,
        steady=decode.steady,
        drift_per_minute=st.drift_per_minute(times, rates)
        if st.drift_is_real(times, rates)
        else None,
        cv=st.cv(rates) if len(rates) > 1 else None,
        requests=counts,
        windows=tuple(windows),
        figures=figures,
        reasons=reasons,
        distributions=_distributions(decode),
        server={
            **server_differences(decode.watch.around(decode.begin, time.perf_counter())),
            "tokens_over_client": _tokens_over_client(decode),
        },
        notes=tuple(dict.fromkeys(decode.notes)),
    )


def judged_windows(windows: Sequence[Window]) -> list[Window]:
    """Return the windows that tell the rate: without those in which a stream of ours ended.

    Where fewer than two are left, all of them.
    """
    kept = [window for window in windows if not window.turnover]
    return kept if len(kept) >= 2 else list(windows)


def _figures(decode: Decode) -> tuple[dict[str, Figure | None], dict[str, str]]:
    windows = judged_windows(decode.windows)
    figures: dict[str, Figure | None] = {
        "aggregate_decode_tps": None,
        "per_user_decode_tps": None,
        "tpot_ms": None,
        "acceptance_length": None,
        "kv_usage": None,
    }
    reasons: dict[str, str] = {}
    if not windows:
        why = decode.notes[-1] if decode.notes else "no window was completed"
        failed = decode.streams.counts()
        if failed.examples:
            why += f" ({failed.examples[0]})"
        return figures, dict.fromkeys(figures, why)
    figures["aggregate_decode_tps"] = measured(
        st.t_interval([window.aggregate_tps for window in windows]), "tok/s"
    )
    tpots = [window.tpot_ms for window in windows if window.tpot_ms]
    if tpots:
        tpot = measured(st.t_interval(tpots), "ms")
        figures["tpot_ms"] = tpot
        figures["per_user_decode_tps"] = measured(
            st.t_interval([1e3 / value for value in tpots]), "tok/s"
        )
    else:
        reasons["tpot_ms"] = reasons["per_user_decode_tps"] = (
            "no stream sent two chunks in a window"
        )
    lengths = [w.acceptance_length for w in windows if w.acceptance_length is not None]
    if lengths:
        figures["acceptance_length"] = measured(st.t_interval(lengths), "tokens per step")
    else:
        reasons["acceptance_length"] = "no drafts counted by the server"
    usage = [w.kv_usage for w in windows if w.kv_usage is not None]
    if usage:
        figures["kv_usage"] = measured(st.t_interval(usage), "of the pool")
    else:
        reasons["kv_usage"] = "not offered by the server"
    return figures, reasons


def _distributions(decode: Decode) -> tuple[Distribution, ...]:
    """Return TTFT of the streams' starts and TPOT of the streams inside the windows."""
    ttfts = [r.ttft * 1e3 for r in decode.streams.records if r.ttft is not None and not r.failure]
    factor = 1.0
    if decode.spans and decode.windows and decode.spans[-1].tokens:
        factor = decode.windows[-1].tokens / decode.spans[-1].tokens
    tpots = [tpot * 1e3 / factor for span in decode.spans for tpot in span.tpots]
    found = (
        st.distribution("ttft_at_start", "ms", ttfts),
        st.distribution("tpot", "ms", tpots),
        st.distribution("chunk_gap", "ms", _chunk_gaps(decode)),
    )
    return tuple(one for one in found if one is not None)


def _tokens_over_client(decode: Decode) -> float | None:
    """Return the server's count of generated tokens over ours, in the windows.

    Above 1: somebody else is served too. Below: the usage that we count by says too much.
    """
    live = decode.surface.facts.engine != "llama.cpp"
    if not decode.spans or decode.counted != "continuous" or not live:
        return None
    return decode.watch.around_with_tokens(decode.spans[0].start, decode.spans[-1].end)


def _chunk_gaps(decode: Decode) -> list[float]:
    """Return the gaps between chunks inside the windows: stutter, not token times."""
    if not decode.spans:
        return []
    start, end = decode.spans[0].start, decode.spans[-1].end
    gaps: list[float] = []
    for record in decode.streams.records:
        times = [time_ for time_ in record.chunk_times if start <= time_ <= end]
        gaps.extend((b - a) * 1e3 for a, b in itertools.pairwise(times))
    return gaps


def server_differences(pair: tuple[Metrics, Metrics] | None) -> dict[str, float | None]:
    """Return the server's counters over a stretch; an absent one is ``None``."""
    names = (
        "preemptions", "prompt_tokens", "generation_tokens", "prefix_queries", "prefix_hits",
        "drafts", "draft_tokens", "accepted_tokens",
    )  # fmt: skip
    if pair is None:
        return dict.fromkeys(names)
    before, after = pair
    found: dict[str, float | None] = {name: after.since(before, name) for name in names}
    found["acceptance_length"] = after.acceptance_length(before)
    found["acceptance_rate"] = after.acceptance_rate(before)
    for name in ("ttft", "itl", "tpot", "queue"):
        total, count = after.since(before, f"{name}_sum"), after.since(before, f"{name}_count")
        found[f"{name}_mean_ms"] = total / count * 1e3 if total is not None and count else None
    drafts = found["drafts"]
    if drafts and len(after.accepted_by_position) == len(before.accepted_by_position):
        for position, (a, b) in enumerate(
            zip(before.accepted_by_position, after.accepted_by_position, strict=True)
        ):
            found[f"acceptance_position_{position}"] = (b - a) / drafts
    return found
