"""What a plan says of its image, its room and its requests is so."""

from __future__ import annotations

import json
from typing import Any

import pytest

PAIR = ("--gpu", "RTX PRO 6000", "--gpus", "2")


def plan_of(run: Any, *settings: str) -> dict[str, Any]:
    ran = run("recommend", *settings, "--json")
    assert ran.code == 0, ran.err
    plan: dict[str, Any] = json.loads(ran.out)
    return plan


def first_lines(plan: dict[str, Any]) -> str:
    return "\n".join(plan["headlines"])


def test_a_fork_that_was_measured_says_so_with_the_price_of_upstream(run: Any) -> None:
    told = first_lines(plan_of(run, *PAIR, "--ctx", "256k", "--c", "32"))

    assert "third-party image without public source; this option is measured on this card" in told
    assert "--upstream-only selects" in told


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        pytest.param(
            ["--image", "reg.example:5000/me/vllm:v0.26.0"], "is not in the tables", id="unknown"
        ),
        pytest.param(["--gpu", "H200", "--image", "repne/vllm:v13"], "not measured", id="card"),
    ],
)
def test_an_image_that_was_not_measured_is_not_called_so(
    run: Any, settings: list[str], says: str
) -> None:
    told = first_lines(plan_of(run, *(() if "--gpu" in settings else PAIR), *settings))

    assert says in told
    assert ", measured on" not in told
    assert "No upstream option" not in told


@pytest.mark.parametrize(
    "image",
    [
        "reg.example:5000/mirror/vllm-openai:v0.26.0",
        "vllm/vllm-openai:v0.26.0@sha256:" + "0123456789abcdef" * 4,
    ],
)
def test_a_mirror_of_the_official_image_is_no_third_partys(run: Any, image: str) -> None:
    plan = plan_of(run, *PAIR, "--image", image)

    assert not plan["option"]["fork"]
    assert "third-party" not in first_lines(plan)


def test_room_is_never_a_context_of_nothing(run: Any) -> None:
    plan = plan_of(run, "--gpu", "RTX 4090", "--ctx", "32k", "--c", "4")
    told = first_lines(plan) + "\n".join(plan["capacity"])

    assert plan["predictions"]["max_typical_context_tokens"]["value"] == 0
    assert "up to 0" not in told and " to 0 tokens" not in told
    assert "1 fits; all 4 never fit: 3 of 4 run at 4k, the rest queue." in told


def test_rates_say_how_many_of_the_requests_run(run: Any) -> None:
    text = run("recommend", *PAIR, "--ctx", "256k", "--c", "32", "--typical-ctx", "256k").out
    row = next(line for line in text.splitlines() if line.startswith("  decode"))

    assert row.endswith("; 13 of 32 running")


@pytest.mark.parametrize("seats", ["1", "64"])
def test_no_more_requests_run_than_there_are(run: Any, seats: str) -> None:
    text = run("recommend", *PAIR, "--c", "1", "--max-num-seqs", seats).out

    assert "blocks, interpolated; 1 of 1 requests at once, interpolated" in text


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(["--ctx", "256k", "--typical-ctx", "256k", "--c", "4"], id="full-length"),
        pytest.param(["--ctx", "4k", "--typical-ctx", "4k", "--osl", "2k"], id="answer-stated"),
        pytest.param(["--ctx", "4k", "--isl", "4000"], id="prompt-stated"),
        pytest.param(["--ctx", "600"], id="tiny"),
    ],
)
def test_a_request_fits_the_server(run: Any, settings: list[str]) -> None:
    plan = plan_of(run, *PAIR, *settings)
    point = plan["operating_point"]

    assert point["isl"] + point["osl"] <= plan["option"]["max_model_len"]


@pytest.mark.parametrize(
    ("image", "says"),
    [
        ("repne/vllm:latest@d0a200f77546", "by a short digest: generate cannot use this plan"),
        ("vllm/vllm-openai:nightly", "the tag moves"),
    ],
)
def test_an_image_to_avoid_is_taken_with_the_reason_against_it(
    run: Any, image: str, says: str
) -> None:
    told = first_lines(plan_of(run, *PAIR, "--ctx", "64k", "--c", "8", "--image", image))

    assert f"{image} should not be used" in told
    assert says in told


def test_the_nearest_image_is_none_of_those_to_avoid(run: Any) -> None:
    ran = run("recommend", *PAIR, "--image", "repne/vllm:latest")

    assert ran.code == 2
    assert "did you mean repne/vllm:v" in ran.err
