"""Pools predicted before start, on starts that the rest term was not fitted to."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwendeploy.engines.llama_cpp.memory import STATE_BYTES, LlamaServer, cache_bytes_per_token
from qwendeploy.evaluation.memory import PoolError, memory_accuracy
from qwendeploy.evidence.pool_estimate import PoolQuestion, estimate_pool
from qwendeploy.figures import Kind
from qwendeploy.models.memory import full_length_requests, longest_context_for
from qwendeploy.models.rest_term import loaded_weights
from qwendeploy.resources import data_dir

ERRORS = memory_accuracy()


@pytest.mark.parametrize(
    "error", [error for error in ERRORS if error.use == "held-out"], ids=lambda error: error.id
)
def test_held_out_pool(error: PoolError) -> None:
    assert abs(error.error) <= 0.05


def test_enough_pools_are_held_out_and_small_cards_are_among_them() -> None:
    held_out = [error for error in ERRORS if error.use == "held-out"]
    assert len(held_out) >= 25
    assert {error.gpu for error in held_out} >= {
        "NVIDIA GeForce RTX 3090",
        "NVIDIA GeForce RTX 5090",
        "NVIDIA H200",
        "NVIDIA GB10",
    }
    assert sum(error.covered for error in held_out) / len(held_out) >= 0.85


def test_rows_outside_the_model_say_why() -> None:
    outside = [error for error in ERRORS if error.use == "outside"]
    assert outside and all(error.note for error in outside)


def test_the_fit_is_reproduced_by_its_script() -> None:
    table = data_dir("benchdata") / "memory_rest.csv"
    before = table.read_bytes()
    script = Path(__file__).parents[2] / "scripts" / "fit_memory.py"
    result = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True
    )
    told = result.stdout + result.stderr
    assert result.returncode == 0, f"{told}\nrun scripts/update fits"
    assert table.read_bytes() == before


STUDY = PoolQuestion(
    memory_mib=97887,
    compute_capability="12.0",
    gpu_memory_utilization=0.80,
    tp=2,
    checkpoint="Qwen/Qwen3.6-27B-FP8",
    quant="fp8",
    files_gib=28.75,
    max_num_batched_tokens=32768,
    max_num_seqs=128,
    prefix_cache=False,
    spec_method="mtp",
    spec_tokens=3,
    capture_size=256,
    engine_version="0.20",
    fork=True,
)


@pytest.mark.parametrize(
    ("utilization", "kv", "full", "context"),
    [
        (0.80, "bf16", 6, 45_600),
        (0.85, "bf16", 7, 50_400),
        (0.88, "bf16", 7, 53_600),
        (0.80, "fp8", 12, 91_200),
        (0.85, "fp8", 13, 100_800),
        (0.88, "fp8", 14, 107_200),
    ],
)
def test_two_study_cards_come_out_before_start(
    utilization: float, kv: str, full: int, context: int
) -> None:
    answer = estimate_pool(replace(STUDY, gpu_memory_utilization=utilization, kv_cache_dtype=kv))
    blocks = int(answer.blocks.value)
    assert answer.blocks.kind is Kind.INTERPOLATED
    assert full_length_requests(answer.layout, blocks, 262144) == full
    assert longest_context_for(answer.layout, blocks, 32) == context


HOME = PoolQuestion(
    memory_mib=24576,
    compute_capability="8.6",
    gpu_memory_utilization=0.92,
    tp=1,
    checkpoint="Lorbus/Qwen3.6-27B-int4-AutoRound",
    quant="int4-autoround",
    files_gib=18.1,
    max_num_batched_tokens=4128,
    max_num_seqs=1,
    prefix_cache=False,
    kv_cache_dtype="fp8",
)


@pytest.mark.parametrize(
    ("question", "least"),
    [
        pytest.param(HOME, 17, id="24GB-int4-one-seat-fits-20k"),
        pytest.param(
            replace(
                HOME,
                memory_mib=32607,
                compute_capability="12.0",
                text_only=False,
                gpu_memory_utilization=0.94,
                spec_method="mtp",
                spec_tokens=3,
                prefix_cache=True,
            ),
            179,
            id="32GB-int4-full-length",
        ),
        pytest.param(
            replace(
                HOME,
                memory_mib=32607,
                compute_capability="12.0",
                text_only=False,
                quant="nvfp4",
                checkpoint="nvidia/Qwen3.6-27B-NVFP4",
                files_gib=20.5,
                gpu_memory_utilization=0.85,
                max_num_batched_tokens=8192,
                spec_method="mtp",
                spec_tokens=3,
            ),
            53,
            id="32GB-nvfp4-64k",
        ),
    ],
)
def test_small_cards_that_work_are_not_refused(question: PoolQuestion, least: int) -> None:
    assert estimate_pool(question).blocks.value >= least


def test_bf16_leaves_nothing_on_one_48gb_card() -> None:
    question = replace(
        HOME, memory_mib=46068, quant="bf16", checkpoint="Qwen/Qwen3.6-27B", files_gib=51.75
    )
    assert estimate_pool(question).blocks.high == 0


def test_stated_cache_bytes_skip_the_budget() -> None:
    answer = estimate_pool(replace(STUDY, kv_cache_bytes=100 * 27_852_800))
    assert (answer.blocks.value, answer.blocks.low) == (100, 100)


@pytest.mark.parametrize(
    ("logged", "quant", "files", "tp", "method"),
    [
        (50.22, "bf16", 51.75, 1, "none"),
        (28.08, "fp8", 28.75, 1, "mtp"),
        (14.31, "fp8", 28.75, 2, "mtp"),
        (15.96, "fp8", 28.75, 2, "dflash"),
        (27.18, "bf16", 51.75, 2, "dflash"),
        (9.1, "int4-autoround", 18.1, 2, "mtp"),
    ],
)
def test_loaded_weights_are_those_logged(
    logged: float, quant: str, files: float, tp: int, method: str
) -> None:
    estimate = loaded_weights(files, tp=tp, quant=quant, text_only=True, spec_method=method)
    assert estimate.low <= logged <= estimate.high


@given(st.floats(0.5, 0.98), st.floats(0.5, 0.98), st.integers(1, 1024), st.integers(1, 1024))
def test_more_memory_or_fewer_seats_never_shrink_the_pool(
    low: float, high: float, a: int, b: int
) -> None:
    low, high = sorted((low, high))
    few, many = sorted((a, b))
    fit = replace(STUDY, fork=False, capture_size=None, max_num_batched_tokens=8192)

    def pool(utilization: float, seats: int) -> float:
        question = replace(fit, gpu_memory_utilization=utilization, max_num_seqs=seats)
        return estimate_pool(question, known=()).blocks.value

    assert pool(low, few) <= pool(high, few)
    assert pool(high, many) <= pool(high, few)


def test_a_gguf_cache_is_counted_in_tokens_and_slots() -> None:
    assert cache_bytes_per_token() == 16 * 2 * 4 * 256 * 2
    assert cache_bytes_per_token("q8_0", "q8_0") == pytest.approx(34816)
    assert STATE_BYTES == 48 * 4 * (3 * 10240 + 48 * 128 * 128)


@pytest.mark.parametrize("sure", [True, False])
def test_the_longest_context_of_a_gguf_fills_the_card(sure: bool) -> None:
    server = LlamaServer(16.0, cards=1, context=0, slots=2)
    longest = server.longest(23.7, sure=sure)
    assert longest > 65536

    def need(context: int) -> float:
        total = replace(server, context=context).card().total
        return total.high if sure else total.value

    assert need(longest) <= 23.7 < need(longest + 256)
    assert LlamaServer(26.0, cards=1, context=0, slots=1).longest(23.7, sure=sure) == 0


def test_a_larger_card_keeps_more_beside_the_cache() -> None:
    """An H200 with steps of 8,192 tokens left 1.4 GiB more than a fit without the card said."""
    error = next(error for error in ERRORS if error.id == "h200-fp8-mtp3-b8192-uncached")
    assert error.use == "held-out" and error.covered
    assert abs(error.error) <= 0.006
