"""Which of the refused options came nearest, so that a refusal names what is worth changing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from qwendeploy.documents import TraceEntry

_ORDER = (
    "limit-tpot",
    "limit-ttft",
    "kv-too-small-for-max-model-len",
    "memory-length",
    "memory-seats",
    "memory-step",
    "memory-context",
    "context-above-native",
    "weights-leave-no-cache",
    "memory-weights",
    "weights-do-not-fit",
)
"""Rules from the last that an option meets to the first: a later one was nearer to running."""
TWIN = "prefix-caching-with-mtp"
"""Puts out an option whose twin without prefix caching is judged besides."""

_NUMBER = re.compile(r"[\d,]+(?:\.\d+)?")


def nearest_miss(trace: Iterable[TraceEntry]) -> TraceEntry | None:
    """Return the refused option that fell short by least, ``None`` if none fell short of anything.

    Options that got further count as nearer; among those of one rule the smaller shortfall does.
    """
    known = [entry for entry in trace if entry.effect == "rejected" and entry.rule in _ORDER]
    return min(known, key=nearness) if known else None


def without_twins(trace: Sequence[TraceEntry]) -> list[TraceEntry]:
    """Return the refusals but those of options whose twin without prefix caching was refused too.

    The twin's reason is what stands in the way.
    """
    labels = {entry.option for entry in trace if entry.rule != TWIN}
    return [
        entry
        for entry in trace
        if entry.rule != TWIN
        or entry.option.replace("prefix cache on", "prefix cache off") not in labels
    ]


def nearness(entry: TraceEntry) -> tuple[int, bool, float]:
    """Return how near a refused option came, nearest first; what no rule measures comes last.

    A limit is told by what vLLM misses it by: llama.cpp is asked only where vLLM cannot.
    """
    order = _ORDER.index(entry.rule) if entry.rule in _ORDER else len(_ORDER)
    last = entry.rule.startswith("limit-") and "llama.cpp" in entry.option
    return order, last, _size(entry.missed_by)


def _size(text: str | None) -> float:
    """Return the first number of a shortfall; a shortfall without one counts as large."""
    found = _NUMBER.search(text or "")
    return float(found[0].replace(",", "")) if found else float("inf")
