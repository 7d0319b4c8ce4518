"""Streams, files and numbers of the odd kind: one line and an exit code, never a traceback."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qwendeploy.documents.disk import write_file
from qwendeploy.documents.files import read_plan
from qwendeploy.errors import UserError

RECOMMEND = ("recommend", "--gpu", "RTX PRO 6000", "--gpus", "2")
PROGRAM = "from qwendeploy.cli import main; main()"


@pytest.mark.parametrize(
    ("verb", "setting"),
    [
        pytest.param("recommend", ["--tpot", "nan"], id="limit-nan"),
        pytest.param("recommend", ["--ttft", "inf"], id="limit-inf"),
        pytest.param("recommend", ["--util", "nan"], id="share-nan"),
        pytest.param("recommend", ["--gpu", "RTX 4090", "--vram", "nan"], id="memory-nan"),
        pytest.param("verify", ["--soak", "inf"], id="soak-inf"),
        pytest.param("verify", ["--window", "nan"], id="window-nan"),
        pytest.param("up", ["plan.yaml", "--timeout", "nan"], id="timeout-nan"),
    ],
)
def test_numbers_that_are_none_are_refused(run: Any, verb: str, setting: list[str]) -> None:
    ran = run(verb, *setting)

    assert ran.code == 2
    assert setting[-2] in ran.err and "Traceback" not in ran.err


@pytest.mark.parametrize("address", ["evil host", "example.com", "127.0.0.1:9", "1.2.3", "$(id)"])
def test_a_server_listens_on_an_address(run: Any, address: str) -> None:
    ran = run(*RECOMMEND, "--listen", address)

    assert ran.code == 2
    assert "--listen" in ran.err


@pytest.mark.parametrize("address", ["localhost", "0.0.0.0", "::1", "10.0.0.7"])
def test_addresses_are_taken(run: Any, address: str) -> None:
    assert run(*RECOMMEND, "--listen", address).code == 0


def test_a_device_is_neither_read_nor_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    for force in (False, True):
        with pytest.raises(UserError, match="regular file"):
            write_file(pipe, b"text", force=force)

    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_an_endless_document_is_refused() -> None:
    with pytest.raises(UserError, match="larger than"):
        read_plan(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("redirect", "encoding", "code"),
    [
        pytest.param(">/dev/full", "utf-8", 2, id="disk-full"),
        pytest.param(">&-", "utf-8", 0, id="closed"),
        pytest.param("2>&-", "utf-8", 0, id="errors-closed"),
        pytest.param(">out", "latin-1", 0, id="latin-1"),
        pytest.param("| head -c1 >out", "utf-8", 0, id="broken-pipe"),
    ],
)
def test_output_that_cannot_be_taken(
    tmp_path: Path, redirect: str, encoding: str, code: int
) -> None:
    line = f'set -o pipefail; "{sys.executable}" -c "{PROGRAM}" recommend --gpus 2 {redirect}'
    ran = subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": encoding, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == code
    assert "Traceback" not in ran.stderr
    assert len(ran.stderr.splitlines()) <= 1


def test_predict_applies_the_longest_request_that_is_stated(run: Any) -> None:
    asked = ("predict", "--gpu", "RTX PRO 6000", "--quant", "fp8", "--ctx", "4k")
    short, long = run(*asked), run(*asked, "--max-model-len", "64k")
    refused = run(*asked, "--max-model-len", "1k")

    assert short.code == long.code == 0
    assert short.out != long.out
    assert refused.code == 2 and "--max-model-len" in refused.err


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(["--util", "0.5"], id="util"),
        pytest.param(["--gpus", "4"], id="gpus"),
        pytest.param(["--isl", "1k"], id="isl"),
        pytest.param(["--vision"], id="vision"),
    ],
)
def test_a_plan_states_everything_itself(run: Any, tmp_path: Path, setting: list[str]) -> None:
    plan = tmp_path / "plan.yaml"
    assert run(*RECOMMEND, "-o", plan).code == 0
    ran = run("predict", "--plan", plan, *setting)

    assert ran.code == 2
    assert setting[0] in ran.err


def test_a_prediction_is_no_wider_than_the_page(run: Any) -> None:
    ran = run("predict", "--gpu", "RTX PRO 6000", "--quant", "fp8", "--c", "1,32", "--ctx", "32k")

    assert ran.code == 0
    assert max(len(line) for line in ran.out.splitlines()) <= 100


def test_a_capability_that_is_none_is_refused_in_a_plan(run: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    assert run(*RECOMMEND, "-o", plan).code == 0
    plan.write_text(plan.read_text().replace("compute_capability: '12.0'", "compute_capability: x"))
    ran = run("predict", "--plan", plan)

    assert ran.code == 2
    assert "compute_capability" in ran.err


def test_the_same_command_again_is_no_overwriting(run: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    assert run(*RECOMMEND, "-o", plan).code == 0
    before = plan.read_text().replace("created: ", "created: '2001-01-01T00:00:00Z' # ", 1)
    plan.write_text(before)

    assert run(*RECOMMEND, "-o", plan).code == 0
    assert plan.read_text() == before
    assert run(*RECOMMEND, "--port", "9", "-o", plan).code == 2
