"""Two RTX PRO 6000, 32 requests, 256k: the plan is what the study's numbers derive."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest

from qwendeploy.documents import Plan, Workload
from qwendeploy.documents.request import Pins, Request
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.planning.recommend import recommend
from qwendeploy.tables.gpus import gpus


@cache
def showcase(typical: int | None = None, **pins: object) -> Plan:
    machine = stated_machine("RTX PRO 6000 Blackwell Workstation", 2, catalogue=gpus())
    workload = Workload(
        concurrency=32, max_context=262144, typical_context=typical, contexts="shared"
    )
    return recommend(machine, workload, Request(pins=Pins(**pins)))  # type: ignore[arg-type]


def test_option_is_fp8_with_three_mtp_drafts_over_both_cards() -> None:
    option = showcase().option

    assert (option.quant, option.spec_method, option.spec_tokens) == ("fp8", "mtp", 3)
    assert (option.tp, option.replicas, option.kv_cache_dtype) == (2, 1, "bf16")
    assert option.gpu_memory_utilization == 0.85
    assert not option.prefix_cache


def test_third_party_image_is_named_first_with_upstreams_price() -> None:
    plan = showcase()

    assert plan.option.fork
    assert "third-party" in plan.headlines[0]
    assert "--upstream-only" in plan.headlines[0]
    assert not plan.alternatives[0].option.fork


def test_rate_with_separate_contexts_is_what_the_bandwidth_bound_leaves() -> None:
    rate = showcase().predictions.aggregate_decode_tps

    assert rate is not None
    assert 1300 <= rate.value <= 1420
    assert 1150 <= rate.low < rate.value < rate.high <= 1600
    assert rate.kind == "transferred"


@pytest.mark.parametrize(
    ("utilization", "kv_dtype", "full", "context"),
    [
        pytest.param(0.80, "bf16", 6, 45600, id="80-bf16"),
        pytest.param(0.85, "bf16", 7, 50400, id="85-bf16"),
        pytest.param(0.88, "bf16", 7, 53600, id="88-bf16"),
        pytest.param(0.80, "fp8", 12, 91200, id="80-fp8"),
        pytest.param(0.85, "fp8", 13, 100800, id="85-fp8"),
        pytest.param(0.88, "fp8", 14, 107200, id="88-fp8"),
    ],
)
def test_capacity_is_the_formulas(
    utilization: float, kv_dtype: str, full: int, context: int
) -> None:
    plan = showcase(
        gpu_memory_utilization=utilization,
        kv_cache_dtype=kv_dtype,
        quant="fp8",
        spec_method="mtp",
        spec_tokens=3,
        tp=2,
    )
    figures = plan.predictions

    assert figures.max_full_length_requests is not None
    assert figures.max_typical_context_tokens is not None
    assert figures.max_full_length_requests.value == full
    assert figures.max_typical_context_tokens.value == context


def test_plan_says_how_many_fit_what_happens_beyond_and_what_would_change_it() -> None:
    plan = showcase()
    text = " ".join((*plan.headlines, *plan.capacity))

    assert "7" in text
    assert "50,400" in text
    assert "queue" in text
    for change in ("fp8 KV", "no draft", "16-bit state cache", "cards"):
        assert change in text


def test_long_typical_context_takes_fp8_kv_and_runs_what_fits() -> None:
    plan = showcase(typical=131072)
    running = plan.predictions.max_running_requests

    assert plan.option.kv_cache_dtype == "fp8"
    assert running is not None
    assert 23 <= running.value <= 26


def test_upstream_only_takes_an_upstream_image() -> None:
    plan = showcase(upstream_only=True)

    assert not plan.option.fork
    assert plan.option.image is not None
    assert plan.option.image.startswith("vllm/vllm-openai:")


def test_every_flag_names_its_rule_and_reason() -> None:
    plan = showcase()
    names = {flag.name for flag in plan.flags}

    assert {"--tensor-parallel-size", "--max-model-len", "--no-enable-prefix-caching"} <= names
    assert all(flag.rule and flag.reason for flag in (*plan.flags, *plan.env))
    config = next(flag for flag in plan.flags if flag.name == "--speculative-config")
    assert json.loads(config.value or "")["num_speculative_tokens"] == 3


def test_trace_keeps_every_option_with_its_reason() -> None:
    trace = showcase().trace

    assert sum(entry.effect == "chosen" for entry in trace) == 1
    assert all(entry.reason for entry in trace)
    assert any(entry.rule == "quality-class" for entry in trace)
    assert any("2 x tp1" in entry.option for entry in trace)


def test_equal_plans_have_equal_ids_and_another_context_another() -> None:
    machine = stated_machine("RTX PRO 6000 Blackwell Workstation", 2, catalogue=gpus())
    again = recommend(
        machine, Workload(concurrency=32, max_context=262144, contexts="shared"), Request()
    )

    assert again.plan_id == showcase().plan_id
    assert showcase(typical=16384).plan_id != showcase().plan_id


def test_text_and_json_of_the_command_line_agree(run: Callable[..., object]) -> None:
    settings = ("--gpu", "RTX PRO 6000 Blackwell Workstation", "--gpus", "2")
    asked = ("recommend", *settings, "--ctx", "256k", "--c", "32")

    text, document = run(*asked), run(*asked, "--json")

    assert text.code == document.code == 0  # type: ignore[attr-defined]
    plan = json.loads(document.out)  # type: ignore[attr-defined]
    rate = plan["predictions"]["aggregate_decode_tps"]
    assert f"{rate['value']:,.0f}" in text.out  # type: ignore[attr-defined]
    assert set(rate) == {"value", "unit", "low", "high", "level", "kind", "source", "n"}
    assert max(len(line) for line in text.out.splitlines()) <= 100  # type: ignore[attr-defined]
    assert plan["option"]["image"] in text.out  # type: ignore[attr-defined]
