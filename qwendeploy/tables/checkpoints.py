"""Checkpoints and drafters: sizes, contents, access."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qwendeploy.tables.reader import CellError, read_table


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One quant of one repository.

    ``gib_on_disk`` is the download, ``gib_loaded`` what the engine logged on one GPU at TP=1.
    ``kind`` says how the download size is known: ``exact`` (index of the repository), ``published``
    (printed by a source), ``computed`` (parameter count and format), ``unknown`` (no size).
    """

    name: str
    quant: str
    engine: Literal["vllm", "llama.cpp", "ik_llama.cpp"]
    gib_on_disk: float | None
    gib_loaded: float | None
    kind: Literal["exact", "computed", "published", "unknown"]
    role: Literal["target", "drafter"]
    vision: bool | None
    mtp: bool | None
    gated: bool | None
    source: str
    note: str | None

    def __post_init__(self) -> None:
        known = [size for size in (self.gib_on_disk, self.gib_loaded) if size is not None]
        if bool(known) == (self.kind == "unknown"):
            raise CellError("kind", f"kind {self.kind} does not fit the sizes given")
        if any(size <= 0 for size in known):
            raise CellError("gib_on_disk", "a size is above 0")


def checkpoint_rows() -> tuple[CheckpointRow, ...]:
    """Return every checkpoint. Raises as ``reader.read_csv``."""
    return read_table("checkpoints", CheckpointRow)


def find_checkpoint(name: str, *, quant: str | None = None) -> CheckpointRow | None:
    """Return the checkpoint of a repository (and quant, where it holds several), or ``None``."""
    for row in checkpoint_rows():
        if row.name == name and (quant is None or row.quant == quant):
            return row
    return None
