"""The plan grid: every change of advice is shown, and nothing else is."""

from __future__ import annotations

import csv

import plan_grid
import pytest

ROW = {
    "scenario": "--gpu X --ctx 32k",
    "option": "image fp8 mtp3",
    "settings": "0123456789ab",
    "runner_up": "image fp8 none",
    "aggregate_decode_tps": "100 90 110 measured",
}


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        pytest.param({"option": "image fp8 none"}, "another option", id="option"),
        pytest.param({"settings": "ba9876543210"}, "another settings", id="a-flag"),
        pytest.param({"runner_up": ""}, "another runner_up", id="runner-up"),
        pytest.param(
            {"aggregate_decode_tps": "120 108 132 measured"}, "median +20.0%", id="a-rate"
        ),
        pytest.param(
            {"aggregate_decode_tps": "100 80 110 measured"}, "aggregate_decode_tps", id="a-band"
        ),
        pytest.param(
            {"aggregate_decode_tps": "100 90 110 estimated"}, "aggregate_decode_tps", id="a-kind"
        ),
        pytest.param({"aggregate_decode_tps": ""}, "+ nothing", id="a-figure-is-gone"),
        pytest.param({"kv_pool_blocks": "7 7 7 measured"}, "- nothing", id="a-figure-is-new"),
    ],
)
def test_a_change_is_shown(change: dict[str, str], shown: str) -> None:
    lines = plan_grid.differences([ROW], [{**ROW, **change}])
    assert shown in "\n".join(lines)
    assert "recommend --gpu X --ctx 32k" in "\n".join(lines)


def test_rounding_is_no_change() -> None:
    assert plan_grid.differences([ROW], [ROW]) == []
    near = {**ROW, "aggregate_decode_tps": "100.01 90.001 110.01 measured"}
    assert plan_grid.differences([ROW], [near]) == []


def test_scenarios_that_come_and_go_are_named() -> None:
    other = {**ROW, "scenario": "--gpu Y --ctx 8k"}
    lines = plan_grid.differences([ROW], [other])
    assert lines == [
        "1 scenarios are new: --gpu Y --ctx 8k",
        "1 scenarios are gone: --gpu X --ctx 32k",
    ]


def test_the_reference_is_what_the_grid_asks() -> None:
    with plan_grid.REFERENCE.open(encoding="utf-8") as file:
        stored = [row["scenario"] for row in csv.DictReader(file)]
    assert stored == list(plan_grid.scenarios())
    assert len(stored) >= 1500


@pytest.mark.parametrize("number", [0, 400, 1300, -1])
def test_a_planned_scenario_is_the_references(number: int) -> None:
    with plan_grid.REFERENCE.open(encoding="utf-8") as file:
        stored = list(csv.DictReader(file))[number]
    row, _ = plan_grid.planned(stored["scenario"])
    assert plan_grid.differences([stored], [row]) == []
