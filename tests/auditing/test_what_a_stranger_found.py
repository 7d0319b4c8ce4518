"""What somebody found who had read nothing but the README."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Ran

from qwendeploy.auditing.reading.checkpoint_names import name_checkpoint

Run = Callable[..., Ran]
FAULTY = "vllm serve Qwen/Qwen3.6-27B-FP8 --gpu-memory-utilization 1.7 --max-num-seqs 8\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(
            ("predict", "--gpu", "H200", "--quant", "fp8", "--c", "4097"),
            "above 4096",
            id="more-requests-than-a-workload-states",
        ),
        pytest.param(
            ("recommend", "--gpu", "DGX Spark", "--gpus", "2"), "2 machines", id="two-sparks"
        ),
    ],
)
def test_what_no_machine_or_load_is_gives_one_line(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    ran = run(*arguments)
    assert ran.code == 2 and words in ran.err and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [("max_model_len", "-7"), ("max_num_seqs", "0"), ("gpu_memory_utilization", "1.5")],
)
@pytest.mark.parametrize("verb", [("predict", "--plan"), ("generate", "-f", "docker", "-o", "out")])
def test_impossible_value_of_a_plan_is_named_by_every_verb(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: tuple[str, ...],
    key: str,
    value: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = tmp_path / "plan.yaml"
    assert run("recommend", "--gpu", "H200", "-o", plan).code == 0
    lines = plan.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith(f"{key}:"))
    lines[at] = f"{lines[at].partition(':')[0]}: {value}"
    plan.write_text("\n".join(lines))
    ran = run(*verb, plan)
    assert ran.code == 2 and key in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("audit", "launch.sh", "--gpu", "RTX 5090"), 1),
        (("recommend", "--gpu", "RTX 3090", "--gpus", "2", "--ctx", "10M"), 1),
        (("recommend", "--gpu", "H200"), 0),
        (("data", "list"), 0),
    ],
)
def test_exit_code_is_the_verdict_however_much_is_read(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    (tmp_path / "launch.sh").write_text(FAULTY)
    command = [sys.executable, "-m", "qwendeploy", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == code
    assert b"Traceback" not in said and b"BrokenPipe" not in said


def test_card_of_a_description_without_memory_is_the_catalogues(run: Run, tmp_path: Path) -> None:
    machine, launch = tmp_path / "machine.yaml", tmp_path / "launch.sh"
    machine.write_text("gpu: RTX 5090\ncount: 1\nos: wsl2\n")
    launch.write_text(
        "docker run --gpus all vllm/vllm-openai:v0.25.1 --model Qwen/Qwen3.6-27B-FP8"
        " --max-model-len 65536 --max-num-seqs 2 --gpu-memory-utilization 0.90\n"
    )
    ran = run("audit", launch, "--machine", machine)
    assert ran.code == 1 and "weights-leave-no-cache" in ran.out
    assert "a smaller checkpoint (int4)" in ran.out


def test_values_that_no_release_takes_are_errors_without_a_release(
    run: Run, tmp_path: Path
) -> None:
    launch = tmp_path / "launch.sh"
    launch.write_text("vllm serve Qwen/Qwen3.6-27B-FP8 --max-model-len banana -tp two\n")
    ran = run("audit", launch, "--gpu", "RTX PRO 6000", "--gpus", "2")
    assert ran.code == 1 and ran.out.count("error: ") == 2
    launch.write_text("vllm serve Qwen/Qwen3.6-27B-FP8 --max-model-len auto -tp $TP\n")
    assert "bad-flag-value" not in run("audit", launch, "--gpu", "RTX PRO 6000").out
    launch.write_text(FAULTY)
    assert "--gpu-memory-utilization 0.9\n" in run("audit", launch, "--gpu", "RTX 5090").out


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("meta-llama/Llama-3-8B", "llama-3-8b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b-instruct"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("google/gemma-3-27b-it", "gemma-3-27b-it"),
        ("someone/Qwen3.6-27B-DeepSeek-distill", "qwen3.6-27b"),
        ("someone/My-27B-Opus", None),
        ("optimum/x", None),
    ],
)
def test_models_of_other_families_are_told_apart(name: str, model: str | None) -> None:
    assert name_checkpoint(name).model == model


def test_nothing_of_this_model_is_said_of_another(run: Run, tmp_path: Path) -> None:
    launch = tmp_path / "launch.sh"
    launch.write_text("vllm serve meta-llama/Llama-3-8B --host 127.0.0.1\n")
    said = run("audit", launch, "--gpu", "RTX 5090").out
    assert "other-model" in said and "reasoning-parser" not in said and "hybrid" not in said
