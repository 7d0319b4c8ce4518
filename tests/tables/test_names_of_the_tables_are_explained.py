"""``explain`` answers for images, weights and cards; what no table has is named as such."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran

from qwendeploy.reporting.explain_tables import listed_names
from qwendeploy.reporting.explanation import explain


@pytest.mark.parametrize("name", listed_names())
def test_every_listed_name_is_answered(name: str) -> None:
    assert any(entry.topic == name or name in entry.title for entry in explain(name))


@pytest.mark.parametrize(
    ("name", "kind", "contains"),
    [
        ("v0.20.1", "image", "minimum driver 580"),
        ("0.20.1", "image", "vllm/vllm-openai:v0.20.1"),
        ("vllm-openai:v0.20.1", "image", "vllm/vllm-openai:v0.20.1"),
        ("repne/vllm:v17", "image", "third-party fork without public source"),
        ("vllm/vllm-openai:v0.19.1", "image", "never used in a plan"),
        ("someone/vllm:v0.22.3", "image", "not in the tables"),
        ("Qwen/Qwen3.6-27B-FP8", "checkpoint", "near"),
        ("qwen3.6-27b-fp8", "checkpoint", "28.75 GiB"),
        ("gguf-q8_0", "checkpoint", "26.6 GiB"),
        ("Intel/Qwen3.6-27B-int4-AutoRound", "checkpoint", "unknown"),
        ("4090", "card", "1,008 GB/s"),
        ("NVIDIA H100 PCIe", "card", "capability 9.0"),
    ],
)
def test_page_says_what_the_table_holds(
    run: Callable[..., Ran], name: str, kind: str, contains: str
) -> None:
    ran = run("explain", name)

    assert ran.code == 0, ran.err
    assert f"({kind})" in ran.out
    assert contains in " ".join(ran.out.split())


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("RTX 9090", "RTX 5090"),
        ("Qwen/Qwen3.6-27B-FP9", "Qwen/Qwen3.6-27B-FP8"),
        ("repne/vllm:v99", "repne/vllm:v"),
    ],
)
def test_an_unknown_one_gets_the_nearest(run: Callable[..., Ran], name: str, near: str) -> None:
    ran = run("explain", name)

    assert (ran.code, ran.out) == (2, "")
    assert near in ran.err


def warned(ran: Ran) -> dict[str, Any]:
    assert ran.code == 0, ran.err
    return {item["rule"]: item["text"] for item in json.loads(ran.out)["warnings"]}


PREDICT = ("predict", "--gpu", "RTX PRO 6000", "--quant", "fp8", "--json")


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("vllm/vllm-openai:v0.20.11", "Closest known image: vllm/vllm-openai:v0.20.1."),
        ("vllm/vllm-openai:v9.0.0", "newer than the newest known release"),
        ("somebody/own:v0.22.0", "third-party build of vLLM 0.22.0"),
    ],
)
def test_predict_says_that_an_image_is_unknown(
    run: Callable[..., Ran], image: str, words: str
) -> None:
    assert words in warned(run(*PREDICT, "--image", image))["unlisted-image"]


def test_predict_says_what_unknown_weights_are_taken_for(run: Callable[..., Ran]) -> None:
    found = warned(run(*PREDICT, "--checkpoint", "Qwen/Qwen3.6-27B-FP88"))

    assert "closest known: Qwen/Qwen3.6-27B-FP8)" in found["unlisted-checkpoint"]
    assert "contains fp8 weights" in found["unlisted-checkpoint"]


def test_predict_of_known_parts_warns_of_none(run: Callable[..., Ran]) -> None:
    found = warned(run(*PREDICT, "--image", "vllm/vllm-openai:v0.20.1"))

    assert not {"unlisted-image", "unlisted-checkpoint"} & set(found)


def test_predict_says_which_card_a_short_name_was_taken_for(run: Callable[..., Ran]) -> None:
    found = warned(
        run("predict", "--gpu", "A100", "--quant", "fp8", "--c", "1", "--ctx", "8k", "--json")
    )

    assert "'A100' is read as the" in found["card-name"]


def test_an_image_without_a_version_is_refused_with_the_nearest(run: Callable[..., Ran]) -> None:
    ran = run(*PREDICT, "--image", "repne/vllm:v99")

    assert ran.code == 2
    assert "did you mean repne/vllm:v" in ran.err


# --- width ---


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
@pytest.mark.parametrize(
    "command",
    [
        ("recommend", "--gpu", "H200", "--c", "8", "--ctx", "128k"),
        ("explain", "tie"),
        ("explain", "prefix-caching-with-mtp"),
    ],
    ids=" ".join,
)
def test_columns_of_the_environment_are_the_width(
    run: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
    command: tuple[str, ...],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    prose = [
        line for line in run(*command).out.splitlines() if "://" not in line and "Next" not in line
    ]

    assert max(map(len, prose)) <= columns
    assert max(map(len, prose)) > columns - 25


@pytest.mark.parametrize("columns", ["", "0", "-5", "wide", "²"])
def test_columns_that_are_no_width_are_left_aside(
    run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    usual = run("explain", "tie").out
    monkeypatch.setenv("COLUMNS", columns)

    assert run("explain", "tie").out == usual


def test_figures_of_a_table_are_not_cut(
    run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")

    assert "…" not in run("predict", "--gpu", "H200", "--quant", "fp8", "--c", "1,8").out


# --- a file that cannot be read ---


@pytest.mark.parametrize("content", [None, "{", "[]", ""], ids=str)
def test_what_is_amiss_with_the_file_is_said_first(
    run: Callable[..., Ran], tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "result.json"
    if content is not None:
        file.write_text(content)
    ran = run("data", "import", file)

    assert ran.code == 2
    assert "result.json" in ran.err
    assert "GPU is not stated" not in ran.err
