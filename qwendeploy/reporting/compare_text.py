"""Text and JSON of a comparison of two runs or plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from qwendeploy.figures import LEVEL
from qwendeploy.reporting.verify_text import figure_text, quantity_name
from qwendeploy.verification.judging.comparing import Comparison, Difference


def compare_text(comparison: Comparison) -> str:
    """Return the comparison for a terminal."""
    return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    what = "run" if comparison.kind == "runs" else "plan"
    yield f"{what} {comparison.first} against {comparison.second}"
    yield ""
    if comparison.changes:
        yield "changed:"
        yield from (f"  {c.what}: {c.first} -> {c.second}" for c in comparison.changes)
    else:
        yield "no settings differ"
    yield ""
    for difference in comparison.differences:
        yield _difference_line(difference)
    for note in comparison.notes:
        yield f"note: {note}"


def _difference_line(difference: Difference) -> str:
    name = quantity_name(difference.quantity)
    first = figure_text(difference.first, kind=False)
    second = figure_text(difference.second, kind=False)
    line = f"{name:24} {first} -> {second}"
    if difference.change is None:
        return f"{line}: {difference.reason}"
    line += f": {difference.change:+.1%}"
    if (
        difference.low is not None
        and difference.high is not None
        and difference.low != (difference.high)
    ):
        line += f" [{difference.low:+.1%}, {difference.high:+.1%}] at {LEVEL:.0%}"
    if difference.significant is None:
        return f"{line}, not comparable ({difference.reason})"
    verdict = "significant" if difference.significant else "not significant"
    return f"{line}, {verdict}" + (f" ({difference.reason})" if difference.reason else "")


def compare_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data; figures in the form of every document."""
    data = asdict(comparison)
    for difference, raw in zip(comparison.differences, data["differences"], strict=True):
        for side in ("first", "second"):
            figure = getattr(difference, side)
            raw[side] = figure.model_dump(mode="json") if figure is not None else None
    return data
