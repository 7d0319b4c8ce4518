"""Where the tables' values come from: ``benchdata/sources.yaml``.

A row's ``source`` starts with the id of a source; what follows the first space is the place in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qwendeploy.errors import DataError
from qwendeploy.resources import data_dir


@dataclass(frozen=True, slots=True)
class Source:
    """A public place, its licence if known, and the date it was read (year-month)."""

    id: str
    title: str
    url: str | None
    licence: str
    read: str
    note: str | None = None


def source_id(text: str) -> str:
    """Return the id part of a row's ``source``."""
    return text.split(" ", 1)[0]


def read_sources(path: Path) -> Mapping[str, Source]:
    """Return the sources of a file by id.

    Raises:
        DataError: the file is missing, is not YAML, or an entry lacks a key, has an unknown one or
            an id that occurred before.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    try:
        document = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError("no such file", file=str(path)) from None
    except UnicodeDecodeError as problem:
        raise DataError(f"is not UTF-8: {problem}", file=str(path)) from None
    except MarkedYAMLError as problem:
        line = problem.problem_mark.line + 1 if problem.problem_mark else None
        raise DataError(f"is not YAML: {problem.problem}", file=str(path), line=line) from None
    if not isinstance(document, dict) or not isinstance(document.get("sources"), list):
        raise DataError("needs a list", file=str(path), line=1, key="sources")
    known = {field.name for field in fields(Source)}
    result: dict[str, Source] = {}
    for index, entry in enumerate(document["sources"]):
        line = document["sources"].lc.item(index)[0] + 1
        if not isinstance(entry, dict):
            raise DataError("an entry is a mapping", file=str(path), line=line, key="sources")
        for key in entry:
            if key not in known:
                raise DataError("unknown key", file=str(path), line=line, key=str(key))
        for key in ("id", "title", "licence", "read"):
            if not isinstance(entry.get(key), str) or not entry[key]:
                raise DataError("needs a text", file=str(path), line=line, key=key)
        text: dict[str, Any] = {
            key: None if value is None else str(value) for key, value in entry.items()
        }
        source = Source(**{"url": None, **text})
        if " " in source.id or source.id in result:
            fault = "occurs twice" if source.id in result else "holds a space"
            raise DataError(f"{source.id!r} {fault}", file=str(path), line=line, key="id")
        result[source.id] = source
    return MappingProxyType(result)


@cache
def sources() -> Mapping[str, Source]:
    """Return the sources of the shipped tables by id. Raises as ``read_sources``."""
    return read_sources(data_dir("benchdata") / "sources.yaml")
