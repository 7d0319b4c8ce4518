"""The measured tables: typed rows for the other rooms, DataFrames for people.

from qwendeploy import tables
tables.frame("decode_study", where="concurrency>=64").groupby("config").aggregate_tps.median()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pandas import DataFrame


def names() -> tuple[str, ...]:
    """Return the names of the shipped tables and of one's own, as ``frame`` takes them."""
    from qwendeploy.tables.catalogue import OWN_TABLES, TABLES

    return (*TABLES, *OWN_TABLES)


def frame(name: str, *, where: str | Iterable[str] = ()) -> DataFrame:
    """Return a table with every column; texts, whole numbers, numbers and switches are nullable.

    An empty cell is ``pandas.NA``. ``where`` holds conditions that all rows returned meet:
    ``column=value`` or ``!=`` (an empty value is an empty cell), and for numbers ``>``, ``>=``,
    ``<``, ``<=``, which an empty cell never meets.

    Raises:
        UserError: an unknown table, column or operator, or an order of texts.
        DataError: the table itself is broken.
    """
    from qwendeploy.tables.frames import read_frame, rows_where

    return rows_where(read_frame(name), [where] if isinstance(where, str) else where)
