"""From the steps of a run to the figures of its operating point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qwendeploy.documents import Fill, Plan, Step
from qwendeploy.figures import Figure, Kind, exact
from qwendeploy.verification.judging.quantities import RATE
from qwendeploy.verification.settings import MeasuredPoint
from qwendeploy.verification.wire.records import Record


def collect_figures(
    steps: Sequence[Step], point: MeasuredPoint
) -> tuple[dict[str, Figure | None], dict[str, str]]:
    """Return the figures of the operating point from the steps that measured them."""
    figures: dict[str, Figure | None] = {}
    reasons: dict[str, str] = {}
    for step in steps:
        other_context = step.context != point.context
        other_load = other_context or step.concurrency != point.concurrency
        if (step.shape == "decode" and other_load) or (step.shape == "prompt" and other_context):
            continue  # a rung of a ladder; its figures are the step's alone
        for name, figure in step.figures.items():
            if figures.get(name) is None:
                figures[name] = figure
        for name, reason in step.reasons.items():
            reasons.setdefault(name, reason)
    if RATE not in figures:
        figures[RATE] = None
        reasons[RATE] = "not measured yet"
    return figures, {name: text for name, text in reasons.items() if figures.get(name) is None}


def reached_figures(
    steps: Sequence[Step], fill: Fill, plan: Plan | None
) -> dict[str, Figure | None]:
    """Return the capacities that the run reached, where reaching is what was predicted."""
    found: dict[str, Figure | None] = {}
    if fill.outcome == "confirmed" and fill.context is not None:
        found["max_typical_context_tokens"] = exact(
            fill.context, "tokens", kind=Kind.MEASURED_HERE, source="filled in this run", n=1
        )
    predicted = plan.predictions.max_running_requests if plan else None
    here = plan.operating_point.context if plan else None
    lows = [
        window.server_running_low
        for step in steps
        if step.shape == "decode"
        and predicted
        and step.concurrency >= predicted.value
        and step.context == here
        for window in step.windows
        if window.server_running_low is not None and not window.turnover
    ]
    if lows:
        found["max_running_requests"] = exact(
            min(lows), "requests", kind=Kind.MEASURED_HERE, source="running in the windows", n=1
        )
    return found


def request_arrays(records: Sequence[Record], origin: float) -> list[dict[str, Any]]:
    """Return the arrays of each request, times since ``origin``."""
    return [
        {
            "number": record.number,
            "sent_s": round(record.sent_at - origin, 6),
            "prompt_tokens": record.prompt_tokens,
            "output_tokens": record.tokens,
            "ttft_ms": None if record.ttft is None else round(record.ttft * 1e3, 3),
            "tpot_ms": None if record.tpot is None else round(record.tpot * 1e3, 4),
            "chunk_times_s": [round(t - origin, 6) for t in record.chunk_times],
            "chunk_tokens": list(record.chunk_tokens),
            "failure": record.failure,
        }
        for record in records
    ]
