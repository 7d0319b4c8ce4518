"""Ladders, cold prompts, whole requests, conversations and a soak, against the server's log."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from known import known_server, tokens_between
from measuring import POOL, small_plan, verified

from qwendeploy.documents import Cell, Plan, Predictions, RunDocument, Step
from qwendeploy.verification.loads.closed_loop import LoopLimits

from plan_samples import figure  # isort: skip


def step_of(run: RunDocument, shape: str) -> Step:
    (found,) = [step for step in run.steps if step.shape == shape]
    return found


def test_whole_requests_give_rate_latencies_and_goodput(tmp_path: Path) -> None:
    limits = LoopLimits(ttft_ms=500, tpot_ms=50, e2e_ms=1000)
    settings = ("--step-ms", "10", "--tokens", "2", "--ttft-ms", "50", "--prefill-tps", "10000")
    with known_server(tmp_path, *settings) as known:
        run, _ = verified(
            known.url, shapes=("mixed",), isl=500, osl=60, spread=0.2, loop_s=3.0,
            latency_limits=limits, concurrency=4, repeats=1,
        )  # fmt: skip
        sent = known.sent(at_least=20)
        rows = known.entries()
    step = step_of(run, "mixed")
    assert step.status == "complete"
    rate = step.figures["output_tps_end_to_end"]
    assert rate is not None
    start = sent[0][0]
    # the plateau by the server's log: the loop of four is the last stretch of the run
    full = [t for t, _ in sent]
    end = full[-1]
    true = tokens_between(sent, end - 2.5, end - 0.3) / 2.2
    assert start < end
    assert rate.value == pytest.approx(true, rel=0.1)
    assert run.figures["output_tps_end_to_end"] == rate
    goodput, requests = step.figures["goodput_rps"], step.figures["requests_rps"]
    assert goodput is not None and requests is not None
    assert goodput.value == requests.value > 3
    lengths = {row["prompt_tokens"] for row in rows if 380 < row["prompt_tokens"] < 640}
    assert len(lengths) > 4
    assert {spread.name for spread in step.distributions} == {"ttft_in_load", "tpot_in_load", "e2e"}


def test_limits_are_at_or_under_all(tmp_path: Path) -> None:
    with known_server(tmp_path, "--step-ms", "10", "--ttft-ms", "50") as known:
        run, _ = verified(
            known.url, shapes=("mixed",), isl=100, osl=20, loop_s=1.0, repeats=1,
            latency_limits=LoopLimits(ttft_ms=20),
        )  # fmt: skip
    goodput = step_of(run, "mixed").figures["goodput_rps"]
    assert goodput is not None and goodput.value == 0


def test_conversations_grow_and_hit_the_cache(tmp_path: Path) -> None:
    settings = ("--step-ms", "5", "--tokens", "4", "--prefix-cache", "--prefill-tps", "20000")
    with known_server(tmp_path, *settings) as known:
        run, _ = verified(
            known.url, shapes=("chat",), isl=800, osl=40, loop_s=3.0, repeats=1, concurrency=2
        )
        rows = known.entries(at_least=8)
    step = step_of(run, "chat")
    assert max(row["prompt_tokens"] for row in rows) > 3 * 800
    hits = step.server["prefix_hit_rate"]
    assert hits is not None and 0.4 < hits < 0.95
    spreads = {spread.name: spread for spread in step.distributions}
    assert spreads["ttft_later_turns"].n > spreads["ttft_first_turn"].n >= 1


def with_cells(plan: Plan) -> Plan:
    one = Predictions(aggregate_decode_tps=figure(100, "tok/s"))
    return plan.model_copy(update={"cells": (Cell(concurrency=1, context=600, figures=one),)})


def test_ladders_are_judged_where_the_plan_has_figures(tmp_path: Path) -> None:
    with known_server(tmp_path, *POOL) as known:
        run, report = verified(
            known.url,
            with_cells(small_plan()),
            ladder_c=(1, 2, 3),
            ladder_ctx=(1200, 9000),
            repeats=1,
            calm=True,
        )
    cells = [(s.concurrency, s.context) for s in run.steps if s.shape == "decode"]
    assert cells == [(3, 600), (1, 600), (2, 600), (3, 1200)]
    assert "ladder skips 9,000 tokens: the server allows 8,000 per request" in run.warnings
    found = {verdict.quantity: verdict for verdict in report.verdicts}
    assert found["aggregate_decode_tps c=1 context=600"].outcome == "confirmed"
    assert "not predicted" in found["aggregate_decode_tps c=2 context=600"].reason
    assert found["aggregate_decode_tps"].measured is not None
    assert found["aggregate_decode_tps"].measured.value == pytest.approx(300, rel=0.03)


def test_cold_prompts_cost_what_the_server_takes(tmp_path: Path) -> None:
    settings = ("--prefill-tps", "20000", "--ttft-ms", "10", "--max-model-len", "20000")
    with known_server(tmp_path, *settings) as known:
        run, _ = verified(known.url, shapes=("prompt",), repeats=1)
    prompts = {s.context: s for s in run.steps if s.shape == "prompt"}
    assert set(prompts) == {600, 1024, 4096, 16384}
    for context in (4096, 16384):
        cold = prompts[context].figures["ttft_cold_ms"]
        assert cold is not None and cold.value == pytest.approx(10 + context / 20, rel=0.08)
    own = run.figures["ttft_cold_ms"]
    assert own == prompts[600].figures["ttft_cold_ms"]


def test_a_soak_shows_a_falling_rate(tmp_path: Path) -> None:
    with known_server(tmp_path, "--tokens", "2", "--drift-per-minute", "3") as known:
        run, _ = verified(known.url, soak_s=4.0, repeats=1)
    soak = step_of(run, "soak")
    assert len(soak.windows) == 4
    assert soak.drift_per_minute is not None and soak.drift_per_minute < -0.3


@pytest.mark.parametrize(
    ("shape", "osl", "judged"),
    [
        pytest.param("mixed", 60, True, id="the-plans-requests"),
        pytest.param("mixed", 40, False, id="shorter-answers"),
        pytest.param("chat", 60, False, id="conversations"),
    ],
)
def test_whole_requests_are_judged_only_where_they_are_the_plans(
    tmp_path: Path, shape: Literal["mixed", "chat"], osl: int, judged: bool
) -> None:
    plan = small_plan()
    point = plan.operating_point.model_copy(update={"isl": 540, "osl": 60})
    predictions = plan.predictions.model_copy(
        update={"output_tps_end_to_end": figure(9000, "tok/s")}
    )
    plan = plan.model_copy(update={"operating_point": point, "predictions": predictions})
    with known_server(tmp_path, *POOL) as known:
        _, report = verified(known.url, plan, shapes=(shape,), isl=540, osl=osl, loop_s=1.5)
    verdict = next(one for one in report.verdicts if one.quantity == "output_tps_end_to_end")
    assert verdict.measured is not None
    assert verdict.outcome == ("refuted" if judged else "inconclusive"), verdict.reason
    assert judged or "540 tokens in and 60 out" in verdict.reason
