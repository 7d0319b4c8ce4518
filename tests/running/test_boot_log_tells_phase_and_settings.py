"""The engine's own start-up lines: phases in order, and what was really applied.

``tests/data/boot_logs`` holds lines of vLLM 0.20.1 from own H200 measurements, others left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qwendeploy.engines.vllm.boot_log import KEPT_LINES, PHASES, BootLog

LOGS = Path(__file__).parents[1] / "data" / "boot_logs"


def read(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", ["fp8-mtp3-warm", "bf16-first"])
def test_phases_come_in_order_and_end_in_serving(name: str) -> None:
    log = BootLog()

    seen = [log.phase, *(log.phase for line in read(name) if log.read(line))]

    assert seen == list(PHASES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "fp8-mtp3-warm",
            {
                "engine_version": "0.20.1",
                "spec_method": "mtp",
                "spec_tokens": 3,
                "attention_backend": "FLASH_ATTN",
                "weights_gib": 28.08,
                "weights_s": 1.775911,
                "kv_gib": 88.96,
                "kv_tokens": 1_309_955,
                "max_concurrency": 5.0,
                "block_tokens": 800,
                "graphs_gib": 0.72,
                "warm": True,
            },
            id="fp8-mtp3",
        ),
        pytest.param(
            "bf16-first",
            {
                "engine_version": "0.20.1",
                "spec_method": "none",
                "spec_tokens": 0,
                "attention_backend": "FLASH_ATTN",
                "weights_gib": 50.22,
                "kv_gib": 66.41,
                "kv_tokens": 1_066_257,
                "max_concurrency": 4.07,
                "block_tokens": 784,
                "graphs_gib": 0.59,
                "warm": False,
                "compile_s": 54.33,
            },
            id="bf16",
        ),
    ],
)
def test_facts_are_those_of_the_log(name: str, expected: dict[str, Any]) -> None:
    log = BootLog().read_all(read(name))

    assert {key: getattr(log, key) for key in expected} == pytest.approx(expected)
    assert log.config["tensor_parallel_size"] == "1"
    assert log.arguments["max_model_len"] == 262144
    assert log.arguments["gpu_memory_utilization"] == 0.88


def test_compile_time_of_target_and_drafter_adds_up() -> None:
    assert BootLog().read_all(read("fp8-mtp3-warm")).compile_s == pytest.approx(10.72 + 1.22)


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        pytest.param(
            "(Worker_TP1 pid=9) INFO [gpu_model_runner.py:1] Model loading took 14.1 GiB and 5.2 s",
            "weights_gib",
            14.1,
            id="worker-older-wording",
        ),
        pytest.param(
            "Loading safetensors checkpoint shards:  50% Completed | 4/8 [00:10<00:10]",
            "shards_percent",
            50,
            id="shards",
        ),
        pytest.param(
            "INFO [cuda.py:1] Using AttentionBackendEnum.FLASHINFER attention backend.",
            "attention_backend",
            "FLASHINFER",
            id="backend-enum",
        ),
        pytest.param(
            "INFO [core.py:1] Initializing a V1 LLM engine (v0.1.dev17236+g50272be4a.d20260602)"
            " with config: model='x', speculative_config=SpeculativeConfig(method='dflash',"
            " model='y', num_spec_tokens=8), tensor_parallel_size=2",
            "spec_method",
            "dflash",
            id="fork",
        ),
        pytest.param(
            "INFO [kv_cache_utils.py:1] GPU KV cache size: 997,440 tokens",
            "kv_tokens",
            997_440,
            id="tokens",
        ),
        pytest.param("INFO non-default args: {'a': Path('x')}", "arguments", {}, id="no-literal"),
        pytest.param("\x00\xff garbage {", "phase", "starting", id="garbage"),
    ],
)
def test_line_is_read_in_every_wording(line: str, name: str, value: Any) -> None:
    log = BootLog().read_all([line])

    assert getattr(log, name) == value


def test_first_worker_counts_and_the_drafters_backend_does_not() -> None:
    log = BootLog().read_all(
        [
            "(Worker_TP0 pid=1) INFO Using FLASHINFER attention backend out of potential backends",
            "(Worker_TP0 pid=1) INFO Model loading took 14.00 GiB memory and 3.0 seconds",
            "(Worker_TP1 pid=2) INFO Using FLASH_ATTN attention backend out of potential backends",
            "(Worker_TP1 pid=2) INFO Model loading took 15.00 GiB memory and 9.0 seconds",
        ]
    )

    assert (log.attention_backend, log.weights_gib) == ("FLASHINFER", 14.0)


def test_later_phase_is_never_left_for_an_earlier_one() -> None:
    log = BootLog().read_all(
        [
            "GPU KV cache size: 1 tokens",
            "torch.compile took 1.2 s in total",
            "Starting to load model x",
        ]
    )

    assert log.phase == "memory"


def test_only_so_many_lines_are_kept() -> None:
    log = BootLog().read_all(f"line {number}" for number in range(KEPT_LINES + 5))

    assert len(log.lines) == KEPT_LINES
    assert log.lines[0] == "line 5"
