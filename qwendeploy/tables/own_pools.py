"""KV pools that servers started on this machine really got: evidence of kind ``measured-here``.

``pools_own.csv`` in the user's data directory has the columns of the shipped pool table and is
written whole under a temporary name. One start of one plan is one row; the same pool of the same
plan again changes nothing.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from qwendeploy.documents.disk import write_file
from qwendeploy.errors import UserError
from qwendeploy.tables.own_place import POOLS as TABLE
from qwendeploy.tables.own_place import own_directory
from qwendeploy.tables.pools import PoolRow
from qwendeploy.tables.reader import read_csv, table_text


def own_pools(directory: Path | None = None) -> tuple[PoolRow, ...]:
    """Return the pools of this machine's own starts, oldest first; empty if there is none.

    Raises:
        DataError: the table is there but damaged.
    """
    path = (directory or own_directory()) / TABLE
    return read_csv(path, PoolRow) if path.exists() else ()


def with_boot(text: str, boot_id: str | None) -> str:
    """Return a text with the words by which a verdict knows the start of a server again."""
    return f"{text} (boot {boot_id})" if boot_id else text


def boot_of(row: PoolRow) -> str | None:
    """Return the start that told a pool, as ``with_boot`` wrote it; ``None`` where it did not.

    A start's own run may not confirm what was calibrated from it.
    """
    match = re.search(r"\(boot ([\d.+]+)\)\Z", row.evidence or "")
    return match[1] if match else None


def add_pool(row: PoolRow, directory: Path | None = None) -> bool:
    """Append a pool; return whether it was new.

    Raises:
        UserError: the table cannot be written.
        DataError: the table is there but damaged.
    """
    present = own_pools(directory)
    if any(_measurement(known) == _measurement(row) for known in present):
        return False
    place = directory or own_directory()
    write_file(place / TABLE, table_text((*present, row), PoolRow).encode())
    return True


def forget_pool(row_id: str, directory: Path | None = None) -> None:
    """Remove the pool of one start.

    Raises:
        UserError: there is no such pool, or the table cannot be written.
    """
    present = own_pools(directory)
    kept = tuple(row for row in present if row.row_id != row_id)
    if len(kept) == len(present):
        listed = ", ".join(row.row_id for row in present) or "none yet"
        raise UserError(f"there is no pool {row_id!r}", hint=f"pools: {listed}")
    write_file((directory or own_directory()) / TABLE, table_text(kept, PoolRow).encode())


def _measurement(row: PoolRow) -> dict[str, object]:
    return {
        field.name: getattr(row, field.name)
        for field in dataclasses.fields(row)
        if field.name not in {"row_id", "evidence"}
    }
