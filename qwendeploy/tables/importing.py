"""``data import`` and ``data export``: from a result file to one's own table, and out of it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qwendeploy import __version__
from qwendeploy.documents.disk import write_file
from qwendeploy.errors import DataError, UserError
from qwendeploy.tables import own
from qwendeploy.tables.decode import DecodeRow
from qwendeploy.tables.importers import own_run, read_points
from qwendeploy.tables.importers.rows import Statement, make_rows

_PRIVATE = (
    (
        re.compile(
            r"^(?!(?:ghcr|quay|docker|nvcr)\.io/)(?:(?:[\w-]+\.)+[a-z]{2,}(?::\d+)?|[\w.-]+:\d+)/"
        ),
        "[registry]/",
    ),
    (re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE), "[address]"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "[address]"),
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"), "[mail]"),
    (re.compile(r"\b(?:hf_|sk-|ghp_|glpat-|nvapi-)[\w-]{6,}"), "[key]"),
    (re.compile(r"(?i)\b(?:bearer|token|api[-_]?key|password)\b\s*[:=]?\s*\S+"), "[key]"),
    (re.compile(r"(?:(?<=\s)|^)(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\]+[/\\])*[^\s/\\]+"), "[path]"),
)


@dataclass(frozen=True, slots=True)
class Imported:
    """What one import added, and the loads that were left out with their reasons."""

    record: own.ImportRecord
    rows: tuple[DecodeRow, ...]
    skipped: tuple[DataError, ...]
    directory: Path


def import_file(
    path: Path,
    stated: Statement,
    *,
    format: str | None = None,
    skip_bad: bool = False,
    dry_run: bool = False,
    directory: Path | None = None,
) -> Imported:
    """Add the loads of a result file to one's own table, all or none.

    Raises:
        UserError: an unknown format, GPU or weights, a contradiction, or a second import.
        DataError: a value of the file is bad; nothing was added.
    """
    reading = read_points(path, format=format, skip_bad=skip_bad)
    own_run_file = reading.format == own_run.NAME
    digest = own.file_digest(path)
    import_id = f"{'run' if own_run_file else 'import'}-{digest[:10]}"
    cleaned = _cleaned(stated)
    rows = make_rows(
        reading.points, cleaned, import_id=import_id, origin="own" if own_run_file else "import"
    )
    facts = own_run.facts(reading.documents) if own_run_file else {}
    plan_id = facts.pop("plan_id", None)
    if plan_id and stated.plan_id and plan_id != stated.plan_id:
        raise UserError(
            f"the run is of plan {plan_id}, the plan given is {stated.plan_id}",
            where="--plan",
            hint="give the plan that was served",
        )
    settings = {
        name: value for name, value in dataclasses.asdict(cleaned).items() if value is not None
    }
    record = own.ImportRecord(
        id=import_id,
        sha256=digest,
        file=path.name,
        format=reading.format,
        imported=datetime.now(UTC).isoformat(timespec="seconds"),
        tool_version=__version__,
        settings=settings,
        rows=len(rows),
        **facts,
    )
    if dry_run:
        own.refuse_known_file(digest, directory)
    else:
        own.add(rows, record, directory)
    return Imported(record, rows, reading.skipped, directory or own.own_directory())


def _cleaned(stated: Statement) -> Statement:
    """Return the statement with paths and addresses of this machine removed from its texts."""
    texts: dict[str, Any] = {
        field.name: redacted(value)
        for field in dataclasses.fields(stated)
        if isinstance(value := getattr(stated, field.name), str) and field.name != "gpu"
    }
    if "checkpoint" in texts and texts["checkpoint"] == "[path]":
        texts["checkpoint"] = re.split(r"[/\\]", (stated.checkpoint or "").rstrip("/\\"))[-1]
    return dataclasses.replace(stated, **texts)


def redacted(text: str) -> str:
    """Return a text without addresses, mail names, keys and paths."""
    for pattern, replacement in _PRIVATE:
        text = pattern.sub(replacement, text)
    return text


def export(
    path: Path,
    *,
    ids: Sequence[str] = (),
    force: bool = False,
    directory: Path | None = None,
) -> int:
    """Write one's own rows as a contribution file; return how many rows.

    The file holds the rows, and of each import the format, digest, date, tool version and
    statement, every text redacted; no file name, path, address or key.

    Raises:
        UserError: nothing to export, an unknown import, or the file exists and not ``force``.
    """
    records = own.records(directory)
    unknown = [name for name in ids if name not in {record.id for record in records}]
    if unknown:
        listed = ", ".join(record.id for record in records) or "none yet"
        raise UserError(f"there is no import {unknown[0]!r}", hint=f"imports: {listed}")
    chosen = [record for record in records if not ids or record.id in ids]
    names = {record.id for record in chosen}
    rows = [row for row in own.own_rows(directory) if row.source.split(" ", 1)[0] in names]
    if not rows:
        raise UserError("there are no own rows to export", hint="qwendeploy data import FILE …")
    document = {
        "schema": "qwendeploy/contribution",
        "schema_version": "1.0",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "tool": {"name": "qwendeploy", "version": __version__},
        "trust": "submitted",
        "imports": [_public_record(record) for record in chosen],
        "rows": [_public_row(row) for row in rows],
    }
    write_file(path, (json.dumps(document, indent=2) + "\n").encode(), force=force)
    return len(rows)


def _public_record(record: own.ImportRecord) -> dict[str, Any]:
    public = dataclasses.asdict(record)
    del public["file"]
    public["settings"] = {
        name: redacted(value) if isinstance(value, str) else value
        for name, value in record.settings.items()
    }
    return public


def _public_row(row: DecodeRow) -> dict[str, Any]:
    return {
        name: redacted(value) if isinstance(value, str) and name != "gpu" else value
        for name, value in dataclasses.asdict(row).items()
        if value is not None
    }
