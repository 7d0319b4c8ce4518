"""Help needs no verb's modules; plans and audits need neither pandas nor a network library."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = {"pandas", "docker", "httpx", "aiohttp", "uvloop", "requests", "scipy", "prometheus_client"}
MACHINE = ["--gpu", "RTX PRO 6000 Blackwell Workstation", "--gpus", "2"]
RECOMMEND = ["recommend", *MACHINE, "--ctx", "256k", "--c", "32"]
PREDICT = ["predict", *MACHINE, "--quant", "fp8", "--spec", "none", "--ctx", "32k", "--c", "8"]
AUDIT = ["audit", "-", *MACHINE]
LAUNCH = (
    "docker run --gpus all --ipc=host -p 127.0.0.1:8000:8000 vllm/vllm-openai:v0.24.0"
    " --model Qwen/Qwen3.6-27B-FP8 --tensor-parallel-size 2 --max-model-len 32768"
)
PROGRAM = """
import sys
from qwendeploy.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    print(stop.code or 0, file=sys.stderr)
print(*sorted(name for name in sys.modules if "." not in name), file=sys.stderr)
"""


def modules_after(args: list[str]) -> set[str]:
    """Return the top-level modules loaded after a command line that succeeds."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *args],
        input=LAUNCH,
        capture_output=True,
        text=True,
        check=True,
    )
    code, names = done.stderr.strip().splitlines()[-2:]
    assert code == "0"
    return set(names.split())


@pytest.mark.parametrize(
    ("args", "forbidden"),
    [
        pytest.param(["--help"], SLOW | {"numpy", "pydantic", "ruamel"}, id="help"),
        pytest.param(["recommend", "--help"], SLOW, id="recommend-help"),
        pytest.param(["generate", "--help"], SLOW, id="generate-help"),
        pytest.param(["verify", "--help"], SLOW, id="verify-help"),
        pytest.param(["up", "--help"], SLOW, id="up-help"),
        pytest.param(RECOMMEND, SLOW, id="recommend"),
        pytest.param(PREDICT, SLOW, id="predict"),
        pytest.param(AUDIT, SLOW, id="audit"),
    ],
)
def test_slow_modules_stay_out(args: list[str], forbidden: set[str]) -> None:
    loaded = modules_after(args)

    assert "click" in loaded
    assert loaded & forbidden == set()
