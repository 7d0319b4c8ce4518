"""Prompt lengths, limits and objectives as stated decide where and what is planned."""

from __future__ import annotations

import json
from typing import Any

import pytest

PAIR = ("--gpu", "RTX PRO 6000", "--gpus", "2")


def plan_of(run: Any, *settings: str) -> dict[str, Any]:
    ran = run("recommend", *PAIR, *settings, "--json")
    assert ran.code == 0, ran.err
    plan: dict[str, Any] = json.loads(ran.out)
    return plan


@pytest.mark.parametrize(
    ("settings", "context", "assumed"),
    [
        pytest.param((), 4096, True, id="an-eighth"),
        pytest.param(("--isl", "8k", "--osl", "1k"), 8704, False, id="prompt-and-half-the-answer"),
        pytest.param(("--isl", "1k"), 1280, False, id="answer-assumed"),
        pytest.param(("--isl", "8k", "--typical-ctx", "16k"), 16384, False, id="context-stated"),
    ],
)
def test_rates_are_of_the_context_that_the_requests_have(
    run: Any, settings: tuple[str, ...], context: int, assumed: bool
) -> None:
    point = plan_of(run, "--ctx", "32k", "--c", "16", *settings)["operating_point"]

    assert (point["context"], point["context_assumed"]) == (context, assumed)


@pytest.mark.parametrize("more", [(), ("--upstream-only",)])
def test_options_that_hold_the_same_are_told_apart_by_speed(
    run: Any, more: tuple[str, ...]
) -> None:
    asked = ("--ctx", "256k", "--c", "2", *more)
    held = plan_of(run, *asked, "--objective", "capacity")["predictions"]
    fast = plan_of(run, *asked)["predictions"]

    for name in ("max_typical_context_tokens", "aggregate_decode_tps"):
        assert held[name]["low"] >= 0.9 * fast[name]["low"]


def test_a_limit_that_only_the_middle_of_the_band_meets_is_said(run: Any) -> None:
    sure = plan_of(run, "--c", "8", "--tpot", "40")
    unsure = plan_of(run, "--c", "8", "--tpot", "9")

    assert not any("--tpot" in line for line in sure["headlines"])
    assert unsure["predictions"]["tpot_ms"]["high"] > 9
    assert any("--tpot 9 is met at the median" in line for line in unsure["headlines"])
