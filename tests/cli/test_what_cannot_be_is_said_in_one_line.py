"""Settings that no server can have are refused in one line that names what to change."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = "from qwendeploy.cli import main; main()"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        pytest.param(["recommend", "--gpus", "0"], ["--gpus", "1<=x"], id="range"),
        pytest.param(["recommend", "--ctx", "9G"], ["--ctx", "256k"], id="unit"),
        pytest.param(["recommend", "--prefix-cache", "maybe"], ["'auto'"], id="choice"),
        pytest.param(["recommend", "--gpu", "H200", "--vram", "0"], ["--vram", "x>0"], id="memory"),
        pytest.param(["recommend", "--nosuch"], ["--nosuch", "--help"], id="option"),
        pytest.param(["recommend", "extra"], ["extra", "--help"], id="argument"),
        pytest.param(["recomend"], ["did you mean 'recommend'"], id="verb"),
        pytest.param(["data", "shw"], ["'show'"], id="verb-of-a-verb"),
        pytest.param(["generate"], ["PLAN"], id="missing"),
    ],
)
def test_the_command_line_answers_in_one_line(
    run: Any, settings: list[str], says: list[str]
) -> None:
    ran = run(*settings)

    assert ran.code == 2
    assert not ran.out
    assert len(ran.err.splitlines()) == 1 and ran.err.startswith("error: ")
    for word in says:
        assert word.lower() in ran.err.lower()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        pytest.param(
            ["--image", "ghcr.io/ggml-org/llama.cpp:server-cuda-b9246", "--quant", "fp8"],
            ["1 x H200", "--quant fp8", "remove one"],
            id="weights-of-another-engine",
        ),
        pytest.param(
            ["--max-num-seqs", "4096", "--max-num-batched-tokens", "8k"],
            ["max-num-seqs 4096 exceeds", "feasible with --max-num-seqs 2"],
            id="seats",
        ),
        pytest.param(
            ["--util", "0.1"],
            ["leave no KV cache", "feasible with --util 0."],
            id="share",
        ),
        pytest.param(
            ["--vision", "--checkpoint", "sakamakismile/Qwen3.6-27B-Text-NVFP4-MTP"],
            ["has no vision tower", "without --vision"],
            id="blind-weights",
        ),
    ],
)
def test_no_option_names_what_is_in_the_way(run: Any, settings: list[str], says: list[str]) -> None:
    ran = run("recommend", "--gpu", "H200", *settings)

    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    for word in says:
        assert word in ran.err


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        pytest.param(["--tp", "3"], ["3 GPUs", "--tp 1 or --gpus 3"], id="cards"),
        pytest.param(
            ["--gpus", "4", "--tp", "2", "--replicas", "3"],
            ["6 GPUs", "--replicas 2 or --gpus 6"],
            id="copies",
        ),
        pytest.param(
            ["--engine", "llama.cpp", "--tp", "2"], ["2 GPUs", "--tp 1"], id="llama-cards"
        ),
        pytest.param(
            ["--isl", "8k", "--typical-ctx", "2k"],
            ["the typical context 2,048 is below", "--typical-ctx 8192"],
            id="prompt-above-context",
        ),
        pytest.param(
            ["--isl", "32k", "--ctx", "32k"], ["no room for output", "--ctx 33792"], id="full"
        ),
        pytest.param(["--osl", "4k", "--ctx", "4k"], ["a prompt", "--ctx 5120"], id="no-prompt"),
        pytest.param(
            ["--ctx", "1"], ["one input and one output token", "--ctx 32k"], id="one-token"
        ),
        pytest.param(
            ["--prefix-hit", "0.5", "--prefix-cache", "off"],
            ["--prefix-hit", "--prefix-cache on"],
            id="hits-without-cache",
        ),
    ],
)
def test_settings_that_contradict_each_other_name_the_nearest_that_do_not(
    run: Any, settings: list[str], says: list[str]
) -> None:
    for verb in (["recommend"], ["predict", "--quant", "gguf-q8_0"]):
        if verb[0] == "predict" and not {"--tp", "--replicas"} & set(settings):
            continue
        ran = run(*verb, "--gpu", "H200", *settings)

        assert (ran.code, ran.out) == (2, "")
        assert len(ran.err.splitlines()) == 1
        for word in says:
            assert word in ran.err


def test_images_are_kept_by_weights_that_see(run: Any) -> None:
    ran = run("recommend", "--gpu", "RTX PRO 6000", "--vision", "--quant", "nvfp4", "--json")
    plan = json.loads(ran.out)
    out = {e["option"] for e in plan["trace"] if e["rule"] == "checkpoint-without-vision"}

    assert "Text" not in plan["option"]["checkpoint"]
    assert out


def test_seats_that_the_user_states_bind_before_memory(run: Any) -> None:
    ran = run("recommend", "--gpu", "H200", "--c", "32", "--max-num-seqs", "1", "--json")
    plan = json.loads(ran.out)

    assert plan["predictions"]["max_running_requests"]["value"] == 1
    assert plan["headlines"] == [
        "--max-num-seqs lets 1 of 32 requests run at once: the rest queue."
    ]
    assert plan["capacity"][0].startswith("--max-num-seqs limits the plan to 1 concurrent")


def test_a_long_time_is_not_cut_off(run: Any) -> None:
    ran = run("predict", "--gpu", "H200", "--quant", "fp8", "--c", "1", "--ctx", "1k,900k")

    assert "cold TTFT s" in ran.out
    assert "…" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100


@pytest.mark.parametrize(
    "verb", [["data", "list"], ["explain"], ["recommend", "--gpu", "H200", "--json"]]
)
def test_whoever_has_read_enough_ends_it_well(tmp_path: Path, verb: list[str]) -> None:
    line = f'set -o pipefail; "{sys.executable}" -c "{PROGRAM}" {" ".join(verb)} | true'
    for _ in range(3):
        ran = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")


def test_verify_sh_without_the_program_says_how_to_have_it(run: Any, tmp_path: Path) -> None:
    plan, folder = tmp_path / "plan.yaml", tmp_path / "deploy"
    assert run("recommend", "--gpu", "H200", "-o", plan).code == 0
    assert run("generate", plan, "-f", "docker", "-o", folder).code == 0
    (tmp_path / "qwendeploy").mkdir()  # as in a checkout, where the package has the same name

    ran = subprocess.run(
        ["/bin/bash", str(folder / "verify.sh")],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 4
    assert ran.stderr.splitlines() == [
        "qwendeploy is not on the PATH: activate its environment or set QWENDEPLOY to its path"
    ]


@pytest.mark.parametrize(
    ("gpu", "settings"),
    [
        pytest.param("RTX PRO 6000", ["--gpus", "2", "--c", "32", "--tpot", "5"], id="tpot"),
        pytest.param("RTX PRO 6000", ["--gpus", "2", "--c", "32", "--ttft", "100"], id="ttft"),
        pytest.param("RTX 4090", ["--ctx", "256k", "--engine", "vllm"], id="length"),
        pytest.param("H200", ["--c", "32", "--max-num-seqs", "4096"], id="seats"),
        pytest.param("RTX 3090", ["--quality", "near"], id="class"),
    ],
)
def test_what_would_bring_a_plan_back_does(run: Any, gpu: str, settings: list[str]) -> None:
    line = ["recommend", "--gpu", gpu, *settings]
    refused = run(*line)
    assert refused.code == 1
    hint = re.search(r"feasible with (--[a-z-]+) (\w+)", refused.err)
    assert hint is not None, refused.err

    assert run(*line, *hint.groups()).code == 0


def test_a_request_that_does_not_quite_fit_is_not_called_none_of_many(run: Any) -> None:
    told = run("recommend", "--gpu", "RTX 3060 12GB", "--gpus", "2", "--ctx", "32k").out

    assert "1 contexts" not in told and " 0 do" not in told


@pytest.mark.parametrize("kind", ["yaml", "json"])
def test_a_document_of_another_kind_is_no_machine(run: Any, tmp_path: Path, kind: str) -> None:
    plan = tmp_path / f"plan.{kind}"
    if kind == "yaml":
        assert run("recommend", "--gpu", "H200", "-o", plan).code == 0
    else:
        plan.write_text(run("recommend", "--gpu", "H200", "--json").out)
    ran = run("recommend", "--machine", plan)

    assert ran.code == 2
    assert "is 'qwendeploy/plan', not 'qwendeploy/machine'" in ran.err
