"""Data: the shipped tables and one's own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from qwendeploy.resources import data_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Sized
    from pathlib import Path

    from qwendeploy.errors import DataError
    from qwendeploy.tables.checks import CheckReport
    from qwendeploy.tables.frames import TableSummary, TableView
    from qwendeploy.tables.importing import Imported
    from qwendeploy.tables.own import ImportRecord
    from qwendeploy.tables.pools import PoolRow


def data_list() -> tuple[TableSummary, ...]:
    """Return one summary per shipped table."""
    from qwendeploy.tables import frames

    return frames.summaries()


def data_show(
    table: str, *, where: Iterable[str] = (), columns: Sequence[str] = (), limit: int | None = None
) -> TableView:
    """Return the rows of a table that meet every condition ``column=value`` (or ``>=`` …).

    Raises:
        UserError: an unknown table, column or operator.
    """
    from qwendeploy.tables import frames

    return frames.view(table, where=where, columns=columns, limit=limit)


def data_check(directory: Path | None = None) -> CheckReport:
    """Return every problem of the tables in a directory.

    By default those of the shipped tables, rules, signatures and topics.

    Raises:
        UserError: the directory is missing or holds no table.
    """
    from qwendeploy.tables import checks

    report = checks.check_tables(directory)
    return report if directory else _with_rules(report, data_dir("rules"))


def _with_rules(report: CheckReport, rules: Path) -> CheckReport:
    """Return the report with what is in a folder of rules and what is amiss with it."""
    from qwendeploy.diagnosis.signature import read_signatures
    from qwendeploy.reporting.explain_topics import read_topics
    from qwendeploy.rulebook.book import read_rules

    read: dict[str, tuple[Sized, list[DataError]]] = {
        "rules": read_rules(rules),
        "signatures": read_signatures(rules / "signatures"),
        "topics": read_topics(rules / "topics"),
    }
    counts = {name: len(found) for name, (found, _) in read.items()}
    problems = [problem for _, faults in read.values() for problem in faults]
    return replace(report, rules=counts, problems=(*report.problems, *problems))


def data_import(
    file: Path,
    stated: Mapping[str, Any],
    *,
    plan_file: Path | None = None,
    format: str | None = None,
    skip_bad: bool = False,
    dry_run: bool = False,
) -> Imported:
    """Add the loads of a result file to one's own table, all or none.

    ``stated`` are fields of ``tables.importers.rows.Statement``; they outrank the plan's, which
    a run of this program brings along.

    Raises:
        UserError: an unknown format, GPU or weights, a contradiction, or a second import.
        DataError: a value of the file is bad; nothing was added.
    """
    from qwendeploy.documents.files import read_plan
    from qwendeploy.errors import UserError
    from qwendeploy.tables import importing
    from qwendeploy.tables.importers import read_points
    from qwendeploy.tables.importers.rows import state
    from qwendeploy.verification.importable import plan_of_run, run_in

    run = run_in(file)
    given = read_plan(plan_file) if plan_file is not None else None
    plan = plan_of_run(file, run, given, described="gpu" in stated)
    try:
        statement = state(stated, plan, run)
    except UserError:
        read_points(
            file, format=format, skip_bad=skip_bad
        )  # what is amiss with the file goes first
        raise
    return importing.import_file(file, statement, format=format, skip_bad=skip_bad, dry_run=dry_run)


def data_imports() -> tuple[ImportRecord, ...]:
    """Return the record of every import into one's own table, oldest first."""
    from qwendeploy.tables import own

    return own.records()


def data_own_pools() -> tuple[PoolRow, ...]:
    """Return the KV pools that ``up`` read from own starts, oldest first."""
    from qwendeploy.tables import own_pools

    return own_pools.own_pools()


def data_export(output: Path, *, ids: Sequence[str] = (), force: bool = False) -> int:
    """Write one's own rows as a redacted contribution file; return how many rows.

    Raises:
        UserError: nothing to export, an unknown import, or the file exists and not ``force``.
    """
    from qwendeploy.tables import importing

    return importing.export(output, ids=ids, force=force)


def data_save(table: str, output: Path, *, where: Iterable[str] = (), force: bool = False) -> int:
    """Write the rows of a table that meet the conditions in the form of the file's ending.

    Raises:
        UserError: as ``data_show``; another ending than .csv, .json, .md and .parquet, no pyarrow
            for the last, or the file exists and not ``force``.
    """
    from qwendeploy import tables
    from qwendeploy.tables import frames

    rows = tables.frame(table, where=where)
    frames.save(rows, output, force=force)
    return len(rows)


def data_forget(import_id: str) -> int:
    """Remove an import, or the pool of an own start (``own/…``); return how many rows.

    Raises:
        UserError: there is no such import or pool.
    """
    from qwendeploy.tables import own, own_pools

    if import_id.startswith("own/"):
        own_pools.forget_pool(import_id)
        return 1
    return own.forget(import_id)
