"""``data import run.json`` needs nothing that the run itself knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran
from test_own_runs_outrank_the_tables import MACHINE, Box, measured

from qwendeploy.documents import RunDocument, TimelinePoint


def written(folder: Path, run: RunDocument, **changes: Any) -> Path:
    path = folder / "run.json"
    path.write_text(run.model_copy(update=changes).model_dump_json(by_alias=True))
    return path


def watched(utilization: float) -> tuple[TimelinePoint, ...]:
    reading: dict[str, float | str | None] = {"index": 0.0, "utilization": utilization}
    return (TimelinePoint(t_s=1.0, streams=1, tokens=1.0, gpu=(reading,)),)


@pytest.fixture
def box(run: Callable[..., Ran], tmp_path: Path) -> Box:
    return Box(run, tmp_path)


def test_the_run_of_a_plan_needs_no_setting(box: Box) -> None:
    plan = box.plan()
    path = written(box.folder, measured(plan, 1250.0, run_id="r1"), plan=plan)
    ran = box.run("data", "import", path, "--json")
    assert ran.code == 0, ran.err
    shown = json.loads(box.run("data", "show", "decode_own", "--json").out)["rows"]
    assert len(shown) == 1
    assert shown[0]["gpu"] == "RTX PRO 6000 Blackwell Workstation"
    assert (shown[0]["gpu_count"], shown[0]["tp"]) == (2, plan.option.tp)
    assert shown[0]["checkpoint"] == plan.option.checkpoint
    assert box.plan().predictions.aggregate_decode_tps.kind.value == "measured-here"  # type: ignore[union-attr]


def test_what_is_stated_outranks_the_plan(box: Box) -> None:
    plan = box.plan()
    path = written(box.folder, measured(plan, 1250.0, run_id="r1"), plan=plan)
    assert box.run("data", "import", path, "--driver", "595.1").code == 0
    shown = json.loads(box.run("data", "show", "decode_own", "--json").out)["rows"]
    assert shown[0]["driver"] == "595.1"


def test_a_server_that_ran_otherwise_is_not_described_by_its_plan(box: Box) -> None:
    plan = box.plan()
    run = measured(plan, 1250.0, run_id="r1")
    assert run.server is not None
    other = run.server.model_copy(update={"max_model_len": 4096})
    path = written(box.folder, run, plan=plan, server=other)
    ran = box.run("data", "import", path)
    assert ran.code == 2
    assert "differs from the plan: max_model_len 4096" in ran.err
    assert box.run("data", "import", path, *MACHINE[:4], "--quant", "fp8").code == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({}, "keeps no copy of its plan", id="written-by-an-earlier-release"),
        pytest.param({"plan_id": None}, "made without a plan", id="no-plan"),
        pytest.param({"plan_id": None, "gpus": ("NVIDIA H200",) * 2}, "saw 2 GPUs", id="two-cards"),
        pytest.param(
            {"plan_id": None, "gpus": ("NVIDIA H200",), "timeline": watched(0.0)},
            "no GPU at work",
            id="idle-card-beside-a-tunnel",
        ),
    ],
)
def test_a_run_that_cannot_know_says_what_to_give(
    box: Box, changes: dict[str, Any], told: str
) -> None:
    path = written(box.folder, measured(box.plan(), 1250.0, run_id="r1"), **changes)
    ran = box.run("data", "import", path, "--quant", "fp8")
    assert ran.code == 2
    assert told in ran.err
    assert "--plan PLAN" in ran.err


def test_a_card_seen_at_work_is_the_runs(box: Box) -> None:
    run = measured(box.plan(), 1250.0, run_id="r1")
    path = written(box.folder, run, plan_id=None, gpus=("NVIDIA H200",), timeline=watched(0.98))
    ran = box.run("data", "import", path, "--quant", "fp8")
    assert ran.code == 0, ran.err
    shown = json.loads(box.run("data", "show", "decode_own", "--json").out)["rows"]
    assert shown[0]["gpu"].startswith("H200")
