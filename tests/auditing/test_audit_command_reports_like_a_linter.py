"""``qwendeploy audit``: exit codes, places, JSON contract, corrected commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from qwendeploy.auditing.correcting.correct import correct
from qwendeploy.auditing.judging.judge import judge_launch
from qwendeploy.auditing.reading.read import read_launch_text
from qwendeploy.auditing.understanding.context import described
from qwendeploy.cli.audit import command
from qwendeploy.errors import EnvironmentProblem, UserError

MACHINE = """\
gpu: NVIDIA RTX PRO 6000 Blackwell Workstation Edition
count: 2
vram_mib: 97887
driver: 595.71.05
interconnect: pcie
os: linux
vllm_version: 0.24.0
"""
SOUND = (
    "vllm serve Qwen/Qwen3.6-27B-FP8 --host 127.0.0.1 -tp 2 --max-model-len 131072 "
    "--max-num-seqs 32 --max-num-batched-tokens 8192 --gpu-memory-utilization 0.85 "
    "--no-enable-prefix-caching --reasoning-parser qwen3"
)


def run(tmp_path: Path, text: str, *options: str, machine: str = MACHINE) -> Result:
    launch, described_by = tmp_path / "run.sh", tmp_path / "machine.yaml"
    launch.write_text(text)
    described_by.write_text(machine)
    arguments = [str(launch), "--machine", str(described_by), *options]
    return CliRunner().invoke(command, arguments, standalone_mode=False)


def test_a_clean_command_exits_0(tmp_path: Path) -> None:
    result = run(tmp_path, SOUND, "--no-compare")
    assert result.return_value == 0
    assert "starts and runs as configured" in result.output


def test_what_was_not_judged_is_not_called_working(tmp_path: Path) -> None:
    result = run(tmp_path, f"{SOUND} -pp 2", "--no-compare", machine=MACHINE.replace("2", "4", 1))
    assert result.return_value == 0
    assert "runs as configured" not in result.output
    assert "no error found; memory was not checked" in result.output
    assert "the memory model does not cover pipeline parallelism" in result.output
    assert "tok/s" not in result.output


def test_an_error_exits_1_and_names_its_place(tmp_path: Path) -> None:
    result = run(tmp_path, f"{SOUND} \\\n  --enable-expert-parallel\n", "--no-compare")
    assert result.return_value == 1
    assert "run.sh:2: error: --enable-expert-parallel [expert-parallel-on-dense]" in result.output
    assert "does not start" in result.output


def test_strict_counts_warnings(tmp_path: Path) -> None:
    text = SOUND.replace("--no-enable", "--enable") + (
        ' --speculative-config \'{"method":"mtp","num_speculative_tokens":3}\''
    )
    assert run(tmp_path, text, "--no-compare").return_value == 0
    assert run(tmp_path, text, "--no-compare", "--strict").return_value == 1


def test_the_json_has_the_contracts_names(tmp_path: Path) -> None:
    result = run(tmp_path, SOUND, "--json")
    document = json.loads(result.stdout)
    assert {"schema", "outcome", "findings", "option", "predictions", "changes"} <= set(document)
    assert document["outcome"] == "works"
    figures = document["predictions"]
    for name in ("kv_pool_blocks", "blocks_per_request", "max_full_length_requests"):
        assert figures[name]["low"] <= figures[name]["value"] <= figures[name]["high"]
    for name, figure in figures.items():
        if figure is None:
            assert name in figures["reasons"]
    for finding in document["findings"]:
        assert set(finding) >= {"id", "severity", "about", "place", "text", "fix"}
    stated = {value["name"]: value["stated"] for value in document["launches"][0]["effective"]}
    assert stated["max_model_len"] and not stated["port"]


def test_a_server_that_does_not_start_has_no_rate(tmp_path: Path) -> None:
    result = run(tmp_path, f"{SOUND} --enable-expert-parallel", "--json")
    figures = json.loads(result.stdout)["predictions"]
    assert figures["aggregate_decode_tps"] is None
    assert figures["reasons"]["aggregate_decode_tps"] == "the server does not start"


def test_standard_input_is_read(tmp_path: Path) -> None:
    machine = tmp_path / "machine.yaml"
    machine.write_text(MACHINE)
    result = CliRunner().invoke(
        command,
        ["-", "--machine", str(machine), "--no-compare"],
        input=SOUND,
        standalone_mode=False,
    )
    assert result.return_value == 0


@pytest.mark.parametrize("text", ["echo nothing\n", "vllm serve 'open\n", "\x00"])
def test_what_cannot_be_read_is_a_user_error(tmp_path: Path, text: str) -> None:
    result = run(tmp_path, text)
    assert isinstance(result.exception, UserError)
    assert result.exception.exit_code == 2


def test_a_bad_machine_file_is_named(tmp_path: Path) -> None:
    result = run(tmp_path, SOUND, machine="gpu: NVIDIA H200\ncount: none\n")
    assert isinstance(result.exception, UserError)
    assert "count" in str(result.exception)


def test_a_container_without_docker_is_an_environment_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    result = CliRunner().invoke(command, ["--container", "q"], standalone_mode=False)
    assert isinstance(result.exception, EnvironmentProblem)


@pytest.mark.parametrize(
    ("text", "wanted", "gone"),
    [
        pytest.param(
            f"{SOUND} --enable-expert-parallel",
            "vllm serve Qwen/Qwen3.6-27B-FP8",
            "--enable-expert-parallel",
            id="flag-removed",
        ),
        pytest.param(
            f'{SOUND} --speculative-config \'{{"method":"mtp","num_spec_tokens":3}}\'',
            '"num_speculative_tokens":3',
            "num_spec_tokens",
            id="key-renamed",
        ),
        pytest.param(
            f"{SOUND} --enable-auto-tool-choice", "--tool-call-parser qwen3_xml", "", id="parser"
        ),
        pytest.param(
            f"{SOUND} --disable-log-requests", "--max-num-seqs 32", "--disable-log", id="removed"
        ),
        pytest.param(
            "docker run -d --name q -e NCCL_P2P_DISABLE=0 -p 127.0.0.1:8000:8000 "
            "-v /h:/root/.cache/huggingface vllm/vllm-openai:v0.24.0 Qwen/Qwen3.6-27B-FP8 "
            "-tp 2 --max-num-seqs 8",
            "--gpus all --ipc=host -e VLLM_USE_DEEP_GEMM=0 vllm/vllm-openai:v0.24.0",
            "NCCL_P2P_DISABLE=0",
            id="container-options",
        ),
    ],
)
def test_the_corrected_command_is_clean(text: str, wanted: str, gone: str) -> None:
    fields = dict(line.split(": ") for line in MACHINE.splitlines())
    context = described({**fields, "count": 2, "vram_mib": 97887, "p2p": False})
    judged = judge_launch(read_launch_text(text, "run.sh")[0], context)
    corrected = correct(judged)
    assert corrected.changed
    assert wanted in corrected.text
    assert not gone or gone not in corrected.text
    again = judge_launch(read_launch_text(corrected.text, "run.sh")[0], context)
    before = {found.id for found in corrected.changed}
    assert not before & {found.id for found in again.findings if found.severity == "error"}


def test_a_fix_leaves_the_rest_as_it_was(tmp_path: Path) -> None:
    text = SOUND.replace("Qwen/Qwen3.6-27B-FP8", '"$MODEL"') + ' --api-key "$KEY" --x-y 1'
    result = run(tmp_path, text, "--fix")
    assert '"$MODEL"' in result.stdout and '--api-key "$KEY"' in result.stdout
    assert "--max-model-len 131072" in result.stdout


def test_compose_gets_a_fragment(tmp_path: Path) -> None:
    text = (
        "services:\n  l:\n    image: vllm/vllm-openai:v0.24.0\n    gpus: all\n    ipc: host\n"
        "    volumes: ['/h:/root/.cache/huggingface']\n"
        "    command: [Qwen/Qwen3.6-27B-FP8, -tp, '2', --enable-expert-parallel]\n"
    )
    file, machine = tmp_path / "compose.yml", tmp_path / "machine.yaml"
    file.write_text(text)
    machine.write_text(MACHINE)
    result = CliRunner().invoke(
        command, [str(file), "--machine", str(machine), "--fix"], standalone_mode=False
    )
    assert result.stdout.startswith('command:\n  - "Qwen/Qwen3.6-27B-FP8"\n')
    assert "expert" not in result.stdout
