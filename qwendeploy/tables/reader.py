"""Typed reading of the CSV tables: a file loads whole and valid, or not at all.

A table's row type is a frozen dataclass whose fields are the columns, in the file's own order of
words: ``str``, ``int``, ``float``, ``bool`` (``yes``/``no``), ``Literal``, each optionally
``| None`` for a cell that may be empty. An empty cell is *not known*, never zero.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
import types
import typing
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from qwendeploy.errors import DataError
from qwendeploy.resources import data_dir

T = TypeVar("T")


class CellError(ValueError):
    """A row type's refusal of one of its values; names the column."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(problem)
        self.column = column


def _plain(text: str) -> str:
    """Return a number's text unless Python alone would read it (``1_000``, `` 7``, full-width)."""
    if not text.isascii() or "_" in text or text != text.strip():
        raise ValueError(f"{text!r} is not a plain number")
    return text


def _int(text: str) -> int:
    try:
        return int(_plain(text))
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _float(text: str) -> float:
    try:
        value = float(_plain(text))
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number")
    return value


def _bool(text: str) -> bool:
    try:
        return {"yes": True, "no": False}[text]
    except KeyError:
        raise ValueError(f"{text!r} is neither yes nor no") from None


def _literal(allowed: tuple[Any, ...]) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is not one of {', '.join(map(str, allowed))}")
        return text

    return convert


_DTYPES: dict[Any, str] = {_int: "Int64", _float: "Float64", _bool: "boolean"}


def dtypes(row_type: Any) -> dict[str, str]:
    """Return the nullable pandas type of every column, in the row type's order."""
    return {
        name: _DTYPES.get(convert, "string") for name, (convert, _) in _converters(row_type).items()
    }


@cache
def _converters(row_type: Any) -> dict[str, tuple[Callable[[str], Any], bool]]:
    """Return per column the converter and whether the cell may be empty."""
    hints = typing.get_type_hints(row_type)
    result: dict[str, tuple[Callable[[str], Any], bool]] = {}
    simple: dict[Any, Callable[[str], Any]] = {str: str, int: _int, float: _float, bool: _bool}
    for field in dataclasses.fields(row_type):
        hint = hints[field.name]
        optional = False
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
            members = [member for member in typing.get_args(hint) if member is not type(None)]
            optional = len(members) < len(typing.get_args(hint))
            (hint,) = members
        if typing.get_origin(hint) is typing.Literal:
            result[field.name] = (_literal(typing.get_args(hint)), optional)
        else:
            result[field.name] = (simple[hint], optional)
    return result


def read_csv(path: Path, row_type: type[T]) -> tuple[T, ...]:
    """Return every row of a CSV file as ``row_type``.

    Raises:
        DataError: the file is missing or not UTF-8, its header differs from the row type, or a
            cell does not convert; names file, line and column.
    """
    return tuple(row for _, row in _read(path, row_type, None))


def read_csv_problems(
    path: Path, row_type: type[T]
) -> tuple[tuple[tuple[int, T], ...], tuple[DataError, ...]]:
    """Return the good rows with their lines and every problem that ``read_csv`` would raise.

    For reports only: whoever uses a table takes it whole from ``read_csv`` or not at all.
    """
    problems: list[DataError] = []
    try:
        rows = _read(path, row_type, problems)
    except DataError as problem:
        return (), (*problems, problem)
    return tuple(rows), tuple(problems)


