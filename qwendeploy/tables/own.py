"""One's own rows: a table in the user's data directory with the record of every import.

``decode_own.csv`` has the columns of the shipped decode tables; ``imports.json`` says for each
import which file it was (digest), when, by which version, under which statement. Both are written
whole under a temporary name and renamed, so a failed import changes nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwendeploy.documents.disk import FileContent, write_files
from qwendeploy.errors import DataError, UserError
from qwendeploy.tables.decode import DecodeRow
from qwendeploy.tables.own_place import DECODE as TABLE
from qwendeploy.tables.own_place import RECORDS, own_directory
from qwendeploy.tables.reader import read_csv, table_text

__all__ = ["RECORDS", "TABLE", "ImportRecord", "own_directory"]
_IDENTITY = ("row_id", "source", "session", "experiment")
"""Columns that name an import rather than a measurement; two rows equal in all others are one."""


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """Where rows of one's own table came from."""

    id: str
    sha256: str
    file: str
    format: str
    imported: str
    tool_version: str
    settings: dict[str, Any]
    rows: int
    machine_id: str | None = None
    """Digest of the machine of an own run; ``None`` for foreign files."""
    run_id: str | None = None
    boot_id: str | None = None
    """Start of the server's process: runs of one start are not independent."""
    pool_blocks: int | None = None
    """KV blocks of one server as it told them itself."""


def own_rows(directory: Path | None = None) -> tuple[DecodeRow, ...]:
    """Return one's own rows, empty if nothing was imported.

    Raises:
        DataError: the table is there but damaged.
    """
    path = (directory or own_directory()) / TABLE
    return read_csv(path, DecodeRow) if path.exists() else ()


def records(directory: Path | None = None) -> tuple[ImportRecord, ...]:
    """Return the record of every import, oldest first.

    Raises:
        DataError: the file is there but damaged.
    """
    path = (directory or own_directory()) / RECORDS
    if not path.exists():
        return ()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return tuple(ImportRecord(**entry) for entry in document["imports"])
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError, KeyError) as problem:
        raise DataError(
            f"the record of imports is damaged: {problem}",
            file=str(path),
            hint="move it and the table beside it away, then import again",
        ) from None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as problem:
        raise UserError(f"cannot be read: {problem.strerror}", where=str(path)) from None


def refuse_known_file(sha256: str, directory: Path | None = None) -> None:
    """Refuse a file whose content was imported before."""
    for record in records(directory):
        if record.sha256 == sha256:
            raise UserError(
                f"this file was imported on {record.imported[:10]} as {record.id}",
                hint=f"qwendeploy data forget {record.id}",
            )


def add(rows: Sequence[DecodeRow], record: ImportRecord, directory: Path | None = None) -> None:
    """Append rows and their record.

    Raises:
        UserError: the file or one of its measurements is in the table already.
    """
    refuse_known_file(record.sha256, directory)
    present = own_rows(directory)
    known = {_measurement(row): row.row_id for row in present}
    for row in rows:
        twin = known.get(_measurement(row))
        if twin is not None:
            raise UserError(f"the measurement {row.source} is in the table already as {twin}")
        known[_measurement(row)] = row.row_id
    _write(directory or own_directory(), (*present, *rows), (*records(directory), record))


def forget(import_id: str, directory: Path | None = None) -> int:
    """Remove an import with its rows; return how many rows.

    Raises:
        UserError: there is no such import.
    """
    known = records(directory)
    if import_id not in {record.id for record in known}:
        listed = ", ".join(record.id for record in known) or "none yet"
        raise UserError(f"there is no import {import_id!r}", hint=f"imports: {listed}")
    present = own_rows(directory)
    kept = [row for row in present if row.source.split(" ", 1)[0] != import_id]
    _write(
        directory or own_directory(), kept, [record for record in known if record.id != import_id]
    )
    return len(present) - len(kept)


def _measurement(row: DecodeRow) -> tuple[Any, ...]:
    return tuple(
        getattr(row, field.name) for field in dataclasses.fields(row) if field.name not in _IDENTITY
    )


def _write(directory: Path, rows: Iterable[DecodeRow], known: Iterable[ImportRecord]) -> None:
    """Replace table and records, both whole."""
    document = {
        "schema": "qwendeploy/imports",
        "schema_version": "1.0",
        "imports": [dataclasses.asdict(record) for record in known],
    }
    write_files(
        {
            directory / TABLE: FileContent(table_text(rows, DecodeRow).encode()),
            directory / RECORDS: FileContent((json.dumps(document, indent=2) + "\n").encode()),
        }
    )
