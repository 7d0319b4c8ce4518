"""``data accuracy``: text, JSON and Markdown of one report, and the README shows it as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from qwendeploy.cli.data_accuracy import TABLES, command
from qwendeploy.reporting.accuracy import (
    AccuracyReport,
    AccuracyTable,
    Column,
    Goal,
    as_document,
    as_markdown,
    as_text,
)
from qwendeploy.reporting.accuracy_sections import SECTIONS, accuracy_report

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"
QUICK = ("speed_sessions", "speed_cells", "memory", "regret")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_sessions_come_first_and_every_table_can_be_asked_for() -> None:
    assert next(iter(SECTIONS)) == "speed_sessions"
    assert tuple(SECTIONS) == TABLES


def test_json_holds_fractions_goals_and_nothing_else() -> None:
    arguments = [part for name in QUICK for part in ("--table", name)]
    document = json.loads(run("--json", *arguments))
    assert document["schema"] == "qwendeploy/accuracy"
    assert tuple(document["tables"]) == QUICK
    pooled = document["tables"]["speed_cells"]["rows"][0]
    assert pooled["name"] == "all series"
    assert 0 < pooled["median"] < 0.02 and 0 < pooled["half_width"] < 0.07
    assert {"n", "p90", "max", "coverage", "winkler", "floor_median", "inner_n", "edge_p90"} <= set(
        pooled
    )
    assert document["goals"] and all(
        goal["met"] for goal in document["goals"] if goal["name"].startswith("speed")
    )


def test_text_shows_per_cent_and_says_what_was_missed() -> None:
    text = run("--table", "speed_cells", "--table", "regret")
    assert "Decode rate, leave one cell out" in text
    assert "met    speed: pooled median" in text
    assert text.rstrip().splitlines()[-1].startswith("next: qwendeploy")


def test_running_twice_prints_the_same() -> None:
    assert run("--json", "--table", "regret") == run("--json", "--table", "regret")


def test_two_forms_at_once_are_refused() -> None:
    result = CliRunner().invoke(command, ["--json", "--markdown"])
    assert result.exit_code == 2
    assert "mutually exclusive" in result.output


def test_an_unknown_table_is_refused_by_name() -> None:
    result = CliRunner().invoke(command, ["--table", "speeds"])
    assert result.exit_code == 2
    assert "speeds" in result.output


REPORT = AccuracyReport(
    (
        AccuracyTable(
            "regret",
            "Title",
            "how to read it",
            (Column("name", "name"), Column("mean", "mean", True), Column("right", "right")),
            (("a long name " * 6, 0.0123, True), ("b", None, False)),
        ),
    ),
    (Goal("small enough", 0.05, 0.04), Goal("large enough", 0.9, 0.8, at_least=True)),
)


def test_the_three_views_show_the_same_values() -> None:
    text, document, markdown = as_text(REPORT), as_document(REPORT), as_markdown(REPORT)
    assert "1.2" in text and "…" in text and "MISSED large enough: 80.0 % (≥ 90.0 %)" in text
    assert document["tables"]["regret"]["rows"][0]["mean"] == 0.0123
    assert document["tables"]["regret"]["rows"][1]["mean"] is None
    assert [goal["met"] for goal in document["goals"]] == [True, False]
    assert "| b |  |" in markdown
    assert "1 of 2 goals met; missed: large enough 80.0 % (goal 90.0 %)." in markdown


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_lines_carry_no_trailing_space(form: str) -> None:
    shown = as_text(REPORT) if form == "text" else as_markdown(REPORT)
    assert all(line == line.rstrip() for line in shown.splitlines())


NUMBER = re.compile(r"\d+(?:\.\d+)?")


def test_the_readme_shows_the_tables_as_they_are() -> None:
    readme = README.read_text(encoding="utf-8")
    assert BEGIN in readme and END in readme, f"README.md lacks {BEGIN} … {END}"
    shown = readme.split(BEGIN)[1].split(END)[0].strip()
    wanted = as_markdown(accuracy_report()).strip()
    stale = "README.md is not current: run scripts/update readme"
    assert NUMBER.sub("#", shown) == NUMBER.sub("#", wanted), stale
    # Another processor's linear algebra may round a figure to the neighbouring tenth.
    for there, here in zip(NUMBER.findall(shown), NUMBER.findall(wanted), strict=True):
        assert float(there) == pytest.approx(float(here), rel=0.02, abs=0.15), stale
