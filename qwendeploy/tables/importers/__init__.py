"""Foreign result files become rows of one's own table.

``read_points`` recognises the format and returns what was measured; ``rows`` adds what the user
states of the machine and the server, which no benchmark knows. A file with one bad load is
refused whole, unless the user asks to leave the bad ones out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from qwendeploy.errors import DataError, UserError
from qwendeploy.tables.importers import (
    aiperf,
    decode_bench,
    guidellm,
    inference_perf,
    llama_bench,
    own_run,
    vllm_bench,
)
from qwendeploy.tables.importers.plausible import implausible
from qwendeploy.tables.importers.points import Point

FORMATS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        *(own_run, guidellm, decode_bench, aiperf, inference_perf, vllm_bench),
        llama_bench,
    )
}
LARGEST_MIB = 512
"""Files above this size are refused: they hold traces, not results."""


@dataclass(frozen=True, slots=True)
class ResultReading:
    """What a file holds: its format, the good points, and the refused ones if they were skipped."""

    format: str
    documents: Sequence[Any]
    points: tuple[Point, ...]
    skipped: tuple[DataError, ...]


def read_points(path: Path, *, format: str | None = None, skip_bad: bool = False) -> ResultReading:
    """Return the points of a result file.

    Args:
        format: one of ``FORMATS``; recognised from the content by default.
        skip_bad: leave refused loads out of a file with several; at least one must remain.

    Raises:
        UserError: the file cannot be read or its format is not known.
        DataError: a value is bad, with its key; or no load is left.
    """
    documents = _documents(path)
    module = _module(documents, path, format)
    good: list[Point] = []
    bad: list[DataError] = []
    for point in _each(module, documents, str(path)):
        if isinstance(point, Point):
            good.append(point)
        elif not skip_bad:
            raise point
        else:
            bad.append(point)
    if not good:
        raise bad[0] if bad else DataError("holds no decode result", file=str(path))
    return ResultReading(module.NAME, documents, tuple(good), tuple(bad))


def _each(module: ModuleType, documents: list[Any], file: str) -> Iterator[Point | DataError]:
    """Yield each load or its refusal."""
    try:
        for point in module.read(documents, file):
            yield (implausible(point, file) or point) if isinstance(point, Point) else point
    except DataError as problem:
        yield problem


def _documents(path: Path) -> list[Any]:
    """Return the JSON documents of a file: one, or one a line.

    NaN and Infinity, which JSON does not have but some tools write, are read so that their place
    can be named.
    """
    try:
        if path.stat().st_size > LARGEST_MIB * 2**20:
            raise UserError(f"is larger than {LARGEST_MIB} MiB", where=str(path))
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError("no such file", where=str(path)) from None
    except IsADirectoryError:
        raise UserError("is a directory; name the result file in it", where=str(path)) from None
    except UnicodeDecodeError:
        raise DataError("is not UTF-8 JSON", file=str(path)) from None
    except OSError as problem:
        raise UserError(f"cannot be read: {problem.strerror}", where=str(path)) from None
    if path.suffix in (".yaml", ".yml"):
        raise UserError("is YAML; the importers read JSON", where=str(path))
    decoder = json.JSONDecoder()
    documents, position = [], 0
    while position < len(text):
        while position < len(text) and text[position] in " \t\r\n,":
            position += 1
        if position == len(text):
            break
        try:
            document, position = decoder.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError) as problem:
            line = text.count("\n", 0, getattr(problem, "pos", position)) + 1
            what = getattr(problem, "msg", "is nested too deeply")
            raise DataError(f"is not JSON: {what}", file=str(path), line=line) from None
        documents.append(document)
    if not documents:
        raise DataError("is empty", file=str(path))
    if len(documents) == 1 and isinstance(documents[0], list) and documents[0]:
        return list(documents[0])
    return documents


def _module(documents: list[Any], path: Path, format: str | None) -> ModuleType:
    if format is not None:
        module = FORMATS[format]
        if not module.matches(documents):
            raise UserError(f"is no {module.TITLE}", where=str(path))
        return module
    for module in FORMATS.values():
        if module.matches(documents):
            return module
    known = ", ".join(module.TITLE for module in FORMATS.values())
    raise UserError("is in no known format", where=str(path), hint=f"known: {known}")
