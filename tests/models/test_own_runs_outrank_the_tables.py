"""A run of this very machine changes its plan; forgotten again, nothing of it is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran
from plan_samples import machine, sample_plan

from qwendeploy.documents import MigDevice
from qwendeploy.documents.base import Tool
from qwendeploy.documents.files import read_plan
from qwendeploy.documents.identity import machine_id
from qwendeploy.documents.plan import Plan
from qwendeploy.documents.run import RequestCounts, RunDocument, ServerFacts, Step, Window
from qwendeploy.engines.vllm.boot_log import BootLog
from qwendeploy.figures import Figure, Kind, exact
from qwendeploy.running.evidence import pool_row
from qwendeploy.tables.own_pools import add_pool

MACHINE = ("--gpu", "RTX PRO 6000 Blackwell Workstation", "--gpus", "2", "--driver", "590.48.01")
ASKED = ("--ctx", "256k", "--c", "32")
BOOT = "1796000000.25"


@dataclass
class Box:
    """A machine with a plan and the runs that were made of it."""

    run: Callable[..., Ran]
    folder: Path
    made: int = 0

    def plan(self, *settings: str, machine: tuple[str, ...] = MACHINE) -> Plan:
        path = self.folder / "plan.yaml"
        ran = self.run("recommend", *machine, *ASKED, *settings, "-o", path, "--force")
        assert ran.code == 0, ran.err
        return read_plan(path)

    def imports(self, plan: Plan, rate: float, **changes: Any) -> str:
        """Import a run of the plan last written; return its import's id."""
        self.made += 1
        path = self.folder / f"run{self.made}.json"
        document = measured(plan, rate, run_id=f"r{self.made}", **changes)
        path.write_text(document.model_dump_json(by_alias=True))
        ran = self.run("data", "import", path, "--plan", self.folder / "plan.yaml", "--json")
        assert ran.code == 0, ran.err
        return str(json.loads(ran.out)["id"])

    def forgets(self, *names: str) -> None:
        for name in names:
            assert self.run("data", "forget", name).code == 0


@pytest.fixture
def box(run: Callable[..., Ran], tmp_path: Path) -> Box:
    return Box(run, tmp_path)


def measured(
    plan: Plan,
    rate: float,
    *,
    run_id: str,
    concurrency: int | None = None,
    context: int | None = None,
    boot: str = BOOT,
    machine: str | None = None,
    blocks: int | None = None,
) -> RunDocument:
    """Return the run of a plan that decoded at ``rate``, two windows 0.2 % apart."""
    point = plan.operating_point
    figure = Figure(
        value=rate, unit="tok/s", low=rate * 0.99, high=rate * 1.01, kind=Kind.MEASURED_HERE,
        source="run", n=2,
    )  # fmt: skip
    windows = tuple(
        Window(
            start_s=5.0 * at, duration_s=5, tokens=5 * rate, aggregate_tps=rate * factor,
            tpot_ms=23.0, running_low=concurrency or point.concurrency,
        )
        for at, factor in enumerate((0.999, 1.001))
    )  # fmt: skip
    step = Step(
        name="operating point",
        shape="decode",
        concurrency=concurrency or point.concurrency,
        context=point.context if context is None else context,
        contexts=point.contexts,
        status="complete",
        steady=True,
        requests=RequestCounts(sent=32, cancelled=32),
        windows=windows,
        figures={"aggregate_decode_tps": figure},
    )
    return RunDocument(
        created="2026-11-30T10:00:00Z",
        tool=Tool(version="0.1.0"),
        run_id=run_id,
        status="complete",
        plan_id=plan.plan_id,
        machine_id=machine or machine_id(plan.machine),
        server=ServerFacts(
            base_url="http://127.0.0.1:8000", model="m", boot_id=boot, kv_pool_blocks=blocks
        ),
        figures={
            "kv_pool_blocks": exact(blocks, "blocks", kind=Kind.MEASURED_HERE, source="server")
            if blocks
            else None
        },
        steps=(step,),
    )


def rate_of(plan: Plan) -> Figure:
    rate = plan.predictions.aggregate_decode_tps
    assert rate is not None
    return rate


def content(plan: Plan) -> dict[str, Any]:
    return plan.model_dump(mode="json", exclude={"created"})


