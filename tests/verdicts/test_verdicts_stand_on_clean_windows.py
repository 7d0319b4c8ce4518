"""What spoils a load spoils its own verdict: foreign traffic, rungs of a ladder, boots, prompts."""

from __future__ import annotations

from typing import Any

import pytest
from measuring import small_plan
from plan_samples import figure

from qwendeploy.documents import (
    Cell,
    Plan,
    RequestCounts,
    RunDocument,
    ServerFacts,
    Step,
    Tool,
    Window,
)
from qwendeploy.documents.run import boot_name
from qwendeploy.engines.metrics import parse_metrics, together
from qwendeploy.verification.judging.boots import pool_runs
from qwendeploy.verification.judging.doubts import doubt_of, undecidable
from qwendeploy.verification.loads.decode_figures import judged_windows
from qwendeploy.verification.verifying import report_on

RATE = "aggregate_decode_tps"


def window(rate: float = 300, **more: Any) -> Window:
    return Window(
        start_s=0, duration_s=8, tokens=8 * rate, aggregate_tps=rate, tpot_ms=10, running_low=3,
        **more,
    )  # fmt: skip


def step(*windows: Window, rate: float = 300, **more: Any) -> Step:
    usual: dict[str, Any] = {
        "name": "decode", "shape": "decode", "concurrency": 3, "context": 600,
        "contexts": "separate", "status": "complete", "steady": True,
        "windows": windows or (window(rate),) * 3,
        "figures": {RATE: figure(rate, "tok/s", 0.01)},
        "requests": RequestCounts(sent=3, cancelled=3),
    }  # fmt: skip
    return Step.model_validate({**usual, **more})


def run(*steps: Step, boot: str = "1.00", **more: Any) -> RunDocument:
    usual: dict[str, Any] = {
        "created": "2026-11-30T12:00:00Z", "tool": Tool(version="0"), "run_id": "r",
        "status": "complete", "steps": steps, "figures": steps[0].figures,
        "operating_point": {"concurrency": 3, "context": 600, "contexts": "separate",
                            "content": "mixed"},
        "server": ServerFacts(base_url="http://h", model="known", boot_id=boot),
    }  # fmt: skip
    return RunDocument.model_validate({**usual, **more})


def laddered() -> Plan:
    plan = small_plan()
    one = plan.predictions.model_copy(update={RATE: figure(100, "tok/s", 0.12)})
    return plan.model_copy(update={"cells": (Cell(concurrency=1, context=600, figures=one),)})


BUSY = window(others=True, server_running_high=5)


def outcomes(found: RunDocument, plan: Plan | None = None) -> dict[str, tuple[str, str]]:
    report = report_on(found, plan or laddered(), rate_only=True)
    return {v.quantity: (v.outcome, v.reason) for v in report.verdicts if v.measured}


def test_quiet_rungs_do_not_hide_others_at_the_operating_point() -> None:
    rung = step(concurrency=1, rate=100)
    found = outcomes(run(step(BUSY, BUSY, BUSY), rung))
    assert found[RATE] == (
        "inconclusive",
        "the server handled other clients' requests in every window",
    )
    assert found[f"{RATE} c=1 context=600"][0] == "confirmed"


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param({"windows": (BUSY,) * 3}, id="others"),
        pytest.param({"steady": False}, id="unsteady"),
        pytest.param({"client_limit": "the client used 97% of a core"}, id="client"),
        pytest.param({"server": {"tokens_over_client": 1.4}}, id="counter"),
        pytest.param(
            {"requests": RequestCounts(sent=9, failed=1, failures={"reset": 1})}, id="cut"
        ),
    ],
)
def test_a_spoilt_rung_spoils_its_own_verdict_alone(spoilt: dict[str, Any]) -> None:
    found = outcomes(run(step(), step(concurrency=1, rate=100, **spoilt)))
    assert found[RATE][0] == "confirmed"
    assert found[f"{RATE} c=1 context=600"][0] == "inconclusive"


def test_windows_beside_others_are_left_out_while_enough_are_left() -> None:
    alone = [window(300), window(301)]
    assert judged_windows([*alone, BUSY]) == alone
    assert judged_windows([BUSY, window(300)]) == [BUSY, window(300)]
    assert doubt_of(step(*alone, BUSY)) == ""
    assert "other clients' requests" in doubt_of(step(BUSY, window()))


@pytest.mark.parametrize(
    ("failures", "doubt"),
    [
        pytest.param({"reset": 1}, "failed 1 of 32", id="reset"),
        pytest.param({"cut": 1}, "failed 1 of 32", id="cut"),
        pytest.param({"status 500": 1}, "refused 1 of 32", id="refused"),
        pytest.param({"timeout_first": 1}, "", id="waited-in-vain"),
    ],
)
def test_a_server_that_drops_streams_is_not_confirmed_by_the_rest(
    failures: dict[str, int], doubt: str
) -> None:
    counts = RequestCounts(sent=32, failed=1, failures=failures)
    assert doubt in doubt_of(step(requests=counts))
    assert bool(doubt_of(step(requests=counts))) is bool(doubt)


