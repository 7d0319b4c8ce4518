"""How long engines took from start to serving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qwendeploy.tables.reader import CellError, read_table


@dataclass(frozen=True, slots=True)
class BootRow:
    """One start, or a range of starts (``seconds`` to ``seconds_max``) behind ``n`` of them.

    ``first`` starts compile kernels and graphs, ``warm`` ones find them in the cache; most sources
    do not say which (``unstated``). Reading the weights is included except with ``dummy`` ones.
    """

    row_id: str
    source: str
    image: str | None
    engine_version: str | None
    gpu: str
    gpu_count: int
    tp: int
    checkpoint: str | None
    quant: str
    spec_method: str | None
    spec_tokens: int | None
    start: Literal["first", "warm", "unstated"]
    seconds: float
    seconds_max: float | None
    n: int
    loader: Literal["standard", "instanttensor", "dummy"] | None
    note: str | None

    def __post_init__(self) -> None:
        if self.seconds <= 0 or (self.seconds_max or self.seconds) < self.seconds:
            raise CellError("seconds", "seconds is above 0 and not above seconds_max")


def boot_rows() -> tuple[BootRow, ...]:
    """Return every measured start. Raises as ``reader.read_csv``."""
    return read_table("boot", BootRow)
