"""Text of the ``data`` verbs: lists and rows that fit a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pandas import NA

from qwendeploy.tables.checks import CheckReport
from qwendeploy.tables.frames import TableSummary, TableView
from qwendeploy.tables.importing import Imported
from qwendeploy.tables.own import ImportRecord
from qwendeploy.tables.pools import PoolRow
from qwendeploy.tables.reader import cell_text

_WIDEST = 48
"""Characters of one cell in a table of rows; longer texts are cut, ``--json`` has them whole."""


def list_text(summaries: Sequence[TableSummary]) -> str:
    """Return one line per table: name, rows, status counts, sources, title."""
    rows = [
        (
            summary.name,
            str(summary.rows),
            str(summary.sources or ""),
            ", ".join(f"{count} {status}" for status, count in summary.statuses.items()),
            summary.title,
        )
        for summary in summaries
    ]
    return _aligned(("table", "rows", "sources", "status", "holds"), rows)


def imports_text(records: Sequence[ImportRecord]) -> str:
    """Return one line per import of one's own table."""
    if not records:
        return "own table (decode_own): nothing imported"
    rows = [
        (record.id, record.format, str(record.rows), record.imported[:10]) for record in records
    ]
    return "own table (decode_own)\n" + _aligned(("import", "format", "rows", "date"), rows)


def pools_text(pools: Sequence[PoolRow]) -> str:
    """Return one line per pool of an own start; ``data forget`` takes one back by its name."""
    if not pools:
        return "own table (pools_own): no start of `qwendeploy up` yet"
    rows = [
        (
            row.row_id,
            _cell(row.num_blocks),
            _cell(row.kv_tokens),
            _short(row.note),
            (row.evidence or "")[:10],
        )
        for row in pools
    ]
    header = ("start", "blocks", "tokens", "predicted", "date")
    return "own table (pools_own)\n" + _aligned(header, rows)


def import_text(done: Imported, *, written: bool) -> str:
    """Return what an import added, with the reason of every row that is no cell."""
    verb = "added to" if written else "would be added to"
    count = len(done.rows)
    lines = [
        f"{done.record.id} ({done.record.format}): {count} row{'s' if count > 1 else ''} {verb} "
        f"{done.directory}"
    ]
    rows = [
        (
            _cell(row.concurrency),
            _cell(row.context),
            _cell(row.aggregate_tps),
            _cell(row.itl_ms),
            row.status,
            row.reason or "",
        )
        for row in done.rows
    ]
    lines.append(_aligned(("c", "context", "tok/s", "TPOT ms", "status", "why"), rows))
    lines += [f"skipped: {problem}" for problem in done.skipped]
    lines.append(f"next: qwendeploy data forget {done.record.id}  (removes it)")
    return "\n".join(lines)


def check_text(report: CheckReport) -> str:
    """Return the verdict on a folder of tables, and on the rules if they were read."""
    counts = {"tables": len(report.rows), "rows": sum(report.rows.values()), **report.rules}
    if not report.problems:
        held = ", ".join(f"{count} {name}" for name, count in counts.items())
        return f"{report.directory}: {held}: no problems found"
    lines = [str(problem) for problem in report.problems]
    count = len(report.problems)
    lines.append(f"{report.directory}: {count} problem{'s' if count > 1 else ''}")
    return "\n".join(lines)


def view_text(shown: TableView) -> str:
    """Return the rows: what they share once, then a table of what differs."""
    rows = shown.rows
    if rows.empty:
        return f"{shown.table}: none of {shown.total} rows matches"
    differing = [column for column in rows if rows[column].nunique(dropna=False) > 1]
    lines = [f"{shown.table}: {len(rows)} of {shown.matched} matching rows ({shown.total})"]
    shared = {name: cell for name, cell in shown.records()[0].items() if name not in differing}
    lines += [f"  {name}: {_cell(cell)}" for name, cell in shared.items() if cell is not None]
    if differing:
        cells = rows[differing].map(_short).to_numpy()
        lines += ["", _aligned([str(column) for column in differing], cells)]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, float) and abs(value) < 1e6:
        return f"{value:g}"
    return "" if value is None or value is NA else cell_text(value)


def _short(value: Any) -> str:
    text = _cell(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rows = list(rows)
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    )