def test_run_of_this_machine_stands_for_its_point(box: Box) -> None:
    before = box.plan()
    box.imports(before, 1250.0)
    after = rate_of(box.plan())

    assert after.kind is Kind.MEASURED_HERE
    assert after.value == 1250.0
    assert after.half_width == pytest.approx(0.05, abs=0.005)
    assert f"boot {BOOT}" in after.source
    assert rate_of(before).half_width > after.half_width


def test_runs_that_disagree_are_all_in_the_band(box: Box) -> None:
    option = (
        *("--image", "repne/vllm:v13", "--quant", "fp8", "--tp", "2"),
        *("--spec", "mtp", "--spec-tokens", "3"),
    )
    near = rate_of(box.plan(*option, "--c", "24"))
    plan = box.plan(*option)
    known = rate_of(plan)
    for rate, boot in ((known.value, "1796000000.25"), (known.value / 2, "1796000900.25")):
        box.imports(plan, rate, boot=boot)
    after, beside = rate_of(box.plan(*option)), rate_of(box.plan(*option, "--c", "24"))

    assert after.kind is Kind.MEASURED_HERE
    assert after.value == pytest.approx(known.value * 0.75)
    assert after.low <= known.value / 2 and after.high >= known.value
    assert "disagree" in after.source
    assert near.value / 2 < beside.value < near.value


def test_derived_figures_follow_the_run(box: Box) -> None:
    plan = box.plan()
    box.imports(plan, 1250.0)
    figures = box.plan().predictions
    assert figures.per_user_decode_tps is not None and figures.tpot_ms is not None
    assert figures.per_user_decode_tps.value == pytest.approx(1250 / 32)
    assert figures.tpot_ms.value == pytest.approx(32000 / 1250)
    assert figures.tpot_ms.kind is Kind.MEASURED_HERE


def test_forgetting_restores_the_former_plan_exactly(box: Box) -> None:
    before = box.plan()
    first = box.imports(before, 900.0, blocks=2300)
    second = box.imports(before, 95.0, concurrency=1)
    assert content(box.plan()) != content(before)
    box.forgets(first, second)
    assert content(box.plan()) == content(before)


def test_nearby_points_move_and_distant_ones_less(box: Box) -> None:
    before = box.plan()
    near, far = ("--c", "24"), ("--c", "1")
    asked: tuple[tuple[str, ...], ...] = (near, far)
    was = {settings: rate_of(box.plan(*settings)) for settings in asked}
    box.plan()
    box.imports(before, rate_of(before).value * 0.93)
    now = {settings: rate_of(box.plan(*settings)) for settings in asked}

    def moved(settings: tuple[str, ...]) -> float:
        return 1 - now[settings].value / was[settings].value

    assert 0.03 < moved(near) < 0.07
    assert 0 <= moved(far) < moved(near)
    assert "from own run-" in now[near].source and f"boot {BOOT}" in now[near].source
    assert was[near].kind is Kind.TRANSFERRED and now[near].kind is Kind.EXTRAPOLATED
    assert now[near].half_width < was[near].half_width


def test_another_machine_with_the_same_card_is_another_session(box: Box) -> None:
    image = ("--image", "repne/vllm:v13")
    before = box.plan(*image)
    value = rate_of(before).value
    box.imports(before, value * 0.9, machine="0123456789ab")
    after = rate_of(box.plan(*image))

    assert after.kind is rate_of(before).kind
    assert value * 0.9 < after.value < value
    assert after.half_width == pytest.approx(rate_of(before).half_width, rel=0.02)


def test_three_starts_speak_for_themselves(box: Box) -> None:
    plan = box.plan()
    for at, rate in enumerate((1290.0, 1300.0, 1310.0)):
        box.imports(plan, rate, boot=f"179600000{at}.00")
    after = rate_of(box.plan())
    assert (after.value, after.n) == (1300.0, 3)
    assert after.half_width == pytest.approx(2.92 * 10 * (4 / 3) ** 0.5 / 1300, rel=1e-3)


def test_runs_of_one_start_are_one_observation(box: Box) -> None:
    plan = box.plan()
    for rate in (1290.0, 1300.0, 1310.0):
        box.imports(plan, rate)
    after = rate_of(box.plan())
    assert (after.value, after.n) == (1300.0, 1)
    assert after.half_width >= 0.05