def _read(path: Path, row_type: type[T], problems: list[DataError] | None) -> list[tuple[int, T]]:
    columns = _converters(cast(Any, row_type))
    rows: list[tuple[int, T]] = []
    try:
        with path.open(encoding="utf-8", newline="") as handle:
            reader = csv.reader(handle, strict=True)
            header = next(reader, None)
            _check_header(path, header, list(columns))
            assert header is not None
            convert = _RowConverter(path, row_type, [(name, *columns[name]) for name in header])
            for cells in reader:
                try:
                    rows.append((reader.line_num, convert(reader.line_num, cells)))
                except DataError as problem:
                    if problems is None:
                        raise
                    problems.append(problem)
        _check_end(path, reader.line_num)
    except FileNotFoundError:
        raise DataError("no such table", file=str(path)) from None
    except UnicodeDecodeError as problem:
        raise DataError(
            f"is not UTF-8 (byte 0x{problem.object[problem.start]:02x})",
            file=str(path),
            line=_line_of_bad_byte(path),
        ) from None
    except csv.Error as problem:
        raise DataError(f"is not CSV: {problem}", file=str(path), line=reader.line_num) from None
    except OSError as problem:
        raise DataError(f"cannot be read: {problem.strerror}", file=str(path)) from None
    return rows


def _line_of_bad_byte(path: Path) -> int:
    """Return the first line that is not UTF-8."""
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            return number
    return 1


def _check_end(path: Path, line: int) -> None:
    """Refuse a file whose last line is not ended: a cut number would still be a number."""
    with path.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        if handle.read(1) != b"\n":
            raise DataError(
                "the last line has no end: the file may be cut off", file=str(path), line=line
            )


def _check_header(path: Path, header: list[str] | None, expected: list[str]) -> None:
    if header is None:
        raise DataError("is empty; a header line is needed", file=str(path), line=1)
    for name in header:
        if name not in expected:
            raise DataError("unknown column", file=str(path), line=1, key=name)
    for name in expected:
        if header.count(name) != 1:
            problem = "missing column" if name not in header else "column occurs twice"
            raise DataError(problem, file=str(path), line=1, key=name)


class _Column(dict[str, Any]):
    """Values of a column by their texts; equal texts are converted once."""

    def __init__(self, name: str, convert: Callable[[str], Any], optional: bool) -> None:
        super().__init__({"": None} if optional else {})
        self.name = name
        self._convert = convert

    def __missing__(self, cell: str) -> Any:
        if cell == "":
            raise CellError(self.name, "may not be empty")
        try:
            value = self[cell] = self._convert(cell)
        except ValueError as problem:
            raise CellError(self.name, str(problem)) from None
        return value


class _RowConverter:
    """Turns the cells of a line into a row."""

    def __init__(
        self,
        path: Path,
        row_type: type[Any],
        columns: list[tuple[str, Callable[[str], Any], bool]],
    ) -> None:
        self._path = path
        self._row_type = row_type
        self._columns = [_Column(*column) for column in columns]
        self._names = [column.name for column in self._columns]
        self._in_order = self._names == [field.name for field in dataclasses.fields(row_type)]

    def __call__(self, line: int, cells: list[str]) -> Any:
        if len(cells) != len(self._columns):
            raise DataError(
                f"{len(cells)} cells where the header has {len(self._columns)}",
                file=str(self._path),
                line=line,
            )
        try:
            values = [column[cell] for column, cell in zip(self._columns, cells, strict=True)]
            if self._in_order:
                return self._row_type(*values)
            return self._row_type(**dict(zip(self._names, values, strict=True)))
        except ValueError as problem:
            name = problem.column if isinstance(problem, CellError) else None
            raise DataError(str(problem), file=str(self._path), line=line, key=name) from None


def read_table(name: str, row_type: type[T]) -> tuple[T, ...]:
    """Return the rows of ``benchdata/<name>.csv``, read once. Raises as ``read_csv``."""
    rows: tuple[T, ...] = _shipped(data_dir("benchdata") / f"{name}.csv", cast(Any, row_type))
    return rows


@cache
def _shipped(path: Path, row_type: Any) -> tuple[Any, ...]:
    return read_csv(path, row_type)


def table_text(rows: Iterable[Any], row_type: Any) -> str:
    """Return rows as a table that ``read_csv`` reads back."""
    columns = list(_converters(row_type))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell_text(getattr(row, column)) for column in columns] for row in rows)
    return buffer.getvalue()


def cell_text(value: Any) -> str:
    """Return a value as its cell has it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
