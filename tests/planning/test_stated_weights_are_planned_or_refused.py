"""Checkpoints, formats and layouts that the user states are planned as stated, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from qwendeploy.family.names import model_of

BOX = ("--gpu", "RTX PRO 6000", "--gpus", "2")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        pytest.param(["--quant", "int3"], ["--quant", "gptq-int4"], id="format-unknown"),
        pytest.param(["--quant", "xyz"], ["--quant", "known: bf16, fp8"], id="format-far-off"),
        pytest.param(
            ["--quant", "fp8", "--checkpoint", "Qwen/Qwen3.6-27B"],
            ["contains bf16"],
            id="other-format",
        ),
        pytest.param(["--checkpoint", "Qwen/Qwen3-32B"], ["qwen3.6-27b"], id="other-model"),
        pytest.param(["--checkpoint", "me/Qwen3.6-27B-x"], ["--quant fp8"], id="format-unstated"),
        pytest.param(["--checkpoint", "/models/q"], ["--quant fp8"], id="folder-format-unstated"),
        pytest.param(["--checkpoint", "a b;rm -rf /"], ["owner/name"], id="neither"),
        pytest.param(["--checkpoint", "./q", "--quant", "fp8"], ["/path"], id="relative-folder"),
    ],
)
@pytest.mark.parametrize("verb", ["recommend", "predict"])
def test_nothing_is_guessed(run: Any, verb: str, settings: list[str], says: list[str]) -> None:
    ran = run(verb, *BOX, *settings)

    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert all(text in ran.err for text in says)


@pytest.mark.parametrize("name", ["/models/qwen", "me/Qwen3.6-27B-mine"])
def test_weights_elsewhere_are_planned_like_known_ones(run: Any, name: str) -> None:
    known = YAML(typ="safe").load(run("recommend", *BOX, "--quant", "fp8", "--json").out)
    ran = run("recommend", *BOX, "--quant", "fp8", "--checkpoint", name, "--json")
    plan = YAML(typ="safe").load(ran.out)

    assert ran.code == 0
    assert plan["option"]["checkpoint"] == name
    assert any(name in line for line in plan["assumptions"])
    rate = plan["predictions"]["aggregate_decode_tps"]
    assert rate["value"] == pytest.approx(known["predictions"]["aggregate_decode_tps"]["value"])
    assert (plan["download_gib"] is None) == name.startswith("/")


def test_more_replicas_than_cards_are_refused_with_both_numbers(run: Any) -> None:
    ran = run("recommend", *BOX, "--replicas", "3")

    assert ran.code == 2
    assert "the layout needs 3 GPUs, the machine has 2 (--replicas 2 or --gpus 3)" in ran.err


def test_stated_replicas_may_outnumber_the_requests(run: Any) -> None:
    plan = YAML(typ="safe").load(run("recommend", *BOX, "--replicas", "2", "--json").out)

    assert (plan["option"]["tp"], plan["option"]["replicas"]) == (1, 2)


@pytest.mark.parametrize("image", ["vllm/vllm-openai:v0.11.0", "vllm/vllm-openai:v0.26.0"])
def test_no_sibling_model_is_ever_chosen(run: Any, image: str) -> None:
    ran = run("recommend", *BOX, "--quality", "any", "--image", image, "--json")
    document = YAML(typ="safe").load(ran.out)

    assert "3.8" not in str([entry["option"] for entry in document["trace"]])
    if ran.code == 0:
        assert model_of(document["option"]["checkpoint"]) == "qwen3.6-27b"
    else:
        assert "0.17" in ran.err


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        pytest.param(["--engine", "llama.cpp", "--spec", "mtp"], "--spec", id="draft"),
        pytest.param(["--engine", "llama.cpp", "--util", "0.5"], "--util", id="share"),
        pytest.param(["--engine", "llama.cpp", "--capture-size", "8"], "--capture", id="graphs"),
        pytest.param(["--engine", "llama.cpp", "--prefix-cache", "on"], "--prefix", id="cache"),
        pytest.param(["--engine", "llama.cpp", "--quant", "fp8"], "gguf-q8_0", id="weights"),
        pytest.param(
            ["--engine", "llama.cpp", "--image", "vllm/vllm-openai:v0.26.0"], "--image", id="image"
        ),
        pytest.param(["--engine", "vllm", "--quant", "gguf-q8_0"], "--engine", id="gguf-in-vllm"),
        pytest.param(["--quant", "gguf-q8_0", "--spec", "mtp"], "--spec", id="gguf-draft"),
    ],
)
def test_settings_of_the_other_engine_are_refused(
    run: Any, settings: list[str], where: str
) -> None:
    ran = run("recommend", *BOX, *settings)

    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1 and where in ran.err
