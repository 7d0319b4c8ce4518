"""From the windows of a decode load to its figures, counters and distributions."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from qwendeploy.documents import Distribution, Step, Window
from qwendeploy.engines.metrics import Metrics
from qwendeploy.figures import Figure, Kind
from qwendeploy.verification import statistics as st
from qwendeploy.verification.judging.drafting import PACED
from qwendeploy.verification.judging.evidence import FEW_WINDOWS
from qwendeploy.verification.judging.quantities import SHARE_OF_POOL
from qwendeploy.verification.loads.decode_load import DecodeLoad

SOURCE = "this run"
FAR = 0.25
"""Relative distance of the measured mean context from the wanted one that is told."""
UNCOUNTED = "the server reports no token counts, neither as usage nor in /metrics"


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


def decode_step(load: DecodeLoad) -> Step:
    """Return what a decode load measured so far."""
    settings, windows = load.settings, load.windows
    judged = judged_windows(windows)
    rates = [window.aggregate_tps for window in judged]
    times = [window.start_s for window in judged]
    counts = load.streams.counts()
    figures, reasons = _figures(load)
    mean = _mean_context(load)
    prompts = [r.prompt_tokens for r in load.streams.records if r.prompt_tokens is not None]
    broken = load.streams.broken.is_set()
    return Step(
        name=f"decode c={settings.concurrency} context={settings.context}",
        shape="decode",
        concurrency=settings.concurrency,
        context=settings.context,
        contexts=settings.contexts,
        status="failed" if broken or not windows else "complete" if load.whole else "incomplete",
        duration_s=time.perf_counter() - load.begin,
        prompt_tokens=st.mean(prompts) if prompts else None,
        prompt_asked=load.prompt,
        texts=dict(Counter(load.surface.prompts.kind_at(i) for i in range(settings.concurrency))),
        context_mean=mean,
        counted=load.counted,
        steady=load.steady,
        drift_per_minute=st.drift_per_minute(times, rates)
        if st.drift_is_real(times, rates)
        else None,
        cv=st.cv(rates) if len(rates) > 1 else None,
        requests=counts,
        windows=tuple(windows),
        figures=figures,
        reasons=reasons,
        distributions=_distributions(load),
        server={
            **server_differences(load.watch.around(load.begin, time.perf_counter())),
            "tokens_over_client": _tokens_over_client(load),
        },
        notes=tuple(dict.fromkeys([*load.notes, *_remarks(load, judged, mean)])),
    )


def _mean_context(load: DecodeLoad) -> float | None:
    """Return the mean context of the streams in the middle of the windows."""
    contexts = [load.streams.mean_context((s.start + s.end) / 2) for s in load.spans]
    known = [context for context in contexts if context is not None]
    return st.mean(known) if known else None


def _remarks(load: DecodeLoad, judged: Sequence[Window], mean: float | None) -> Iterator[str]:
    """Yield what a reader of the figures must know of the windows."""
    left = [window for window in load.windows if window not in judged]
    ended = sum(window.turnover for window in left)
    if ended:
        yield f"{ended} windows excluded: a request ended"
    if len(left) > ended:
        yield f"{len(left) - ended} windows excluded: the server handled other clients' requests"
    if load.counted in ("chunk_ratio", "final"):
        yield ("the server does not count tokens per chunk: rate = chunks x mean tokens per chunk")
    wanted = load.settings.context
    if mean is not None and abs(mean - wanted) > FAR * wanted:
        why = "contexts grow" if mean > wanted else "prompts leave room to grow"
        yield f"the mean context was {mean:,.0f} tokens, not {wanted:,}: {why}"
    if load.windows and not load.whole:
        yield f"stopped after {len(load.windows)} of {load.settings.windows} windows"


def judged_windows(windows: Sequence[Window]) -> list[Window]:
    """Return the windows that tell the rate of our streams alone.

    Left out are those in which a stream of ours ended, and of the rest those in which the server
    worked for others; where fewer than two would be left, they stay.
    """
    whole = [window for window in windows if not window.turnover]
    if len(whole) < FEW_WINDOWS:
        return list(windows)
    alone = [window for window in whole if not window.others]
    return alone if len(alone) >= FEW_WINDOWS else whole


def _figures(load: DecodeLoad) -> tuple[dict[str, Figure | None], dict[str, str]]:
    windows = judged_windows(load.windows)
    figures: dict[str, Figure | None] = {
        "aggregate_decode_tps": None,
        "per_user_decode_tps": None,
        "tpot_ms": None,
        "acceptance_length": None,
        "kv_usage": None,
    }
    reasons: dict[str, str] = {}
    if not windows:
        why = load.notes[-1] if load.notes else "no window was completed"
        failed = load.streams.counts()
        if failed.examples:
            why += f" ({failed.examples[0]})"
        return figures, dict.fromkeys(figures, why)
    figures["aggregate_decode_tps"] = _paced(
        load, [window.aggregate_tps for window in windows], "tok/s"
    )
    tpots = [window.tpot_ms for window in windows if window.tpot_ms]
    if load.counted == "none":
        chunks = st.mean([window.aggregate_tps for window in windows])
        reasons.update(dict.fromkeys(PACED, f"{UNCOUNTED} ({chunks:.1f} chunks/s received)"))
    elif tpots:
        figures["tpot_ms"] = _paced(load, tpots, "ms")
        figures["per_user_decode_tps"] = _paced(load, [1e3 / value for value in tpots], "tok/s")
    else:
        reasons["tpot_ms"] = reasons["per_user_decode_tps"] = (
            "no request received two chunks in a window"
        )
    lengths = [w.acceptance_length for w in windows if w.acceptance_length is not None]
    if lengths:
        figures["acceptance_length"] = measured(st.t_interval(lengths), "tokens per step")
    else:
        reasons["acceptance_length"] = "the server reports no drafts"
    usage = [w.kv_usage for w in windows if w.kv_usage is not None]
    if usage:
        figures["kv_usage"] = measured(st.t_interval(usage), SHARE_OF_POOL)
    else:
        reasons["kv_usage"] = "not reported by the server"
    return figures, reasons


def _paced(load: DecodeLoad, values: Sequence[float], unit: str) -> Figure | None:
    """Return a figure of the windows; what is not known of tokens per chunk widens it."""
    if load.counted == "none":
        return None
    interval = st.t_interval(values)
    if load.counted in ("final", "chunk_ratio") and load.ratio is not None:
        unsure = st.NORMAL_90 * load.ratio.error
        interval = st.widened(interval, spread=unsure)
    return measured(interval, unit)


def _distributions(load: DecodeLoad) -> tuple[Distribution, ...]:
    """Return TTFT of the streams' starts and TPOT of the streams inside the windows."""
    ttfts = [r.ttft * 1e3 for r in load.streams.records if r.ttft is not None and not r.failure]
    factor = 1.0
    if load.spans and load.windows and load.spans[-1].tokens:
        factor = load.windows[-1].tokens / load.spans[-1].tokens
    tpots = [tpot * 1e3 / factor for span in load.spans for tpot in span.tpots]
    if load.counted == "none":
        tpots = []
    found = (
        st.distribution("ttft_at_start", "ms", ttfts),
        st.distribution("tpot", "ms", tpots),
        st.distribution("chunk_gap", "ms", _chunk_gaps(load)),
    )
    return tuple(one for one in found if one is not None)


def _tokens_over_client(load: DecodeLoad) -> float | None:
    """Return the server's count of generated tokens over ours, in the windows.

    Above 1: somebody else is served too. Below: the usage that we count by says too much.
    """
    if load.counted != "continuous":
        return None
    judged = judged_windows(load.windows)
    pairs = [
        pair
        for span, window in zip(load.spans, load.windows, strict=True)
        if window in judged and (pair := load.watch.counted(span.start, span.end))
    ]
    ours = sum(units for _, units in pairs)
    return sum(grown for grown, _ in pairs) / ours if ours else None


def _chunk_gaps(load: DecodeLoad) -> list[float]:
    """Return the gaps between chunks inside the windows: stutter, not token times."""
    if not load.spans:
        return []
    start, end = load.spans[0].start, load.spans[-1].end
    gaps: list[float] = []
    for record in load.streams.records:
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
