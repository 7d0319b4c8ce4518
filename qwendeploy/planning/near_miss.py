"""Which of the refused options came nearest, so that a refusal names what is worth changing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from qwendeploy.documents import TraceEntry

_ORDER = (
    "memory-length",
    "memory-seats",
    "memory-step",
    "memory-context",
    "limit-tpot",
    "limit-ttft",
    "weights-leave-no-cache",
    "memory-weights",
    "weights-do-not-fit",
)
"""Rules from the last that an option meets to the first: a later one was nearer to running."""
_NUMBER = re.compile(r"[\d,]+(?:\.\d+)?")


def nearest_miss(trace: Iterable[TraceEntry]) -> TraceEntry | None:
    """Return the refused option that fell short by least, ``None`` if none fell short of anything.

    Options that got further count as nearer; among those of one rule the smaller shortfall does.
    """
    known = [
        (_ORDER.index(entry.rule), _size(entry.missed_by), entry)
        for entry in trace
        if entry.effect == "rejected" and entry.rule in _ORDER
    ]
    return min(known, key=lambda item: item[:2])[2] if known else None


def _size(text: str | None) -> float:
    """Return the first number of a shortfall; a shortfall without one counts as large."""
    found = _NUMBER.search(text or "")
    return float(found[0].replace(",", "")) if found else float("inf")
