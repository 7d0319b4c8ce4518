"""Prompt, answer and cache hits decide first token, pace and end-to-end rate of a plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from conftest import Ran

from qwendeploy.documents import Plan, Workload
from qwendeploy.documents.request import Pins, Request
from qwendeploy.evidence.prefill_speed import SMALLEST_STEP, STALL_LIMIT_MS
from qwendeploy.figures import Figure
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.planning.recommend import recommend
from qwendeploy.tables.gpus import gpus

STUDY_CARD = "RTX PRO 6000 Blackwell Workstation"


@cache
def plan(
    gpu: str = STUDY_CARD,
    count: int = 2,
    step: int | None = None,
    tp: int | None = None,
    **workload: Any,
) -> Plan:
    machine = stated_machine(gpu, count, catalogue=gpus())
    asked = {"concurrency": 8, "max_context": 32768, "isl": 16384, "osl": 1024} | workload
    return recommend(
        machine, Workload(**asked), Request(pins=Pins(max_num_batched_tokens=step, tp=tp))
    )


def figure(made: Plan, name: str) -> Figure:
    found = getattr(made.predictions, name)
    assert isinstance(found, Figure), made.predictions.reasons.get(name)
    return found


def test_longer_answers_raise_the_end_to_end_rate_towards_decode() -> None:
    short, long = plan(osl=256), plan(osl=8192)
    rates = [figure(made, "output_tps_end_to_end") for made in (short, long)]
    assert rates[0].value < rates[1].value < figure(long, "aggregate_decode_tps").value
    assert all(rate.low < rate.value < rate.high for rate in rates)


def test_pace_and_first_token_of_the_closed_loop_are_slower_than_alone() -> None:
    made = plan()
    assert figure(made, "tpot_end_to_end_ms").value > figure(made, "tpot_ms").value
    assert figure(made, "ttft_end_to_end_ms").value > figure(made, "ttft_cold_ms").value


def test_first_token_pace_and_rate_are_one_loop() -> None:
    """8 users, each always in flight: c = rate / osl · (TTFT + TPOT · osl)."""
    made = plan()
    seconds = figure(made, "ttft_end_to_end_ms").value + 1024 * (
        figure(made, "tpot_end_to_end_ms").value
    )
    users = figure(made, "output_tps_end_to_end").value / 1024 * seconds / 1000
    assert users == pytest.approx(8, rel=0.01)


@pytest.mark.parametrize("hit", [0.25, 0.5, 0.75])
def test_cache_hits_shorten_the_first_token_in_proportion(hit: float) -> None:
    def with_hit(share: float) -> Plan:
        return plan(prefix_cache="on", prefix_hit=share, tp=2)

    none, some = with_hit(0.0), with_hit(hit)
    cold = figure(none, "ttft_end_to_end_ms").value
    warm = figure(some, "ttft_end_to_end_ms").value
    assert warm < cold * (1 - hit) * 1.15
    assert figure(some, "output_tps_end_to_end").value > (
        figure(none, "output_tps_end_to_end").value
    )
    assert figure(some, "ttft_cold_ms").value == figure(none, "ttft_cold_ms").value
    assert some.operating_point.prefix_hit == hit


def test_hits_count_for_nothing_with_caching_off() -> None:
    off, none = plan(prefix_cache="off", prefix_hit=0.5), plan(prefix_cache="off")
    assert off.operating_point.prefix_hit == 0
    assert figure(off, "ttft_end_to_end_ms") == figure(none, "ttft_end_to_end_ms")
    assert any("prefix caching is off" in text for text in off.assumptions)


@pytest.mark.parametrize("value", ["1", "1.5", "-0.1", "nan", "half"])
def test_impossible_hits_are_refused(value: str, run: Callable[..., Ran]) -> None:
    ran = run("recommend", "--gpu", "H200", f"--prefix-hit={value}")
    assert ran.code == 2
    assert "prefix-hit" in ran.err
    assert "Traceback" not in ran.err


def test_command_line_passes_prompt_answer_and_hits(run: Callable[..., Ran]) -> None:
    ran = run(
        *("recommend", "--gpu", "H200", "--ctx", "32k", "--isl", "8k", "--osl", "1k"),
        *("--prefix-cache", "on", "--prefix-hit", "0.5", "--json"),
    )
    point = json.loads(ran.out)["operating_point"]
    assert (point["isl"], point["osl"], point["prefix_hit"]) == (8192, 1024, 0.5)


@pytest.mark.parametrize(
    ("gpu", "count"),
    [
        pytest.param("RTX 3090", 2, id="3090"),
        pytest.param("GB10", 1, id="GB10"),
        pytest.param("L4", 4, id="L4"),
        pytest.param("H100 SXM", 1, id="H100"),
    ],
)
def test_step_follows_the_prefill_speed(gpu: str, count: int) -> None:
    made = plan(gpu, count)
    step = made.option.max_num_batched_tokens or 0
    assert step >= SMALLEST_STEP
    assert figure(made, "stall_ms").value < STALL_LIMIT_MS
    assert "prefill-stall" not in {warning.rule for warning in made.warnings}


def test_slow_cards_get_shorter_steps() -> None:
    steps = [plan(gpu, count).option.max_num_batched_tokens for gpu, count in
             (("H100 SXM", 1), ("RTX 3090", 2), ("GB10", 1))]  # fmt: skip
    assert steps == [8192, 4096, 2048]


def test_a_stated_step_that_freezes_decoding_is_warned_of() -> None:
    made = plan("RTX 3090", 2, 16384)
    assert made.option.max_num_batched_tokens == 16384
    warning = next(item for item in made.warnings if item.rule == "prefill-stall")
    assert "pause up to" in warning.text


def test_one_request_pauses_nobody() -> None:
    made = plan(concurrency=1)
    assert made.predictions.stall_ms is None
    assert "no other request is decoding" in made.predictions.reasons["stall_ms"]
