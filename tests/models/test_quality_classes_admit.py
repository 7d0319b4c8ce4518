"""Quality classes: what each admits, and which divergences and scores are ties."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from qwendeploy.models.quality import (
    ORDER,
    Divergence,
    Score,
    allowed,
    class_of,
    next_class,
    scores_tie,
    tied,
    ties,
)
from qwendeploy.tables.quality import class_rows, kl_rows


@dataclass(frozen=True)
class Entry:
    checkpoint: str
    quant: str
    kv_cache_dtype: str | None
    quality_class: str


def test_a_class_admits_itself_and_everything_stricter() -> None:
    for i, own in enumerate(ORDER):
        for j, wanted in enumerate(ORDER):
            assert allowed(own, wanted) == (i <= j)


def test_an_unknown_checkpoint_is_admitted_by_any_alone() -> None:
    assert [allowed("unknown", wanted) for wanted in ORDER] == [False, False, False, True]
    with pytest.raises(ValueError, match="perfect"):
        allowed("near", "perfect")


@pytest.mark.parametrize(
    ("checkpoint", "quant", "kv", "expected"),
    [
        pytest.param("Qwen/Qwen3.6-27B", "bf16", "bf16", "reference", id="the reference"),
        pytest.param("Qwen/Qwen3.6-27B", "bf16", "fp8", "near", id="8-bit cache"),
        pytest.param("Qwen/Qwen3.6-27B-FP8", "fp8", "fp8", "near", id="8-bit both"),
        pytest.param(
            "Lorbus/Qwen3.6-27B-int4-AutoRound", "int4-autoround", "fp8", "relaxed", id="int4"
        ),
        pytest.param("QuantTrio/Qwen3.6-27B-AWQ", "awq-4bit", "bf16", "relaxed", id="AWQ 4 bits"),
        pytest.param("groxaxo/Qwen3.6-27B-GPTQ-Pro-4bit", "gptq-int4", "bf16", "any", id="GPTQ"),
        pytest.param(
            "sakamakismile/Qwen3.6-27B-Text-NVFP4-MTP", "nvfp4", "bf16", "any", id="NVFP4"
        ),
        pytest.param(
            "Intel/Qwen3.6-27B-int4-AutoRound", "int4-autoround", "bf16", "any", id="unmeasured"
        ),
        pytest.param(
            "someone/Qwen3.6-27B-FP8", "fp8", "bf16", "any", id="never by the quant's name"
        ),
    ],
)
def test_the_shipped_table_classes(checkpoint: str, quant: str, kv: str, expected: str) -> None:
    assert class_of(class_rows(), checkpoint, quant, kv) == expected


def test_the_row_of_the_exact_cache_type_wins() -> None:
    table = [Entry("m", "fp8", None, "near"), Entry("m", "fp8", "fp8", "relaxed")]
    assert class_of(table, "m", "fp8", "fp8") == "relaxed"
    assert class_of(table, "m", "fp8", "bf16") == "near"


def test_the_next_class_after_the_default_is_relaxed() -> None:
    assert next_class("near") == "relaxed"
    assert next_class("any") is None


def divergence(variant: str) -> Divergence:
    rows = {row.variant: row for row in kl_rows() if row.protocol == "vllm-wikitext2-multi"}
    return Divergence(
        rows[variant].kl_ref_bits, rows[variant].floor_bits, rows["fp8-restart"].kl_ref_bits
    )


@pytest.mark.parametrize(
    ("variant", "times"),
    [
        pytest.param("fp8", 8.6, id="FP8"),
        pytest.param("B4-fp8w-kv-fp8", 7.9, id="FP8 with fp8 cache"),
        pytest.param("C6-autoround-int4", 12.4, id="AutoRound int4"),
        pytest.param("C5-awq-6bit", 12.5, id="AWQ 6 bits"),
        pytest.param("C4-awq-4bit", 14.6, id="AWQ 4 bits"),
        pytest.param("nvfp4", 18.8, id="NVFP4"),
        pytest.param("C7-gptq-groxaxo", 21.2, id="GPTQ, worst"),
        pytest.param("fp8-restart", 12.8, id="a restart alone"),
    ],
)
def test_divergence_over_the_self_noise_of_its_protocol(variant: str, times: float) -> None:
    over = divergence(variant).over_floor
    assert over == pytest.approx(times, abs=0.1)


def test_gaps_below_restart_noise_are_ties() -> None:
    assert tied(divergence("C6-autoround-int4"), divergence("C5-awq-6bit"))
    assert divergence("C6-autoround-int4").below_restart_noise is True
    assert divergence("nvfp4").below_restart_noise is False


def test_without_any_noise_nothing_is_told_apart() -> None:
    assert tied(Divergence(0.1, None), Divergence(5.0, None))
    assert not tied(Divergence(0.1, 0.02), Divergence(5.0, 0.02))


def test_task_scores_within_chance_or_run_spread_tie() -> None:
    """HumanEval 88.4 to 93.3 of 164: identical runs already differ by 6.7 points (F1)."""
    scores = {
        "BF16+DFlash8": Score(0.927, 164),
        "FP8+MTP5": Score(0.933, 164),
        "FP8+MTP3": Score(0.884, 164),
    }
    assert len(ties(scores, run_spread=0.067)) == 3
    assert not scores_tie(Score(0.404, 198), Score(0.783, 198))


def test_a_perfect_score_of_few_items_still_has_a_spread() -> None:
    assert Score(1.0, 10).deviation > 0.03