@pytest.mark.parametrize(
    ("counted", "asked", "told"),
    [(512, 32000, True), (31000, 32000, False), (90, 48, False), (None, 32000, False)],
)
def test_prompts_that_came_out_otherwise_decide_nothing(
    counted: float | None, asked: float, told: bool
) -> None:
    found = run(step(prompt_tokens=counted, prompt_asked=asked))
    assert ("tokens per prompt instead of" in undecidable(found)) is told
    report = report_on(found, small_plan(), rate_only=True)
    assert ("other-prompts" in [cause.id for cause in report.causes]) is told


def test_rungs_over_boots_are_one_verdict_with_what_one_boot_allows() -> None:
    """Three boots that agree confirm a band of ±3 %; a rung of one boot cannot."""
    plan = laddered()
    narrow = plan.predictions.model_copy(update={RATE: figure(100, "tok/s", 0.03)})
    plan = plan.model_copy(update={"cells": (Cell(concurrency=1, context=600, figures=narrow),)})
    rung = f"{RATE} c=1 context=600"
    boots = [
        run(step(), step(concurrency=1, rate=rate), boot=f"{rate}") for rate in (99.5, 100, 100.5)
    ]
    pooled = pool_runs(boots)
    report = report_on(pooled, plan, rate_only=True)
    assert [v.outcome for v in report.verdicts if v.quantity == rung] == ["confirmed"]
    once = [run(step(), boot="a"), boots[0], run(step(), boot="b")]
    assert outcomes(pool_runs(once), plan)[rung][0] == "inconclusive"


def test_a_figure_of_one_of_three_boots_keeps_its_boot_allowance() -> None:
    narrow = small_plan(300, 0.03)
    boots = [run(step(), boot=f"{i}") for i in range(3)]
    boots[1:] = [one.model_copy(update={"figures": {RATE: None}}) for one in boots[1:]]
    assert outcomes(pool_runs(boots), narrow)[RATE][0] == "inconclusive"


@pytest.mark.parametrize(
    ("spoilt", "outcome", "reason"),
    [
        pytest.param({}, "confirmed", "inside the predicted band", id="well"),
        pytest.param(
            {"requests": RequestCounts(sent=90, failed=9, failures={"status 500": 9})},
            "inconclusive", "refused 9 of 90", id="refused",
        ),
        pytest.param({"status": "incomplete"}, "inconclusive", "stopped after", id="cut"),
        pytest.param({"client_limit": "late"}, "inconclusive", "the bottleneck", id="client"),
    ],
)  # fmt: skip
def test_whole_requests_are_judged_on_their_own_load(
    spoilt: dict[str, Any], outcome: str, reason: str
) -> None:
    """What went wrong with the decode load is not theirs, what went wrong with theirs is."""
    name = "output_tps_end_to_end"
    plan = small_plan()
    point = plan.operating_point.model_copy(update={"isl": 500, "osl": 100})
    predictions = plan.predictions.model_copy(update={name: figure(250, "tok/s", 0.15)})
    plan = plan.model_copy(update={"operating_point": point, "predictions": predictions})
    figures = {name: figure(250, "tok/s", 0.01)}
    loop = step(name="mixed", shape="mixed", steady=None, figures=figures, **spoilt)
    measured = run(step(steady=False), loop)
    measured = measured.model_copy(update={"figures": {**measured.figures, **figures}})
    found = outcomes(measured, plan)
    assert found[RATE][0] == "inconclusive"
    assert found[name][0] == outcome and reason in found[name][1]


def test_text_of_another_kind_is_not_judged_on_the_rungs_either() -> None:
    point = {"concurrency": 3, "context": 600, "contexts": "separate", "content": "code"}
    report = report_on(
        run(step(), step(concurrency=1, rate=100), operating_point=point), laddered()
    )
    for verdict in report.verdicts:
        if verdict.quantity.startswith(RATE):
            assert verdict.predicted is None
            assert "this run used code" in verdict.reason


def test_the_name_of_a_boot_tells_every_set_of_replicas_apart() -> None:
    first = together([parse_metrics(f"process_start_time_seconds {t}\n") for t in (100.25, 300.75)])
    second = together(
        [parse_metrics(f"process_start_time_seconds {t}\n") for t in (200.25, 200.75)]
    )
    assert first.boot_id == "100.25+300.75" != second.boot_id
    assert first.started != second.started
    assert boot_name(()) is None
    assert boot_name((1796000000.25,)) == "1796000000.25"


@pytest.mark.parametrize(
    ("boot", "known_again"), [("12.50", True), ("2.50", False), ("12.5", False), ("9.00", False)]
)
def test_a_boot_is_known_again_by_its_whole_name(boot: str, known_again: bool) -> None:
    plan = small_plan()
    rate = plan.predictions.aggregate_decode_tps
    assert rate is not None
    own = rate.model_copy(update={"source": "run x (boot 12.50)"})
    plan = plan.model_copy(update={"predictions": plan.predictions.model_copy(update={RATE: own})})
    outcome, reason = outcomes(run(step(), boot=boot), plan)[RATE]
    assert ("calibrated from this boot" in reason) is known_again
    assert (outcome == "inconclusive") is known_again