def test_pool_read_back_replaces_the_estimate(box: Box) -> None:
    before = box.plan()
    box.imports(before, 1300.0, blocks=2350)
    pool = box.plan().predictions.kv_pool_blocks
    assert pool is not None
    assert pool.kind is Kind.MEASURED_HERE
    assert pool.value == pytest.approx(2350, abs=2)
    assert pool.half_width < 0.005


def test_pool_read_back_moves_the_memory_of_other_options(box: Box) -> None:
    before = box.plan()
    image = ("--image", str(before.option.image))  # builds differ in what they leave
    settings = ("--quant", "bf16", "--spec", "none", "--typical-ctx", "16k", *image)
    other = box.plan(*settings)
    box.plan()
    box.imports(before, 1300.0, blocks=2300)
    moved = box.plan(*settings).predictions.kv_pool_blocks
    was = other.predictions.kv_pool_blocks
    assert moved is not None and was is not None
    assert moved.value < was.value
    assert moved.kind is was.kind
    assert "own starts on this machine" in moved.source


def test_pool_of_an_own_start_counts_until_it_is_forgotten(box: Box) -> None:
    before = box.plan()
    log = BootLog(engine_version=before.option.engine_version)
    now = datetime(2026, 11, 30, tzinfo=UTC)
    row = pool_row(before, log, 2350, now=now, boot_id=BOOT)
    assert add_pool(row)
    pool = box.plan().predictions.kv_pool_blocks
    assert pool is not None and pool.value == pytest.approx(2350, abs=2)
    assert pool.kind is Kind.MEASURED_HERE
    assert row.row_id in pool.source
    # by this a verdict knows that the start's own run may not confirm the figure
    assert f"boot {BOOT}" in pool.source
    listed = json.loads(box.run("data", "list", "--json").out)["pools"]
    assert [(pool["row_id"], pool["num_blocks"]) for pool in listed] == [(row.row_id, 2350)]
    assert row.row_id in box.run("data", "list").out
    assert "2350" in box.run("data", "show", "pools_own").out
    box.forgets(row.row_id)
    assert content(box.plan()) == content(before)
    assert box.run("data", "forget", row.row_id).code == 2


def test_pool_of_a_slice_is_kept_with_the_memory_of_the_slice() -> None:
    card = machine(1).gpus[0].model_copy(update={"mig": True})
    where = machine(1).model_copy(
        update={"gpus": (card,), "mig_devices": (MigDevice(gpu=0, gi=1, memory_mib=40448),)}
    )
    plan = sample_plan(tp=1, machine=where)

    row = pool_row(plan, BootLog(), 800, now=datetime(2026, 11, 30, tzinfo=UTC))

    assert row.memory_mib == 40448


def test_a_slow_option_loses_to_the_next(box: Box) -> None:
    before = box.plan()
    assert not before.alternatives[0].option.fork
    box.imports(before, rate_of(before).value * 0.6)
    after = box.plan()
    assert after.option.image != before.option.image or after.option != before.option


def test_plan_names_the_runs_it_rests_on(box: Box) -> None:
    name = box.imports(box.plan(), 1300.0)
    assert any(name in reason for reason in box.plan().reasons)


def test_run_of_another_plan_is_refused(box: Box) -> None:
    other = box.plan("--typical-ctx", "16k")
    box.plan()
    path = box.folder / "other.json"
    path.write_text(measured(other, 1300.0, run_id="x").model_dump_json(by_alias=True))
    ran = box.run("data", "import", path, "--plan", box.folder / "plan.yaml")
    assert ran.code == 2
    assert other.plan_id in ran.err


def test_run_of_a_server_that_ran_something_else_is_refused(box: Box) -> None:
    plan = box.plan()
    run = measured(plan, 1300.0, run_id="x")
    assert run.server is not None
    other = run.server.model_copy(update={"root": "Qwen/Qwen3.6-27B"})
    path = box.folder / "other.json"
    path.write_text(run.model_copy(update={"server": other}).model_dump_json(by_alias=True))
    ran = box.run("data", "import", path, "--plan", box.folder / "plan.yaml")
    assert ran.code == 2
    assert "differs from the plan" in ran.err
    assert "measured-here" not in box.plan().model_dump_json()
