"""A table with one bad value is named by file, line and column, and not a row of it is used."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from qwendeploy.cli.data import command
from qwendeploy.errors import DataError
from qwendeploy.resources import data_dir
from qwendeploy.tables.checks import check_tables
from qwendeploy.tables.decode import DecodeRow
from qwendeploy.tables.reader import read_csv

Edit = Callable[[list[list[str]]], object]


def _set(line: int, column: str, text: str) -> Edit:
    def edit(table: list[list[str]]) -> None:
        table[line - 1][table[0].index(column)] = text

    return edit


def _drop_column(name: str) -> Edit:
    def edit(table: list[list[str]]) -> None:
        index = table[0].index(name)
        for row in table:
            del row[index]

    return edit


def _edits(*edits: Edit) -> Edit:
    return lambda table: [edit(table) for edit in edits]


def _table(rows: int = 6) -> list[list[str]]:
    with (data_dir("benchdata") / "decode_study.csv").open(newline="") as handle:
        return [row for row, _ in zip(csv.reader(handle), range(rows), strict=False)]


def _text(table: Sequence[Sequence[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(table)
    return buffer.getvalue()


CASES = [
    pytest.param(_set(3, "aggregate_tps", "12,5"), 3, "aggregate_tps", "not a number", id="comma"),
    pytest.param(
        _set(3, "aggregate_tps", "1_250"), 3, "aggregate_tps", "not a number", id="python"
    ),
    pytest.param(_set(3, "aggregate_tps", "NaN"), 3, "aggregate_tps", "finite", id="nan"),
    pytest.param(_set(4, "ttft_ms", "inf"), 4, "ttft_ms", "finite", id="inf"),
    pytest.param(_set(2, "concurrency", "1.0"), 2, "concurrency", "whole number", id="fraction"),
    pytest.param(_set(2, "status", "fine"), 2, "status", "not one of", id="status"),
    pytest.param(_set(2, "prefix_cache", "true"), 2, "prefix_cache", "yes nor no", id="bool"),
    pytest.param(_set(5, "gpu", ""), 5, "gpu", "empty", id="needed-cell"),
    pytest.param(_set(5, "aggregate_tps", "-3"), 5, "aggregate_tps", "above 0", id="negative"),
    pytest.param(_set(5, "aggregate_tps", "0"), 5, "aggregate_tps", "above 0", id="zero"),
    pytest.param(_set(5, "accept_rate", "57"), 5, "accept_rate", "fraction", id="per-cent"),
    pytest.param(_set(5, "running", "99"), 5, "running", "concurrency", id="running"),
    pytest.param(
        _edits(_set(4, "aggregate_tps", ""), _set(4, "per_user_tps", "")),
        4,
        "aggregate_tps",
        "needs a rate",
        id="ok-without-rate",
    ),
    pytest.param(_set(4, "status", "excluded"), 4, "reason", "needs a reason", id="no-reason"),
    pytest.param(_drop_column("quant"), 1, "quant", "missing column", id="missing-column"),
    pytest.param(_set(1, "quant", "quantum"), 1, "quantum", "unknown column", id="other-column"),
    pytest.param(_set(1, "note", "quant"), 1, "quant", "twice", id="column-twice"),
    pytest.param(lambda table: table[3].pop(), 4, None, "cells where", id="short-line"),
    pytest.param(lambda table: table[3].append("x"), 4, None, "cells where", id="long-line"),
]


@pytest.mark.parametrize(("edit", "line", "column", "text"), CASES)
def test_bad_value_is_named(
    edit: Edit, line: int, column: str | None, text: str, tmp_path: Path
) -> None:
    table = _table()
    edit(table)
    path = tmp_path / "decode_study.csv"
    path.write_text(_text(table))

    with pytest.raises(DataError) as caught:
        read_csv(path, DecodeRow)

    assert (caught.value.file, caught.value.line, caught.value.key) == (str(path), line, column)
    assert text in caught.value.what
    (problem,) = check_tables(tmp_path).problems
    assert (problem.line, problem.key, problem.what) == (line, column, caught.value.what)


def test_line_cut_off_in_its_last_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "decode_study.csv"
    path.write_text(_text(_table())[:-1])
    with pytest.raises(DataError, match="cut off") as caught:
        read_csv(path, DecodeRow)
    assert caught.value.line == 6


def test_open_quote_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "decode_study.csv"
    path.write_text(_text(_table()) + '"study/open quote,')
    with pytest.raises(DataError, match="not CSV"):
        read_csv(path, DecodeRow)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_other_encoding_is_named_by_line(encoding: str, tmp_path: Path) -> None:
    table = _table()
    _set(4, "note", "Prüfung")(table)
    path = tmp_path / "decode_study.csv"
    path.write_bytes(_text(table).encode(encoding))
    with pytest.raises(DataError, match="not UTF-8") as caught:
        read_csv(path, DecodeRow)
    assert caught.value.line == (4 if encoding == "latin-1" else 1)


@pytest.mark.parametrize("content", [b"", b"\n"], ids=["empty", "blank-line"])
def test_empty_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "decode_study.csv"
    path.write_bytes(content)
    (problem, *_) = check_tables(tmp_path).problems
    assert problem.line == 1


def test_every_problem_of_a_table_is_reported(tmp_path: Path) -> None:
    table = _table()
    _edits(_set(2, "n", "x"), _set(4, "tp", "0"), _set(5, "status", "good"))(table)
    (tmp_path / "decode_study.csv").write_text(_text(table))
    problems = check_tables(tmp_path).problems
    assert [(problem.line, problem.key) for problem in problems] == [
        (2, "n"),
        (4, "tp"),
        (5, "status"),
    ]


def test_duplicate_id_names_both_lines(tmp_path: Path) -> None:
    table = _table()
    _set(5, "row_id", table[1][0])(table)
    (tmp_path / "decode_study.csv").write_text(_text(table))
    (problem,) = check_tables(tmp_path).problems
    assert (problem.line, problem.key) == (5, "row_id")
    assert "line 2" in problem.what


@pytest.mark.parametrize(
    ("column", "text", "what"),
    [
        ("source", "somebody/unknown README", "not in sources.yaml"),
        ("evidence", "A4;Z9", "'Z9' is no finding"),
        ("gpu", "RTX 9090", "GPU catalogue"),
    ],
)
def test_dangling_reference_is_named(column: str, text: str, what: str, tmp_path: Path) -> None:
    table = _table()
    _set(3, column, text)(table)
    (tmp_path / "decode_study.csv").write_text(_text(table))
    (problem,) = check_tables(tmp_path).problems
    assert (problem.line, problem.key) == (3, column)
    assert what in problem.what


def test_unknown_table_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "decode_studie.csv").write_text(_text(_table()))
    (problem,) = check_tables(tmp_path).problems
    assert problem.hint == "did you mean decode_study?"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("sources: [\n", 2, "not YAML"),
        ("other: 1\n", 1, "needs a list"),
        ("sources:\n  - id: a\n    title: t\n    read: '2026'\n", 2, "needs a text"),
        ("sources:\n  - {id: a, title: t, licence: l, read: r, who: me}\n", 2, "unknown key"),
        ("sources:\n" + 2 * "  - {id: a, title: t, licence: l, read: r}\n", 3, "twice"),
    ],
    ids=["syntax", "no-list", "missing-key", "unknown-key", "twice"],
)
def test_broken_sources_are_named(text: str, line: int, what: str, tmp_path: Path) -> None:
    (tmp_path / "sources.yaml").write_text(text)
    problem = check_tables(tmp_path).problems[0]
    assert problem.file == str(tmp_path / "sources.yaml")
    assert problem.line == line
    assert what in problem.what


def test_check_leaves_with_exit_code_two_and_prints_no_traceback(tmp_path: Path) -> None:
    table = _table()
    _set(3, "aggregate_tps", "fast")(table)
    (tmp_path / "decode_study.csv").write_text(_text(table))
    result = CliRunner().invoke(command, ["check", str(tmp_path)], standalone_mode=False)
    assert result.return_value == 2
    assert f"{tmp_path / 'decode_study.csv'}:3: aggregate_tps: 'fast' is not a number" in (
        result.stderr
    )
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("column", "word", "hint"),
    [
        ("quant", "fp9", "fp8"),
        ("spec_method", "eagle9", "vocabulary"),
        ("kv_cache_dtype", "q4", "q4_0"),
        ("date", "2026-13-45", ""),
        ("date", "May", ""),
        ("checkpoint", "Qwen/Qwen3.6-27B-FP9", ""),
        ("image", "repne/vllm:v99", ""),
        ("gpu", "RTX PRO 7000", ""),
    ],
)
def test_word_that_no_table_knows_is_named(
    column: str, word: str, hint: str, tmp_path: Path
) -> None:
    table = _table()
    _set(5, column, word)(table)
    (tmp_path / "decode_study.csv").write_text(_text(table))

    (problem,) = check_tables(tmp_path).problems

    assert (problem.line, problem.key) == (5, column)
    assert repr(word) in problem.what
    assert hint in (problem.hint or "")
