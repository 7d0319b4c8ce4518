"""``explain quality``: every class with its divergence, that protocol's noise, and the ties."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from conftest import Ran

from qwendeploy.reporting.explain_quality import quality_facts
from qwendeploy.tables.quality import class_rows, kl_rows


def facts() -> dict[str, str]:
    return {fact.label: fact.value for fact in quality_facts()}


def test_every_class_row_is_told_apart_and_shown() -> None:
    labels = [fact.label for fact in quality_facts()]
    assert len(labels) == len(set(labels))
    assert len(labels) > len(class_rows())


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        pytest.param(
            "Qwen/Qwen3.6-27B-FP8 fp8, bf16 KV",
            ("near", "KL 0.23", "JS 0.014", "8.6 × the BF16 noise", "504 positions"),
            id="vllm",
        ),
        pytest.param(
            "unsloth/Qwen3.6-27B-GGUF gguf-q8_0",
            ("near", "noise not measured", "llama.cpp-wikitext2-sliding"),
            id="another protocol",
        ),
        pytest.param(
            "Intel/Qwen3.6-27B-int4-AutoRound int4-autoround",
            ("unknown", "not measured"),
            id="nobody measured it",
        ),
        pytest.param("one FP8 model restarted", ("12.8 ×",), id="restart"),
    ],
)
def test_divergence_stands_beside_its_own_protocols_noise(
    label: str, parts: tuple[str, ...]
) -> None:
    assert all(part in facts()[label] for part in parts)


def test_divergences_within_restart_noise_tie() -> None:
    """A restart moves FP8 by 0.346 bits: only BF16 and the furthest 4-bit format are apart."""
    restart = next(row.kl_ref_bits for row in kl_rows() if "restart" in row.variant)
    noise = restart * 2**0.5
    text = facts()["divergence ties"]
    values = {
        row.variant: row.kl_ref_bits
        for row in kl_rows()
        if row.protocol == "vllm-wikitext2-multi" and "restart" not in row.variant
    }
    apart = sum(abs(a - b) > noise for a in values.values() for b in values.values()) / 2
    assert text.count(" from ") == apart == 1
    assert "bf16-self from C7-gptq-groxaxo" in text


def test_task_scores_within_run_to_run_spread_tie() -> None:
    mbpp = facts()["MBPP sanitized pass@1"]
    assert "identical runs differ by up to 11.3 points: all tie" in mbpp
    assert "fp8+mtp3 85.6–89.5 % (4 runs)" in mbpp


def test_command_line_shows_the_table(run: Callable[..., Ran]) -> None:
    ran = run("explain", "quality", "--json")
    assert ran.code == 0
    labels = {fact["label"] for fact in json.loads(ran.out)["explanations"][0]["facts"]}
    assert {"divergence ties", "HumanEval pass@1"} <= labels
