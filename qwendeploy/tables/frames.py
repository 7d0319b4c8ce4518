"""The tables as DataFrames: their typed columns, rows that meet conditions, files of them."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from qwendeploy.documents.disk import write_file
from qwendeploy.errors import UserError
from qwendeploy.tables.catalogue import OWN_TABLES, TABLES, Table, find_table
from qwendeploy.tables.own_place import own_directory
from qwendeploy.tables.reader import dtypes, read_csv, read_table
from qwendeploy.tables.sources import source_id

_CONDITION = re.compile(r"^\s*([A-Za-z_]\w*)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*$")
_ORDER = {">=": "ge", "<=": "le", ">": "gt", "<": "lt"}
_SWITCH = {"yes": True, "true": True, "no": False, "false": False}
FORMS = (".csv", ".json", ".md", ".parquet")
"""Endings of the files that ``save`` writes."""


class TableSummary(NamedTuple):
    """What ``data list`` says of one table; ``statuses`` is empty where rows have none."""

    name: str
    title: str
    rows: int
    statuses: dict[str, int]
    sources: int


class TableView(NamedTuple):
    """Rows of a table that met the conditions, the first ``limit`` of ``matched``."""

    table: str
    rows: pd.DataFrame
    matched: int
    total: int

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as plain values by column, ``None`` for an empty cell."""
        return records(self.rows)


def load(table: Table) -> tuple[Any, ...]:
    """Return the rows of a shipped table or of one's own. Raises as ``reader.read_csv``."""
    if table.name not in OWN_TABLES:
        return read_table(table.name, table.row_type)
    path = own_directory() / f"{table.name}.csv"
    return read_csv(path, table.row_type) if path.exists() else ()


def summaries() -> tuple[TableSummary, ...]:
    """Return one summary per shipped table. Raises as ``reader.read_csv``."""
    return tuple(_summary(table, load(table)) for table in TABLES.values())


def _summary(table: Table, rows: Sequence[Any]) -> TableSummary:
    statuses = Counter(row.status for row in rows if hasattr(row, "status"))
    ids = {source_id(getattr(row, table.source)) for row in rows} if table.source else set()
    return TableSummary(table.name, table.title, len(rows), dict(statuses), len(ids))


def read_frame(name: str) -> pd.DataFrame:
    """Return a whole table; its name is in ``attrs``. Raises as ``tables.frame``."""
    table = OWN_TABLES.get(name) or find_table(name)
    rows = load(table)
    types = dtypes(table.row_type)
    cells = {column: [getattr(row, column) for row in rows] for column in types}
    frame = pd.DataFrame(cells, dtype=object).astype(types)
    frame.attrs["table"] = table.name
    return frame


def view(
    name: str, *, where: Iterable[str] = (), columns: Sequence[str] = (), limit: int | None = None
) -> TableView:
    """Return the first rows of a table that meet every condition. Raises as ``tables.frame``."""
    whole = read_frame(name)
    chosen = [_column(whole, column) for column in columns] or list(whole.columns)
    found = rows_where(whole, where)[chosen]
    return TableView(whole.attrs["table"], found[:limit], len(found), len(whole))


def rows_where(frame: pd.DataFrame, conditions: Iterable[str]) -> pd.DataFrame:
    """Return the rows that meet every condition, numbered anew. Raises as ``tables.frame``."""
    tests = [_meets(frame, text) for text in conditions]
    for test in tests:
        frame = frame[test.reindex(frame.index)]
    return frame.reset_index(drop=True)


def _column(frame: pd.DataFrame, name: str) -> str:
    if name in frame:
        return name
    near = difflib.get_close_matches(name, frame.columns, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"columns: {', '.join(frame.columns)}"
    raise UserError(f"the table {frame.attrs['table']} has no column {name!r}", hint=hint)


def _meets(frame: pd.DataFrame, text: str) -> pd.Series[bool]:
    match = _CONDITION.match(text)
    if match is None:
        raise UserError(
            f"{text!r} is not a condition", where="--where", hint="write column=value or column>=8"
        )
    column, sign, wanted = _column(frame, match[1]), match[2], match[3]
    cells, where = frame[column], f"--where {text}"
    if sign in _ORDER:
        bound = pd.to_numeric(wanted, errors="coerce") if wanted else None
        if bound is None or pd.isna(bound):
            raise UserError(f"{wanted!r} is not a number", where=where, hint="order needs a number")
        if cells.dtype == "string":
            raise UserError(f"{column} is text; use = or !=", where=where)
        ordered: pd.Series[bool] = getattr(cells, _ORDER[sign])(bound).fillna(False)
        return ordered
    equal = cells.isna() if wanted == "" else cells.eq(_as_cell(cells, wanted)).fillna(False)
    return equal if sign == "=" else ~equal


def _as_cell(cells: pd.Series[Any], wanted: str) -> Any:
    """Return a stated value as the column holds it, NA where it cannot hold it."""
    if cells.dtype == "string":
        return wanted
    if cells.dtype == "boolean":
        return _SWITCH.get(wanted, pd.NA)
    number = pd.to_numeric(wanted, errors="coerce")
    return pd.NA if pd.isna(number) else number


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as plain values by column, ``None`` for an empty cell."""
    plain = frame.astype(object)
    return [
        {str(column): value for column, value in row.items()}
        for row in plain.where(frame.notna(), None).to_dict("records")
    ]


def texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the cells as our CSV files write them: switches ``yes``/``no``, empty for NA."""
    switches = frame.select_dtypes("boolean").columns
    shown = frame.astype({column: "string" for column in switches})
    shown[switches] = shown[switches].replace({"True": "yes", "False": "no"})
    return shown.astype("string").fillna("")


def save(frame: pd.DataFrame, path: Path, *, force: bool = False) -> None:
    """Write a table in the form that the file's ending names, one of ``FORMS``.

    Raises:
        UserError: another ending, the file exists and not ``force``, or no Parquet library.
    """
    if path.suffix not in FORMS:
        endings = ", ".join(FORMS)
        raise UserError(
            f"a table cannot be written as {path.suffix or path.name!r}",
            where=str(path),
            hint=f"use a file name that ends in one of {endings}",
        )
    if path.suffix == ".parquet":
        try:
            content = frame.to_parquet(engine="pyarrow", index=False)
        except ImportError:
            raise UserError(
                "Parquet needs pyarrow, which is not installed",
                where=str(path),
                hint="pip install pyarrow, or write .csv, .json or .md",
            ) from None
    elif path.suffix == ".json":
        content = (json.dumps(records(frame), indent=2) + "\n").encode()
    elif path.suffix == ".csv":
        content = texts(frame).to_csv(index=False, lineterminator="\n").encode()
    else:
        lines = [frame.columns, ["---"] * len(frame.columns), *texts(frame).to_numpy()]
        rows = (" | ".join(_escaped(cell) for cell in line) for line in lines)
        content = "".join(f"| {row} |\n" for row in rows).encode()
    write_file(path, content, force=force)


def _escaped(cell: str) -> str:
    return cell.replace("|", r"\|").replace("\n", " ")
