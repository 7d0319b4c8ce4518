"""The figures of a resolved option at one concurrency and context."""

from __future__ import annotations

from collections.abc import Sequence

from qwendeploy.documents import Cell, Predictions
from qwendeploy.evidence.memory_view import Load
from qwendeploy.figures import Figure
from qwendeploy.models.estimate import Estimate
from qwendeploy.planning.candidate import Candidate
from qwendeploy.planning.latencies import LATENCY_NAMES, latencies
from qwendeploy.planning.rates import Rates

RATE_FIGURES = (
    "aggregate_decode_tps",
    "per_user_decode_tps",
    "tpot_ms",
    "aggregate_decode_tps_over_content",
)


def predict_all(
    candidates: Sequence[Candidate], load: Load, rates: Rates, *, with_latencies: bool = False
) -> list[Predictions]:
    """Return the predictions of every candidate at one load.

    Times to the first token and end-to-end throughput cost more than all the rest, so they are
    given on demand; without them those figures are null and say so.
    """
    counts = [candidate.servers.running(load) for candidate in candidates]
    questions = [
        (candidate.option, max(1, count), load.context, candidate.servers.contexts(load))
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
    held, reasons = candidate.servers.capacity(load)
    figures: dict[str, Figure | None] = dict(held)
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
