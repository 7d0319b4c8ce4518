"""Fit the memory beside weights and KV cache and write benchdata/memory_rest.csv.

Reads benchdata/memory_budget.csv alone. The coefficients minimise the squared relative error of
the KV cache over the rows marked `fit`, all of them at least zero; a compass search suffices for
eight of them. The band is the 90 % quantile of the held-out rests'
absolute error. Running it twice writes the same bytes;
`--check` exits 1 when the table differs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pandas as pd

from qwendeploy.evidence.pool_estimate import (
    budget_gib,
    question_of,
    rest_inputs,
    rest_left,
    weights_of,
)
from qwendeploy.models.rest_term import MANY_SEATS, RestCoefficients, RestInputs, rest_value
from qwendeploy.resources import data_dir
from qwendeploy.tables.memory_budget import BudgetRow, budget_rows

TERMS = {
    "base": ("GiB", "context, libraries and workspaces of each rank"),
    "per_memory": ("GiB per GiB of the card", "kept by the driver; workspaces of larger chips"),
    "upstream": ("GiB", "extra of upstream images over the fork"),
    "per_ktoken_sharded": (
        "GiB per 1,024 batched tokens",
        "activations that tensor parallelism divides",
    ),
    "per_ktoken_replicated": ("GiB per 1,024 batched tokens", "activations on every rank"),
    "per_seat_rows": ("logits rows per seat", "copies that the sampler's profile keeps"),
    "graphs_per_token": ("GiB per token of capture size at TP=1", "captured CUDA graphs"),
    "fp8_marlin": ("GiB", "extra of FP8 weights on cards without FP8 units"),
}
STEPS = (0.5, 0.01, 0.5, 0.05, 0.02, 2.0, 0.002, 0.3)
SEAT_STARTS = (1.0, 2.0, 4.0, 6.0, 8.0)
"""Where the search starts for the sampler's term: below the forward pass it has no slope."""
SOURCE = "scripts/fit_memory.py on the fit rows of memory_budget.csv"


def coefficients(values: Sequence[float]) -> RestCoefficients:
    """Return the coefficients in the order of ``TERMS``, without a band."""
    terms = dict(zip(TERMS, values, strict=True))
    return RestCoefficients(**terms, spread=0.0, spread_per_seat=0.0, n=0, basis="")


def compass(
    loss: Callable[[Sequence[float]], float], start: Sequence[float], steps: Sequence[float]
) -> list[float]:
    """Return a minimum over non-negative values: step along each axis, halve when none helps."""
    point = list(start)
    sizes = list(steps)
    best = loss(point)
    while max(size / step for size, step in zip(sizes, steps, strict=True)) > 1e-5:
        improved = False
        for axis, size in enumerate(sizes):
            for sign in (1.0, -1.0):
                trial = [*point]
                trial[axis] = max(0.0, point[axis] + sign * size)
                value = loss(trial)
                if value < best - 1e-12:
                    point, best, improved = trial, value, True
                    break
        if not improved:
            sizes = [size / 2 for size in sizes]
    return point


def quantile(values: Sequence[float], level: float) -> float:
    """Return the smallest value that ``level`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(level * (len(ordered) + 1)) - 1)]


def main() -> None:
    """Fit and write the table; with ``--check`` only compare it."""
    known: list[tuple[BudgetRow, RestInputs, float, float]] = []
    for row in budget_rows():
        question = question_of(row)
        rest = rest_left(row)
        kv_gib = budget_gib(question) - rest - weights_of(question).value
        known.append((row, rest_inputs(question), rest, kv_gib))
    fit = [entry for entry in known if entry[0].use == "fit"]

    def loss(values: Sequence[float]) -> float:
        terms = coefficients(values)
        return sum(((rest_value(inputs, terms) - rest) / kv) ** 2 for _, inputs, rest, kv in fit)

    starts = [[*STEPS[:5], rows_per_seat, *STEPS[6:]] for rows_per_seat in SEAT_STARTS]
    best = min((compass(loss, start, STEPS) for start in starts), key=loss)
    found = [float(f"{value:.4g}") for value in best]
    terms = coefficients(found)
    misses = [
        abs(rest_value(inputs, terms) - rest)
        for row, inputs, rest, _ in known
        if row.use == "held-out"
    ]
    spread = round(quantile(misses, 0.90), 2)
    many = max(
        (rest - rest_value(inputs, terms)) / (inputs.max_num_seqs - MANY_SEATS)
        for _, inputs, rest, _ in known
        if inputs.max_num_seqs > MANY_SEATS
    )
    text = table(found, spread, max(many, 0.0), len(fit))
    path = data_dir("benchdata") / "memory_rest.csv"
    if "--check" in sys.argv[1:]:
        if path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.name} differs from the fit; run scripts/fit_memory.py")
        return
    path.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def table(found: Sequence[float], spread: float, per_seat: float, n: int) -> str:
    """Return the table's text."""
    held = "90 % quantile of the held-out rows of memory_budget.csv"
    seats = "largest miss of the rows with more than 256 seats, a seat above them"
    widening = "upward widening of the band above 256 seats"
    rows = [
        *((name, f"{x:.4g}", *TERMS[name], SOURCE) for name, x in zip(TERMS, found, strict=True)),
        ("spread", spread, "GiB", "half width of the band of the rest", held),
        ("spread_per_seat", f"{per_seat:.4g}", "GiB per seat", widening, seats),
        ("n", n, "pools", "rows fitted on", SOURCE),
    ]
    frame = pd.DataFrame(rows, columns=["name", "value", "unit", "meaning", "source"])
    return frame.to_csv(index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
