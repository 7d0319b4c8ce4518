"""Help needs no verb's modules; recommend needs neither pandas nor a network library."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = {"pandas", "docker", "httpx", "aiohttp", "uvloop", "requests", "scipy", "prometheus_client"}
RECOMMEND = [
    "recommend",
    "--gpu",
    "RTX PRO 6000 Blackwell Workstation",
    "--gpus",
    "2",
    "--ctx",
    "256k",
    "--c",
    "32",
]
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
        [sys.executable, "-c", PROGRAM, *args], capture_output=True, text=True, check=True
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
    ],
)
def test_slow_modules_stay_out(args: list[str], forbidden: set[str]) -> None:
    loaded = modules_after(args)

    assert "click" in loaded
    assert loaded & forbidden == set()
