"""Launches of which somebody knows what became of them: outcome, findings, blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwendeploy.auditing.judging.judge import Judged, judge_launch
from qwendeploy.auditing.judging.together import with_neighbours
from qwendeploy.auditing.reading.read import read_launch_text
from qwendeploy.auditing.score import Case, read_cases, score_case, score_folder
from qwendeploy.auditing.understanding.context import described
from qwendeploy.auditing.understanding.memory import why_no_pool

FOLDER = Path(__file__).parents[1] / "data" / "audit"
CASES = read_cases(FOLDER)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_known_outcome_is_found(case: Case) -> None:
    score = score_case(case)
    assert score.outcome_right, f"{score.outcome} instead of {score.expected_outcome}"
    assert not score.missed
    assert not score.listed_alarms
    assert score.blocks_right is not False
    if score.works:
        assert not score.false_errors and not score.false_warnings


def test_all_cases_together() -> None:
    score = score_folder(FOLDER)
    assert {case.name for case in score.cases} == {path.name for path in CASES}
    assert score.recall >= 0.98
    assert score.outcomes_right >= 0.98
    assert score.working_with_false_error == 0
    assert score.false_warnings_per_case <= 0.05


def test_observed_pools_come_out() -> None:
    errors = [score.pool_error for score in map(score_case, CASES) if score.pool_error is not None]
    assert len(errors) >= 15
    assert sum(error <= 0.06 for error in errors) == len(errors)


PRO6000 = {
    "gpu": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "count": 2,
    "vram_mib": 97887,
    "driver": "595.71.05",
    "interconnect": "pcie",
    "os": "linux",
    "vllm_version": "0.24.0",
}
BASE = (
    "VLLM_USE_DEEP_GEMM=0 vllm serve Qwen/Qwen3.6-27B-FP8 --host 127.0.0.1 -tp 2 "
    "--max-model-len 131072 "
    "--max-num-seqs 32 --max-num-batched-tokens 8192 --gpu-memory-utilization 0.85 "
    "--no-enable-prefix-caching --reasoning-parser qwen3"
)


def judged(command: str, **machine: object) -> Judged:
    return judge_launch(read_launch_text(command, "run.sh")[0], described({**PRO6000, **machine}))


def told(result: Judged, severity: str = "error") -> set[str]:
    return {found.id for found in result.findings if found.severity == severity}


def test_a_sound_command_is_left_alone() -> None:
    result = judged(BASE)
    assert result.outcome == "works"
    assert not told(result) and not told(result, "warning")


@pytest.mark.parametrize(
    ("added", "version", "finding"),
    [
        ("--max-model-length 4096", "0.24.0", "unknown-flag"),
        ("--enable-chunk-prefil", "0.24.0", "unknown-flag"),
        ("--max-num-seqs many", "0.24.0", "bad-flag-value"),
        ("--kv-cache-dtype fp9", "0.24.0", "bad-flag-value"),
        ("--swap-space 4", "0.24.0", "removed-flag"),
        ("--max-num-partial-prefills 2", "0.28.0", "removed-flag"),
        ("--spec-method mtp --spec-tokens 2", "0.20.1", "unknown-flag"),
        ('--speculative-config \'{"method":"mtp","num_tokens":3}\'', "0.24.0", None),
        ("--speculative-config {method:mtp}", "0.24.0", "bad-speculative-config"),
        ("--speculative-config.method=mtp --speculative-config.num_spec_tokens=3", "0.24.0", None),
        ("leftover", "0.24.0", "stray-argument"),
        ("--max-num-seqs 3000", "0.24.0", "max-num-seqs-above-blocks"),
    ],
)
def test_a_fault_of_the_command_line_stops_the_start(
    added: str, version: str, finding: str | None
) -> None:
    result = judged(f"{BASE} {added}", vllm_version=version)
    assert result.outcome == "fails_at_start"
    assert (finding or "unknown-speculative-key") in told(result)


def test_a_quoted_json_taken_apart_by_the_shell_is_named() -> None:
    result = judged(f'{BASE} --speculative-config {{"method":"mtp","num_speculative_tokens":3}}')
    assert "bad-speculative-config" in told(result)


@pytest.mark.parametrize(
    ("version", "on"), [("0.20.1", False), ("0.27.1", False), ("0.28.0", True), ("0.33.0", True)]
)
def test_prefix_caching_is_filled_in_as_the_version_has_it(version: str, on: bool) -> None:
    command = BASE.replace("--no-enable-prefix-caching ", "")
    value = judged(command, vllm_version=version).understood.values["prefix_cache"]
    assert (value.value, value.stated) == (on, False)


@pytest.mark.parametrize(("version", "share"), [("0.19.1", 0.90), ("0.20.0", 0.92)])
def test_the_memory_share_is_filled_in(version: str, share: float) -> None:
    command = BASE.replace("--gpu-memory-utilization 0.85 ", "")
    values = judged(command, vllm_version=version).understood.values
    assert values["gpu_memory_utilization"].value == share


@pytest.mark.parametrize(
    ("gpu", "mib", "seats", "step"),
    [
        ("NVIDIA H200", 143771, 1024, 8192),
        ("NVIDIA A100-SXM4-80GB", 81920, 256, 2048),
        ("NVIDIA GeForce RTX 3090", 24576, 256, 2048),
    ],
)
def test_seats_and_steps_default_by_card(gpu: str, mib: int, seats: int, step: int) -> None:
    command = "vllm serve Qwen/Qwen3.6-27B-FP8 --host 127.0.0.1"
    values = judged(command, gpu=gpu, vram_mib=mib, count=1).understood.values
    assert values["max_num_seqs"].value == seats
    assert values["max_num_batched_tokens"].value == step


@pytest.mark.parametrize(
    ("command", "machine", "why"),
    [
        ("llama-server -m q.gguf", {}, "the memory model covers vLLM only"),
        (BASE, {"gpu": "AMD Instinct MI300X"}, "the memory model covers NVIDIA GPUs only"),
        (BASE, {"gpu": "Mystery Card 9000"}, "unknown: compute capability of the GPU"),
        (f"{BASE} -pp 2", {}, "the memory model does not cover pipeline parallelism"),
        (
            BASE.replace("--max-model-len 131072", "--max-model-len $LENGTH"),
            {"gpu": "Mystery Card 9000"},
            "unknown: --max-model-len, compute capability of the GPU",
        ),
    ],
)
def test_what_keeps_the_pool_from_a_figure_is_named(
    command: str, machine: dict[str, str], why: str
) -> None:
    result = judged(command, **machine)
    assert result.view is None
    assert why_no_pool(result.understood) == why


@pytest.mark.parametrize(
    ("written", "tokens"), [("256k", 256_000), ("256K", 262_144), ("131072", 131_072)]
)
def test_lengths_are_read_as_the_engine_reads_them(written: str, tokens: int) -> None:
    result = judged(BASE.replace("131072", written))
    assert result.understood.values["max_model_len"].value == tokens
    assert ("decimal-suffix" in told(result, "info")) is written.endswith("k")


@pytest.mark.parametrize(
    ("network", "reach"),
    [
        ("-p 127.0.0.1:8000:8000", "loopback"),
        ("-p 8000:8000", "all"),
        ("-p 0.0.0.0:8000:8000", "all"),
        ("-p 192.168.1.5:8000:8000", "host"),
        ("--network host", "all"),
        ("", "unknown"),
    ],
)
def test_who_reaches_a_published_port(network: str, reach: str) -> None:
    command = (
        f"docker run --gpus all --ipc=host {network} -v /h:/root/.cache/huggingface "
        "vllm/vllm-openai:v0.24.0 Qwen/Qwen3.6-27B-FP8 -tp 2"
    )
    assert judged(command).understood.network == reach


def test_a_port_that_leads_nowhere() -> None:
    command = (
        "docker run --gpus all --ipc=host -p 127.0.0.1:8000:8000 -v /m:/models "
        "vllm/vllm-openai:v0.24.0 /models/Qwen3.6-27B-FP8 -tp 2 --port 9000 --max-num-seqs 8"
    )
    assert "port-leads-nowhere" in told(judged(command))


def test_weights_that_every_container_fetches_again() -> None:
    command = (
        "docker run --gpus all --ipc=host -p 127.0.0.1:8000:8000 {} vllm/vllm-openai:v0.24.0 "
        "Qwen/Qwen3.6-27B-FP8 -tp 2 --max-num-seqs 8"
    )
    assert "weights-not-cached" in told(judged(command.format("")), "warning")
    kept = command.format("-v hf:/root/.cache/huggingface")
    assert "weights-not-cached" not in told(judged(kept), "warning")
    elsewhere = command.format("-e HF_HOME=/hf -v /srv:/hf")
    assert "weights-not-cached" not in told(judged(elsewhere), "warning")


def test_a_mounted_folder_names_the_checkpoint() -> None:
    command = (
        "docker run --gpus all -v /srv/Qwen3.6-27B-int4-AutoRound:/model vllm/vllm-openai:v0.24.0 "
        "/model -tp 2"
    )
    checkpoint = judged(command).understood.checkpoint
    assert checkpoint is not None
    assert (checkpoint.model, checkpoint.quant) == ("qwen3.6-27b", "int4-autoround")


def test_another_model_is_not_measured_by_this_one() -> None:
    result = judged(BASE.replace("Qwen3.6-27B-FP8", "Qwen3.6-35B-A3B-FP8"))
    assert result.view is None
    assert not told(result)


def test_an_unknown_engine_version_asserts_nothing() -> None:
    result = judged(f"{BASE} --brand-new-flag 1", vllm_version=None)
    assert not told(result)
    assert "unknown-flag" in told(result, "warning")


def test_a_line_without_its_backslash_loses_what_follows() -> None:
    text = BASE.replace(" --max-num-seqs", "\n  --max-num-seqs").replace(
        " --no-enable", " \\ \n --no-enable"
    )
    result = judged(text)
    assert "line-not-continued" in told(result)
    assert not result.understood.values["max_num_seqs"].stated


@pytest.mark.parametrize(
    ("item", "finding"),
    [
        ("--max-num-seqs 8", "flag-and-value-in-one-argument"),
        ('--speculative-config=\'{"method":"mtp"}\'', "bad-speculative-config"),
    ],
)
def test_list_items_that_are_no_arguments(item: str, finding: str) -> None:
    text = (
        "services:\n  l:\n    image: vllm/vllm-openai:v0.24.0\n    gpus: all\n"
        f"    command:\n    - Qwen/Qwen3.6-27B-FP8\n    - {item}\n"
    )
    launch = read_launch_text(text, "compose.yml")[0]
    assert finding in told(judge_launch(launch, described(PRO6000)))


@pytest.mark.parametrize(
    "added",
    [
        "--gpu-memory-utilization 90",
        "--gpu-memory-utilization 1.2",
        "--max-num-seqs 0",
        "--port 80000",
        "--max-num-batched-tokens 16",
        "--no-enable-chunked-prefill",
    ],
)
def test_numbers_out_of_range(added: str) -> None:
    assert "bad-flag-value" in told(judged(f"{BASE} {added}"))


def test_two_servers_that_share_a_card() -> None:
    service = (
        "  {}:\n    image: vllm/vllm-openai:v0.24.0\n    gpus: all\n    ipc: host\n"
        "    ports: ['127.0.0.1:{}:8000']\n    volumes: ['/m:/models']\n"
        "    command: [/models/Qwen3.6-27B-FP8, --max-num-seqs, '8', --max-model-len, '8192', "
        "--gpu-memory-utilization, '{}', --no-enable-prefix-caching]\n"
    )

    def both(port: int, share: float) -> list[set[str]]:
        text = "services:\n" + service.format("a", 8000, 0.45) + service.format("b", port, share)
        pair = [
            judge_launch(launch, described(PRO6000))
            for launch in read_launch_text(text, "compose.yml")
        ]
        return [told(result) for result in with_neighbours(pair)]

    assert both(8001, 0.6)[1] == {"card-shared-beyond-memory"}
    assert both(8000, 0.45)[1] == {"port-taken"}
    assert both(8001, 0.45) == [set(), set()]


@pytest.mark.parametrize(
    ("options", "findings"),
    [
        ("-c 32768 -ngl 99", set()),
        ("-c 262144 -ngl 99", {"gguf-does-not-fit"}),
        ("-c 262144 -ngl 20", set()),
        ("-c 32768 -ngl 99 -ctk q9", {"bad-flag-value"}),
    ],
)
def test_a_gguf_on_one_24_gb_card(options: str, findings: set[str]) -> None:
    command = f"llama-server -m /m/Qwen3.6-27B-UD-Q4_K_XL.gguf {options}"
    result = judged(command, gpu="NVIDIA GeForce RTX 3090", vram_mib=24576, count=1)
    assert told(result) == findings
    assert result.understood.network == "loopback"
