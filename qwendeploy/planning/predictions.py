"""The figures of a resolved option at one concurrency and context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qwendeploy.documents import Cell, Predictions
from qwendeploy.figures import Figure, Kind, weakest
from qwendeploy.models.estimate import Estimate
from qwendeploy.planning.candidate import Candidate, Memory
from qwendeploy.planning.latencies import LATENCY_NAMES, latencies
from qwendeploy.planning.rates import Rates

RATE_FIGURES = (
    "aggregate_decode_tps",
    "per_user_decode_tps",
    "tpot_ms",
    "aggregate_decode_tps_over_content",
)
ARITHMETIC = "the engine's block arithmetic"


@dataclass(frozen=True)
class Load:
    """A point to predict: requests in flight, their context, and whether they share it."""

    concurrency: int
    context: int
    contexts: str

    def shared_by(self, candidate: Candidate) -> str:
        """Return how contexts are held: sharing needs the prefix cache."""
        return self.contexts if candidate.option.prefix_cache else "separate"


def running(candidate: Candidate, load: Load) -> int:
    """Return how many of the load's requests run at once: seats and pool decide."""
    option = candidate.option
    seats = (option.max_num_seqs or 1) * option.replicas
    return min(load.concurrency, seats, fitting(candidate, load))


def running_band(candidate: Candidate, load: Load) -> tuple[int, int]:
    """Return the fewest and the most requests that run at once over the pool's band."""
    memory = candidate.memory
    if not isinstance(memory, Memory):
        count = running(candidate, load)
        return count, count
    seats = (candidate.option.max_num_seqs or 1) * candidate.option.replicas
    most = min(load.concurrency, seats)
    low, high = (
        min(most, fitting(candidate, load, blocks))
        for blocks in (memory.blocks.low, memory.blocks.high)
    )
    return low, high


def fitting(candidate: Candidate, load: Load, blocks: float | None = None) -> int:
    """Return how many requests of the load's context the pools hold at once.

    Requests that share a warm context hold its blocks once and their states each; those that fit
    with contexts of their own fit in any case, the blocks kept for reuse giving way.
    """
    memory = candidate.memory
    replicas = candidate.option.replicas
    apart = memory.running_at(load.context, blocks)
    if load.shared_by(candidate) == "separate" or not isinstance(memory, Memory):
        return apart * replicas
    pool = int(memory.pool if blocks is None else blocks)
    layout = memory.layout
    shared = layout.attention_groups * (load.context // layout.block_tokens)
    own = layout.attention_groups * 2 + layout.state_blocks_reserved
    return max(apart, (pool - 1 - shared) // own) * replicas


def predict_all(
    candidates: Sequence[Candidate], load: Load, rates: Rates, *, with_latencies: bool = False
) -> list[Predictions]:
    """Return the predictions of every candidate at one load.

    Times to the first token and end-to-end throughput cost more than all the rest, so they are
    given on demand; without them those figures are null and say so.
    """
    counts = [running(candidate, load) for candidate in candidates]
    questions = [
        (candidate.option, max(1, count), load.context, load.shared_by(candidate))
        for candidate, count in zip(candidates, counts, strict=True)
    ]
    answers = rates.aggregate_many(questions)
    return [
        _predictions(candidate, load, count, rate, rates, with_latencies)
        for candidate, count, rate in zip(candidates, counts, answers, strict=True)
    ]


def predict(candidate: Candidate, load: Load, rates: Rates) -> Predictions:
    """Return the predictions of one candidate at one load."""
    return predict_all([candidate], load, rates, with_latencies=True)[0]


def cell(candidate: Candidate, load: Load, rates: Rates) -> Cell:
    """Return a cell of a grid."""
    return Cell(
        concurrency=load.concurrency,
        context=load.context,
        figures=predict(candidate, load, rates),
    )


def _predictions(
    candidate: Candidate,
    load: Load,
    count: int,
    rate: Estimate | None,
    rates: Rates,
    with_latencies: bool,
) -> Predictions:
    figures: dict[str, Figure | None] = dict(_capacity(candidate, load))
    reasons: dict[str, str] = dict(candidate.memory.absent)
    if count == 0:
        why = f"no request of {load.context:,} tokens fits in the KV cache"
        rate = None
    elif rate is None:
        why = "this card has neither a series nor a known bandwidth and matrix rate"
    else:
        why = ""
    if rate is None:
        for name in RATE_FIGURES:
            reasons[name] = why
    else:
        aggregate = rate.figure("tok/s")
        figures["aggregate_decode_tps"] = aggregate
        figures["per_user_decode_tps"] = aggregate.scaled(1 / count)
        figures["tpot_ms"] = aggregate.inverse(1000.0 * count, "ms")
        spanned = rates.over_content(candidate.option, rate)
        if isinstance(spanned, str):
            reasons["aggregate_decode_tps_over_content"] = spanned
        else:
            figures["aggregate_decode_tps_over_content"] = spanned.figure("tok/s")
    if with_latencies:
        found, missing = latencies(candidate, load, count, rates, rate)
        figures.update(found)
        reasons.update(missing)
    else:
        reasons.update(dict.fromkeys(LATENCY_NAMES, "not computed for options that rank lower"))
    missing = {name: why for name, why in reasons.items() if figures.get(name) is None}
    return Predictions(**figures, reasons=missing)


def _capacity(candidate: Candidate, load: Load) -> dict[str, Figure]:
    """Return pool, requests and contexts; the band is that of the pool before start."""
    memory, option = candidate.memory, candidate.option
    replicas = option.replicas
    seats = (option.max_num_seqs or 1) * replicas
    share = -(-load.concurrency // replicas)
    if not isinstance(memory, Memory):
        return memory.figures(seats, replicas, share)
    blocks = memory.blocks
    per_request = memory.per_request

    def over(unit: str, kind: Kind, at: dict[str, float], source: str) -> Figure:
        return Figure(unit=unit, kind=kind, source=source, n=blocks.n, **at)

    ends = {"value": blocks.value, "low": blocks.low, "high": blocks.high}
    basis = f"{ARITHMETIC}; {blocks.basis}"
    kind = weakest(blocks.kind)
    length = memory.max_model_len
    return {
        "kv_pool_blocks": over("blocks", kind, ends, blocks.basis),
        "kv_pool_tokens": over(
            "tokens",
            kind,
            {name: int(value / per_request * length) for name, value in ends.items()},
            basis,
        ),
        "blocks_per_request": Figure(
            value=per_request,
            unit="blocks",
            low=per_request,
            high=per_request,
            level=1.0,
            kind=memory.layout.kind,
            source=memory.layout.basis,
        ),
        "max_full_length_requests": over(
            "requests",
            kind,
            {name: int(value) // per_request * replicas for name, value in ends.items()},
            basis,
        ),
        "max_running_requests": over(
            "requests",
            kind,
            {name: min(seats, fitting(candidate, load, value)) for name, value in ends.items()},
            basis,
        ),
        "max_typical_context_tokens": over(
            "tokens",
            kind,
            {
                name: memory.longest_for(share, value) if seats >= load.concurrency else 0
                for name, value in ends.items()
            },
            basis,
        ),
    }
