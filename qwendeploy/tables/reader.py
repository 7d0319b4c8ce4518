"""Typed reading of the CSV tables: a file loads whole and valid, or not at all.

A table's row type is a frozen dataclass whose fields are the columns, in the file's own order of
words: ``str``, ``int``, ``float``, ``bool`` (``yes``/``no``), ``Literal``, each optionally
``| None`` for a cell that may be empty. An empty cell is *not known*, never zero.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import types
import typing
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from qwendeploy.errors import DataError
from qwendeploy.resources import data_dir

T = TypeVar("T")


def _int(text: str) -> int:
    return int(text)


def _float(text: str) -> float:
    value = float(text)
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
    return tuple(row for _, row in read_csv_lines(path, row_type))


def read_csv_lines(path: Path, row_type: type[T]) -> tuple[tuple[int, T], ...]:
    """Return ``(line, row)`` for every row; line 1 is the header. Raises as ``read_csv``."""
    converters = _converters(cast(Any, row_type))
    rows: list[tuple[int, T]] = []
    try:
        with path.open(encoding="utf-8", newline="") as handle:
            reader = csv.reader(handle, strict=True)
            header = next(reader, None)
            _check_header(path, header, list(converters))
            assert header is not None
            for cells in reader:
                line = reader.line_num
                if len(cells) != len(header):
                    raise DataError(
                        f"{len(cells)} cells where the header has {len(header)}",
                        file=str(path),
                        line=line,
                    )
                rows.append((line, _row(path, line, header, cells, converters, row_type)))
    except FileNotFoundError:
        raise DataError("no such table", file=str(path)) from None
    except (UnicodeDecodeError, csv.Error, OSError) as problem:
        raise DataError(f"cannot be read as UTF-8 CSV: {problem}", file=str(path)) from problem
    return tuple(rows)


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


def _row(
    path: Path,
    line: int,
    header: list[str],
    cells: list[str],
    converters: dict[str, tuple[Callable[[str], Any], bool]],
    row_type: type[T],
) -> T:
    values: dict[str, Any] = {}
    for name, cell in zip(header, cells, strict=True):
        convert, optional = converters[name]
        if cell == "":
            if not optional:
                raise DataError("may not be empty", file=str(path), line=line, key=name)
            values[name] = None
            continue
        try:
            values[name] = convert(cell)
        except ValueError as problem:
            raise DataError(str(problem), file=str(path), line=line, key=name) from None
    try:
        return row_type(**values)
    except ValueError as problem:
        raise DataError(str(problem), file=str(path), line=line) from None


def read_table(name: str, row_type: type[T]) -> tuple[T, ...]:
    """Return the rows of ``benchdata/<name>.csv``. Raises as ``read_csv``."""
    return read_csv(data_dir("benchdata") / f"{name}.csv", row_type)
