"""``data check``: whether a folder of tables is whole, consistent and sourced.

Every problem of every table is reported with file, line and column; a table with one problem is
not used in part.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from qwendeploy.errors import DataError, UserError
from qwendeploy.resources import data_dir
from qwendeploy.tables.catalogue import TABLES, Table, find_table
from qwendeploy.tables.gpus import gpus
from qwendeploy.tables.reader import read_csv_problems
from qwendeploy.tables.sources import read_sources, source_id

Lines = tuple[tuple[int, Any], ...]
Parts = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Rows per table that was read, and every problem in order of file and line."""

    directory: Path
    rows: Mapping[str, int]
    problems: tuple[DataError, ...]
    rules: Mapping[str, int] = field(default_factory=dict)
    """Rules, signatures and topics that were read beside the tables; none beside one's own."""


def check_tables(directory: Path | None = None) -> CheckReport:
    """Return the state of the tables in ``directory``, by default the shipped ones.

    A folder may hold some of the tables; the shipped one must hold all. Without a
    ``sources.yaml`` or a table of findings of its own, rows may name the shipped ones.

    Raises:
        UserError: the directory is missing or holds no table.
    """
    shipped = data_dir("benchdata")
    folder = directory or shipped
    if not folder.is_dir():
        raise UserError("no such directory", where=str(folder))
    paths = sorted(folder.glob("*.csv"))
    if not paths and not (folder / "sources.yaml").exists():
        raise UserError("holds no table (*.csv)", where=str(folder))
    problems: list[DataError] = []
    rows: dict[str, Lines] = {}
    for path in paths:
        found, faults = _read(path)
        problems.extend(faults)
        if found is not None:
            rows[path.stem] = found
    if folder == shipped:
        problems.extend(
            DataError("the table is missing", file=str(folder / f"{name}.csv"))
            for name in TABLES
            if not (folder / f"{name}.csv").exists()
        )
    problems.extend(_cross_checks(folder, shipped, rows))
    problems.extend(_yaml_problems(folder))
    order = sorted(problems, key=lambda problem: (problem.file or "", problem.line or 0))
    return CheckReport(folder, {name: len(lines) for name, lines in rows.items()}, tuple(order))


def _read(path: Path) -> tuple[Lines | None, tuple[DataError, ...]]:
    try:
        table = find_table(path.stem)
    except UserError as problem:
        return None, (DataError(problem.what, file=str(path), hint=problem.hint),)
    return read_csv_problems(path, table.row_type)


def _cross_checks(folder: Path, shipped: Path, rows: Mapping[str, Lines]) -> Iterator[DataError]:
    try:
        own = folder / "sources.yaml"
        known = read_sources(own if own.exists() else shipped / "sources.yaml")
    except DataError as problem:
        yield problem
        known = {}
    findings = _ids(rows, shipped, "findings", "finding")
    kl = _ids(rows, shipped, "kl", "row_id")
    checkpoints = _ids(rows, shipped, "checkpoints", "name")
    images = _ids(rows, shipped, "images", "name")
    cards = {name for gpu in gpus() for name in gpu.every_name}
    vocabulary = _vocabulary(shipped)
    for name, lines in rows.items():
        table, file = TABLES[name], str(folder / f"{name}.csv")
        yield from _duplicates(table, file, lines)
        links: list[tuple[str | None, Container[str], str, Parts]] = [
            (table.evidence, findings, "is no finding", lambda text: text.split(";")),
            # Unlike cards and cards a source leaves unnamed are described in words with brackets.
            (
                "gpu",
                cards,
                "is not in the GPU catalogue",
                lambda text: [] if "(" in text else [text],
            ),
        ]
        if known:
            links.append((table.source, known, "is not in sources.yaml", lambda t: [source_id(t)]))
        if name == "quality_classes":
            links.append(("kl_row", kl, "is no row of the table kl", _whole))
        if name == "decode_study":
            links.append(("checkpoint", checkpoints, "is no checkpoint of the tables", _whole))
            links.append(("image", images, "is no image of the tables", _whole))
        for column, names, what, parts in links:
            for line, text in _texts(lines, column):
                for part in parts(text):
                    if part not in names:
                        yield DataError(f"{part!r} {what}", file=file, line=line, key=column)
        for column, words in vocabulary.items():
            yield from _unknown_words(file, lines, column, words)
        yield from _impossible_dates(file, lines)


def _texts(lines: Lines, column: str | None) -> Iterator[tuple[int, str]]:
    """Yield the texts of a column with their lines; none where the rows have no such column."""
    for line, row in lines:
        text = getattr(row, column, None) if column else None
        if text:
            yield line, text


def _whole(text: str) -> Sequence[str]:
    return [text]


def _unknown_words(
    file: str, lines: Lines, column: str, words: Sequence[str]
) -> Iterator[DataError]:
    for line, word in _texts(lines, column):
        if word not in words:
            near = ", ".join(get_close_matches(word, words)) or "benchdata/vocabulary.yaml"
            yield DataError(
                f"{word!r} is no known {column}", file=file, line=line, key=column, hint=near
            )


def _impossible_dates(file: str, lines: Lines) -> Iterator[DataError]:
    """Yield dates that no calendar has; a month without a day is a date."""
    for line, text in _texts(lines, "date"):
        try:
            date.fromisoformat(text if len(text) != len("2026-01") else f"{text}-01")
        except ValueError:
            yield DataError(f"{text!r} is no date", file=file, line=line, key="date")


def _ids(rows: Mapping[str, Lines], shipped: Path, table: str, column: str) -> set[str]:
    lines = rows.get(table)
    if lines is None:
        lines, _ = read_csv_problems(shipped / f"{table}.csv", TABLES[table].row_type)
    return {getattr(row, column) for _, row in lines}


def _duplicates(table: Table, file: str, lines: Lines) -> Iterator[DataError]:
    first: dict[tuple[Any, ...], int] = {}
    for line, row in lines:
        key = tuple(getattr(row, column) for column in table.key)
        if key and key in first:
            text = " ".join("" if part is None else str(part) for part in key)
            yield DataError(
                f"{text!r} is also on line {first[key]}", file=file, line=line, key=table.key[0]
            )
        first.setdefault(key, line)


def _vocabulary(shipped: Path) -> Mapping[str, Sequence[str]]:
    """Return the words that columns are limited to, by column."""
    from ruamel.yaml import YAML

    text = (shipped / "vocabulary.yaml").read_text(encoding="utf-8")
    words: Mapping[str, Sequence[str]] = YAML(typ="safe").load(text)
    return words


def _yaml_problems(folder: Path) -> Iterator[DataError]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    load: Callable[[str], Any] = YAML(typ="safe").load
    for path in sorted(folder.glob("*.yaml")):
        if path.name == "sources.yaml":
            continue
        try:
            load(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            yield DataError("is not UTF-8", file=str(path))
        except MarkedYAMLError as problem:
            line = problem.problem_mark.line + 1 if problem.problem_mark else None
            yield DataError(f"is not YAML: {problem.problem}", file=str(path), line=line)
