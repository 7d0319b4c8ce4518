"""Coefficients of the memory beside weights and KV cache, as scripts/fit_memory.py wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from qwendeploy.errors import DataError
from qwendeploy.tables.reader import read_table


@dataclass(frozen=True)
class RestRow:
    """One coefficient with unit, meaning and how it was obtained."""

    name: str
    value: float
    unit: str
    meaning: str
    source: str


@cache
def rest_values() -> dict[str, float]:
    """Return the coefficients of benchdata/memory_rest.csv by name.

    Raises:
        DataError: the table is bad or names one coefficient twice.
    """
    rows = read_table("memory_rest", RestRow)
    values = {row.name: row.value for row in rows}
    if len(values) != len(rows):
        raise DataError("a coefficient occurs twice", file="memory_rest.csv", key="name")
    return values
