"""Each predicted time is judged by a measurement of the same thing, not of its neighbour."""

from __future__ import annotations

from pathlib import Path

import pytest
from known import known_server
from measuring import POOL, small_plan, verified

from qwendeploy.documents import Plan, Predictions
from qwendeploy.verification.loads.pauses import longest_pauses

from plan_samples import figure  # isort: skip


def with_point(plan: Plan, predicted: dict[str, float], **point: object) -> Plan:
    figures = {name: figure(value, "ms", 0.19) for name, value in predicted.items()}
    return plan.model_copy(
        update={
            "operating_point": plan.operating_point.model_copy(update=point),
            "predictions": plan.predictions.model_copy(update=figures),
        }
    )


def cached(plan: Plan) -> Plan:
    return plan.model_copy(update={"option": plan.option.model_copy(update={"prefix_cache": True})})


def test_warm_prompts_arrive_together(tmp_path: Path) -> None:
    """Prompts in turn, 100 ms each: of four together the mean waits for two and a half."""
    plan = cached(
        with_point(
            small_plan(400, concurrency=4), {"ttft_warm_ms": 250}, contexts="shared",
            prefix_cache=True, isl=600,
        )
    )  # fmt: skip
    settings = (*POOL, "--prefix-cache", "--block-tokens", "50", "--ttft-ms", "100",
                "--serial-prefill")  # fmt: skip
    with known_server(tmp_path, *settings) as known:
        run, report = verified(known.url, plan, repeats=3, calm=True)
    warm, cold = run.figures["ttft_warm_ms"], run.figures["ttft_cold_ms"]
    assert warm is not None and cold is not None
    assert cold.value == pytest.approx(100, rel=0.15)
    assert warm.value == pytest.approx(250, rel=0.15)
    verdicts = {verdict.quantity: verdict for verdict in report.verdicts}
    assert verdicts["ttft_warm_ms"].outcome == "confirmed", verdicts["ttft_warm_ms"]


def test_first_tokens_are_of_the_plans_prompts(tmp_path: Path) -> None:
    """Contexts of 2,000 tokens whose prompts have 500, at 1,000 tokens a second."""
    plan = with_point(small_plan(), {"ttft_cold_ms": 500}, context=2000, isl=500, osl=1500)
    with known_server(tmp_path, *POOL, "--ttft-ms", "1", "--prefill-tps", "1000") as known:
        run, _ = verified(known.url, plan, repeats=2, windows=2)
    cold = run.figures["ttft_cold_ms"]
    assert cold is not None and cold.value == pytest.approx(500, rel=0.1)


def test_requests_in_a_loop_give_first_token_pace_and_pauses(tmp_path: Path) -> None:
    """No step is made while a prompt is worked on: others pause for it."""
    plan = with_point(
        small_plan(200, concurrency=2),
        {"ttft_end_to_end_ms": 150, "tpot_end_to_end_ms": 11, "stall_ms": 25},
        isl=540,
        osl=60,
    )
    with known_server(tmp_path, *POOL, "--ttft-ms", "150") as known:
        run, report = verified(known.url, plan, shapes=("mixed",), loop_s=4.0, repeats=2)
    verdicts = {verdict.quantity: verdict for verdict in report.verdicts}
    loop = next(step for step in run.steps if step.shape == "mixed")
    for name in ("ttft_end_to_end_ms", "tpot_end_to_end_ms", "stall_ms"):
        measured = loop.figures[name]
        assert measured is not None and measured.n > 1
        assert verdicts[name].measured == measured
        assert verdicts[name].decisive is False
    first = verdicts["ttft_end_to_end_ms"].measured
    assert first is not None and first.value == pytest.approx(165, rel=0.1)


def test_a_pause_is_the_longest_gap_around_a_prompt() -> None:
    times = [0.0, 0.1, 0.2, 0.9, 1.0, 1.1]
    prompts = [(0.25, 0.8), (0.05, 0.15), (0.15, 0.95), (2.0, 3.0), (-2.0, -1.0)]
    pauses = longest_pauses(prompts, [times, []])
    assert pauses == [pytest.approx(0.7), pytest.approx(0.1), pytest.approx(0.7), None, None]


def test_a_loop_shares_prompts_as_the_plan_expects(tmp_path: Path) -> None:
    plan = cached(
        with_point(small_plan(200, concurrency=2), {}, isl=540, osl=60, prefix_cache=True,
                   prefix_hit=0.5)
    )  # fmt: skip
    settings = (*POOL, "--prefix-cache", "--block-tokens", "20")
    with known_server(tmp_path, *settings) as known:
        run, _ = verified(known.url, plan, shapes=("mixed",), loop_s=2.0, repeats=1)
    loop = next(step for step in run.steps if step.shape == "mixed")
    hit = loop.server["prefix_hit_rate"]
    assert hit is not None and 0.35 < hit < 0.55


def test_every_predicted_figure_can_be_judged() -> None:
    from qwendeploy.verification.judging.quantities import JUDGED

    figures = set(Predictions.model_fields) - {"reasons"}
    assert set(JUDGED) == figures
