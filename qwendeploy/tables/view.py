"""Rows of one table, filtered as ``data show`` filters them."""

from __future__ import annotations

import dataclasses
import difflib
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qwendeploy.errors import UserError
from qwendeploy.resources import data_dir
from qwendeploy.tables.catalogue import TABLES, Table, find_table
from qwendeploy.tables.own import own_rows
from qwendeploy.tables.own_pools import own_pools
from qwendeploy.tables.reader import read_csv
from qwendeploy.tables.sources import source_id

OWN = Table(
    "decode_own", "one's own decode rates", "tables.decode:DecodeRow", ("row_id",), "source"
)
OWN_POOLS = Table(
    "pools_own", "pools of one's own starts", "tables.pools:PoolRow", ("row_id",), "source"
)
OWN_TABLES = {table.name: table for table in (OWN, OWN_POOLS)}
_CONDITION = re.compile(r"^\s*([A-Za-z_]\w*)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*$")
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class TableSummary:
    """What ``data list`` says of one table; ``statuses`` is empty where rows have none."""

    name: str
    title: str
    rows: int
    statuses: Mapping[str, int]
    sources: int


@dataclass(frozen=True, slots=True)
class TableView:
    """Rows of a table that met the conditions, the first ``limit`` of ``matched``."""

    table: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    matched: int
    total: int


def load(table: Table) -> tuple[Any, ...]:
    """Return the rows of a shipped table or of one's own. Raises as ``reader.read_csv``."""
    if table is OWN:
        return own_rows()
    if table is OWN_POOLS:
        return own_pools()
    return read_csv(data_dir("benchdata") / f"{table.name}.csv", table.row_type)


def summaries() -> tuple[TableSummary, ...]:
    """Return one summary per shipped table. Raises as ``reader.read_csv``."""
    return tuple(_summary(table, load(table)) for table in TABLES.values())


def _summary(table: Table, rows: Sequence[Any]) -> TableSummary:
    statuses: Counter[str] = Counter(
        row.status for row in rows if isinstance(getattr(row, "status", None), str)
    )
    ids = {source_id(getattr(row, table.source)) for row in rows} if table.source else set()
    return TableSummary(table.name, table.title, len(rows), dict(statuses), len(ids))


def view(
    name: str,
    *,
    where: Iterable[str] = (),
    columns: Sequence[str] = (),
    limit: int | None = None,
) -> TableView:
    """Return the rows of a table that meet every condition ``COLUMN OPERATOR VALUE``.

    Operators are ``=``, ``!=`` (an empty value matches an empty cell) and, for numbers, ``>``,
    ``>=``, ``<``, ``<=``, which an empty cell never meets.

    Raises:
        UserError: an unknown table, column or operator, or an order of texts.
        DataError: the table itself is broken.
    """
    table = OWN_TABLES.get(name) or find_table(name)
    known = [field.name for field in dataclasses.fields(table.row_type)]
    conditions = [_condition(text, table.name, known) for text in where]
    chosen = [_column(column, table.name, known) for column in columns] or known
    rows = load(table)
    matching = [row for row in rows if all(condition(row) for condition in conditions)]
    shown = matching if limit is None else matching[:limit]
    return TableView(
        table=table.name,
        columns=tuple(chosen),
        rows=tuple({column: getattr(row, column) for column in chosen} for row in shown),
        matched=len(matching),
        total=len(rows),
    )


def _column(name: str, table: str, known: Sequence[str]) -> str:
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"columns: {', '.join(known)}"
    raise UserError(f"the table {table} has no column {name!r}", hint=hint)


def _condition(text: str, table: str, known: Sequence[str]) -> Callable[[Any], bool]:
    match = _CONDITION.match(text)
    if match is None:
        raise UserError(
            f"{text!r} is not a condition", where="--where", hint="write column=value or column>=8"
        )
    column, sign, wanted = _column(match[1], table, known), match[2], match[3]
    if sign in ("=", "!="):
        return lambda row: _is(getattr(row, column), wanted) == (sign == "=")
    try:
        bound = float(wanted)
    except ValueError:
        raise UserError(
            f"{wanted!r} is not a number", where=f"--where {text}", hint="order needs a number"
        ) from None

    def in_order(row: Any) -> bool:
        value = getattr(row, column)
        if isinstance(value, str):
            raise UserError(f"{column} is text; use = or !=", where=f"--where {text}")
        return value is not None and _ORDER[sign](value, bound)

    return in_order


def _is(value: Any, wanted: str) -> bool:
    if value is None:
        return wanted == ""
    if isinstance(value, bool):
        return wanted in (("yes", "true") if value else ("no", "false"))
    if isinstance(value, int | float):
        try:
            return value == float(wanted)
        except ValueError:
            return False
    return bool(value == wanted)
