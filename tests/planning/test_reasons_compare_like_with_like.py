"""Why an option won is told against its neighbour, and what lost is told with its band."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

PAIR = ("--gpu", "RTX PRO 6000", "--gpus", "2")
AGAINST = re.compile(r" vs (?P<rival>[^()]+?)(?: at the low end of the band)?(?: \(\w+\))?\.$")


def plan_of(run: Any, *settings: str) -> dict[str, Any]:
    ran = run("recommend", *settings, "--json")
    assert ran.code == 0, ran.err
    plan: dict[str, Any] = json.loads(ran.out)
    return plan


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param([*PAIR, "--ctx", "256k", "--c", "32"], id="showcase"),
        pytest.param(["--gpu", "RTX PRO 6000", "--ctx", "256k", "--c", "1"], id="one-card"),
        pytest.param(["--gpu", "H200", "--ctx", "256k", "--c", "32"], id="h200"),
        pytest.param(["--gpu", "RTX 3090", "--gpus", "8", "--ctx", "32k", "--c", "32"], id="3090"),
        pytest.param(["--gpu", "GB10", "--ctx", "32k", "--c", "32"], id="gb10"),
    ],
)
def test_a_rival_differs_in_the_respect_that_is_told(run: Any, settings: list[str]) -> None:
    rivals = [
        found["rival"]
        for reason in plan_of(run, *settings)["reasons"][:3]
        if (found := AGAINST.search(reason))
    ]

    assert rivals
    assert not [rival for rival in rivals if " + " in rival]
    assert len(set(rivals)) == len(rivals)


def test_what_does_not_fit_decides_before_what_is_not_needed(run: Any) -> None:
    reasons = plan_of(run, "--gpu", "RTX 4090", "--gpus", "2", "--ctx", "128k", "--c", "4")[
        "reasons"
    ]

    assert reasons[0].startswith("fp8: bf16 is rejected: weights (")
    assert reasons[1].startswith("tp2: 2 x tp1 is rejected: weights (")
    assert not [reason for reason in reasons[:3] if "no measurement shows" in reason]


def test_coarse_weights_are_explained_by_the_better_ones_that_do_not_fit(run: Any) -> None:
    reasons = plan_of(run, "--gpu", "RTX 5090", "--ctx", "128k", "--c", "1")["reasons"]

    assert reasons[0].startswith("int4-autoround: fp8 is rejected: weights (28")


def test_a_tie_says_what_decided_it(run: Any) -> None:
    plans = [plan_of(run, "--gpu", "H200", "--ctx", "32k", "--c", count) for count in "1248"]
    told = [
        text
        for plan in plans
        for text in (*plan["reasons"], *(other["why_not"] for other in plan["alternatives"]))
    ]
    ties = [text for text in told if "ties " in text]

    assert ties
    assert not [text for text in ties if " or is simpler" in text or "simpler or better" in text]
    assert any("is in quality class reference" in text for text in ties)


def test_others_stand_with_their_bands(run: Any) -> None:
    text = run("recommend", *PAIR, "--ctx", "256k", "--c", "32").out
    others = " ".join(text.split("\nAlternatives ")[1].split("\nWarnings ")[0].split())

    assert len(re.findall(r"[\d,]+ \([\d,]+–[\d,]+\) tok/s", others)) == 2


def test_the_price_of_upstream_is_that_of_the_plan_that_it_takes(run: Any) -> None:
    settings = (*PAIR, "--ctx", "128k", "--c", "8")
    fork, upstream = plan_of(run, *settings), plan_of(run, *settings, "--upstream-only")
    rates = [p["predictions"]["aggregate_decode_tps"] for p in (fork, upstream)]
    price = rates[1]["value"] / rates[0]["value"] - 1

    assert upstream["option"] == fork["alternatives"][0]["option"]
    assert f"{upstream['option']['image']}: {price:+.0%}" in fork["headlines"][0]


def test_more_context_is_not_tied_by_the_band_of_a_rate(run: Any) -> None:
    plan = plan_of(run, *PAIR, "--ctx", "256k", "--c", "32", "--objective", "capacity")
    mine = plan["predictions"]["max_typical_context_tokens"]["low"]

    for other in plan["alternatives"]:
        theirs = other["predictions"]["max_typical_context_tokens"]["low"]
        assert theirs <= mine * 1.02
        if theirs < mine * 0.98:
            assert "fewer tokens of typical context" in other["why_not"]
    assert "context for all requests" in plan["reasons"][0]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(["--objective", "capacity"], id="mixed-caching"),
        pytest.param(["--spec", "none"], id="all-cached"),
        pytest.param(["--prefix-cache", "on"], id="asked"),
        pytest.param([], id="default"),
    ],
)
def test_figures_are_of_the_load_that_options_were_ranked_at(run: Any, settings: list[str]) -> None:
    plan = plan_of(run, *PAIR, "--ctx", "256k", "--c", "32", *settings)
    rate = plan["predictions"]["aggregate_decode_tps"]
    place = next(entry for entry in plan["trace"] if entry["effect"] == "chosen")

    if "capacity" not in settings:
        assert f"low end {rate['low']:,.1f}" in place["reason"]
    shared = plan["operating_point"]["contexts"] == "shared"
    assert shared == ("on" in settings or "none" in settings)


def test_a_third_partys_build_that_nobody_ran_so_does_not_go_before_upstream(run: Any) -> None:
    assert not plan_of(run, *PAIR, "--ctx", "128k", "--c", "8", "--spec", "none")["option"]["fork"]


# --- what the plan says of itself ---


def test_a_rate_that_verify_cannot_confirm_says_so(run: Any) -> None:
    wide = run("recommend", "--gpu", "RTX 4090", "--gpus", "2", "--ctx", "128k", "--c", "4").out
    narrow = run("recommend", *PAIR, "--ctx", "256k", "--c", "32").out

    assert re.search(
        r"  verify      can refute but not confirm the decode rate: its band of ±\d+%", wide
    )
    assert "  verify     " not in narrow


@pytest.mark.parametrize(
    ("settings", "card"),
    [
        pytest.param(["--vram", "48"], "2 x RTX 4090 with 48 GiB", id="rebuilt"),
        pytest.param([], "2 x RTX 4090 ·", id="as-listed"),
    ],
)
def test_a_card_of_another_memory_says_so(run: Any, settings: list[str], card: str) -> None:
    text = run("recommend", "--gpu", "RTX 4090", "--gpus", "2", "--ctx", "32k", *settings).out

    assert card in " ".join(text.split())


def test_caching_that_stays_off_has_its_price(run: Any) -> None:
    plan = plan_of(run, *PAIR, "--ctx", "256k", "--c", "1", "--typical-ctx", "128k")
    told = [w["text"] for w in plan["warnings"] if w["rule"] == "prefix-caching-with-mtp"]
    seconds = plan["predictions"]["ttft_cold_ms"]["value"] / 1000

    assert len(told) == 1
    assert f"{seconds:.1f} s" in told[0]
    assert "For agents, --spec none enables it and decodes at " in told[0]


@pytest.mark.parametrize(
    ("image", "says"),
    [
        ("vllm/vllm-openai:v0.99.0", "newer than the newest known release"),
        ("vllm/vllm-openai:v0.26.9", "not in the tables"),
    ],
)
def test_an_image_that_no_table_has_says_what_is_known(run: Any, image: str, says: str) -> None:
    told = " ".join(plan_of(run, *PAIR, "--ctx", "32k", "--image", image)["headlines"])

    assert f"{image} is " in told and says in told
    assert ("not checked since" in told) == (says.startswith("newer"))


def test_weights_that_were_asked_for_are_not_called_the_only_ones(run: Any) -> None:
    told = " ".join(plan_of(run, *PAIR, "--ctx", "64k", "--quant", "nvfp4")["headlines"])

    assert "nvfp4 weights are in quality class any" in told
    assert "No option in quality class" not in told


def test_a_larger_card_is_one_that_was_measured(run: Any) -> None:
    text = " ".join(
        plan_of(run, "--gpu", "RTX 4090", "--gpus", "2", "--ctx", "128k", "--c", "4")["capacity"]
    )

    assert "RTX 5090 cards: " in text


def test_room_and_running_agree_at_full_length(run: Any) -> None:
    plan = plan_of(run, "--gpu", "H100 SXM", "--gpus", "2", "--ctx", "32k", "--c", "128")
    full = next(
        cell for cell in plan["cells"] if cell["context"] == 32768 and cell["concurrency"] > 1
    )
    running = full["figures"]["max_running_requests"]["value"]

    assert plan["capacity"][0].startswith(f"{running:.0f} requests of 32k at once")


# --- refusals ---


def test_a_refusal_leaves_out_options_whose_twin_tells_more(run: Any) -> None:
    ran = run("recommend", "--gpu", "RTX 3090", "--ctx", "128k", "--c", "1", "--quality", "near")

    assert ran.code == 1
    assert "[memory-weights]" in ran.out
    assert "[prefix-caching-with-mtp]" not in ran.out


def test_a_release_that_nobody_ran_here_is_taken_where_the_others_cannot(run: Any) -> None:
    plan = plan_of(run, "--gpu", "H200", "--ctx", "128k", "--c", "1", "--spec", "dflash")

    assert plan["option"]["spec_method"] == "dflash"
    assert any(entry["rule"] == "dflash-long-context-collapse" for entry in plan["trace"])


def test_cards_of_one_kind_serve_where_they_can(run: Any, tmp_path: Path) -> None:
    folder = tmp_path / "box"
    folder.mkdir()
    (folder / "query.csv").write_text(
        "index, name, memory.total [MiB], driver_version, compute_cap\n"
        "0, NVIDIA GeForce RTX 5090, 32607 MiB, 580.95.05, 12.0\n"
        "1, NVIDIA GeForce RTX 3090, 24576 MiB, 580.95.05, 8.6\n"
        "2, NVIDIA GeForce RTX 3090, 24576 MiB, 580.95.05, 8.6\n"
    )
    plan = plan_of(run, "--machine", str(folder), "--ctx", "64k", "--c", "4", "--devices", "0,1,2")

    assert plan["option"]["tp"] * plan["option"]["replicas"] == 2
    assert plan["gpu_indices"] == [1, 2]


def test_an_engine_without_that_fault_is_not_warned_of_it(run: Any) -> None:
    plan = plan_of(run, "--gpu", "RTX 4090", "--ctx", "256k", "--c", "8")

    assert plan["option"]["engine"] == "llama.cpp"
    assert "prefix-caching-with-mtp" not in {w["rule"] for w in plan["warnings"]}


@pytest.mark.parametrize("step", ["784", "400", "100"])
def test_what_is_said_to_be_out_is_not_offered(run: Any, step: str) -> None:
    line = ["--gpu", "H100-SXM", "--c", "64", "--ctx", "8k", "--max-num-batched-tokens"]
    plan = plan_of(run, *line, step)
    offered = {item["option"]["spec_method"] for item in plan["alternatives"]}

    assert "none" in offered
    assert not [text for text in plan["reasons"] if "no draft is rejected" in text]


def test_prefix_caching_that_a_step_is_too_short_for_is_left_off(run: Any) -> None:
    line = [
        "--gpu",
        "H100-SXM",
        "--c",
        "8",
        "--ctx",
        "8k",
        "--spec",
        "none",
        "--max-num-batched-tokens",
        "100",
    ]
    assert plan_of(run, *line)["option"]["prefix_cache"] is False

    stated = run("recommend", *line, "--prefix-cache", "on")
    assert stated.code == 1
    assert "[memory-step]" in stated.out
    assert "--prefix-cache off" in " ".join(stated.out.split())


def test_a_rival_without_room_is_told_by_its_room(run: Any) -> None:
    plan = plan_of(run, "--gpu", "H100 SXM", "--ctx", "32k", "--c", "4096")

    weights = next(text for text in plan["reasons"] if text.startswith("fp8:"))
    assert re.fullmatch(
        r"fp8: bf16 runs only \d+ of 4096 requests at once, this option \d+\.", weights
    )
