"""What a measured row says of its machine and run beyond the columns of its own table.

``benchdata/row_conditions.csv`` holds the few decode rates and prefills whose sources state more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from qwendeploy.tables.reader import CellError, read_table


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """Conditions of one row of a decode or prefill table; an empty cell is *not stated*.

    ``p2p``: the cards reach each other's memory directly. ``memory_oc_mhz``: offset of the memory
    clock as ``nvidia-smi`` takes it, twice the clock's. ``graphs``: decode steps replay CUDA
    graphs. ``with_prefill``: the rate is of whole requests with their prompts.
    """

    row_id: str
    p2p: bool | None = None
    memory_oc_mhz: int | None = None
    graphs: bool | None = None
    with_prefill: bool | None = None

    def __post_init__(self) -> None:
        if self.memory_oc_mhz is not None and not 0 < self.memory_oc_mhz < 10_000:
            raise CellError("memory_oc_mhz", f"{self.memory_oc_mhz} is no offset of a memory clock")


@cache
def _by_row() -> Mapping[str, ConditionRow]:
    return {row.row_id: row for row in read_table("row_conditions", ConditionRow)}


def conditions_of(row_id: str) -> ConditionRow:
    """Return what is stated of a row beside its own columns. Raises as ``reader.read_csv``."""
    return _by_row().get(row_id) or ConditionRow(row_id)
