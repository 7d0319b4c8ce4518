"""The programs that judge our artefacts, as scripts/install_test_tools.sh lays them out.

A test that needs one of them is skipped where it is absent, except in CI, where it fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parent.parent
TOOLS = Path(os.environ.get("QWENDEPLOY_TEST_TOOLS") or CHECKOUT / ".test-tools")
SBIN = ":/usr/sbin:/sbin"


def need(tool: Path | str) -> str:
    """Return the program's path, or end the test: skipped outside CI, failed in CI."""
    search = os.environ.get("PATH", "") + SBIN + f":{Path(sys.executable).parent}"
    found = shutil.which(str(tool), path=search)
    if found is None:
        message = f"{tool} is missing; scripts/install_test_tools.sh installs it"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


def run(
    *words: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program with text output and no input."""
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        timeout=120,
        check=False,
    )


def lay_out(files: dict[str, tuple[str, int]], directory: Path) -> Path:
    """Write rendered files, with the secrets file that they refer to."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, (text, mode) in files.items():
        (directory / name).write_text(text, encoding="utf-8", newline="")
        (directory / name).chmod(mode)
    (directory / "secrets.env").write_text("VLLM_API_KEY=a-key-for-tests\n")
    return directory


def compose_config(directory: Path) -> dict[str, Any]:
    """Return the compose file as docker compose understands it."""
    program = need(TOOLS / "root/usr/libexec/docker/cli-plugins/docker-compose")
    done = run(
        program,
        "-f",
        str(directory / "compose.yaml"),
        "--profile",
        "verify",
        "config",
        "--format",
        "json",
        env={"HOME": "/root", "HF_HOME": ""},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def verify_unit(unit: Path) -> None:
    """Fail on any line of systemd-analyze verify: it exits 0 for keys that it does not know."""
    need("/usr/bin/docker")
    done = run(need("systemd-analyze"), "--man=no", "verify", str(unit))
    assert (done.returncode, done.stderr) == (0, "")


SAYS_SO = {"systemd-analyze security", "kubernetes-validate --strict", "quadlet -dryrun"}
"""Checks that report also where they accept: their exit status is the answer."""


def accept(words: tuple[str, ...], directory: Path) -> None:
    """Fail unless a check of an artefact, run in its directory, ends with 0 and has no complaint.

    ``words`` name programs as people type them; here they may lie among our tools.
    """
    if words[:2] == ("docker", "compose"):
        plugin = need(TOOLS / "root/usr/libexec/docker/cli-plugins/docker-compose")
        found: tuple[str, ...] = (plugin, *words[2:])
    elif words[0] == "quadlet":
        found = (*newer_debian(TOOLS / "root", "usr/libexec/podman/quadlet"), *words[1:])
    else:
        if words[0] == "systemd-analyze":
            # the unit names it, and a unit whose program is not there is refused
            need("/usr/bin/docker")
        found = (need(words[0]), *words[1:])
    done = run(
        *found,
        env={"HOME": "/root", "HF_HOME": "", "QUADLET_UNIT_DIRS": str(directory)},
        cwd=directory,
    )
    told = "" if " ".join(words[:2]) in SAYS_SO else done.stdout + done.stderr
    assert (done.returncode, told) == (0, ""), done.stdout + done.stderr


def systemd_commands(unit: Path) -> list[list[str]]:
    """Return the argument vectors of a unit's Exec lines as systemd parsed them."""
    done = run(
        need("systemd-analyze"),
        "--man=no",
        "--recursive-errors=no",
        "verify",
        str(unit),
        env={"SYSTEMD_LOG_LEVEL": "debug", "SYSTEMD_LOG_COLOR": "0"},
    )
    ignored = [line for line in done.stderr.splitlines() if "ignoring" in line]
    # the library's list of system calls is older than systemd's: a debug line, no finding
    assert [line for line in ignored if "system call" not in line and "PID 1" not in line] == []
    lines = re.findall(r"^\t*Command Line: (.*)$", done.stdout, re.MULTILINE)
    assert lines, done.stdout + done.stderr
    return [_unquoted(line) for line in lines]


def _unquoted(line: str) -> list[str]:
    """Return the words of systemd's quoted command line, ``$$`` being a dollar at execution."""
    words = []
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"|([^ ]+)', line):
        text = match[1] if match[1] is not None else match[2]
        words.append(_c_unescaped(text).replace("$$", "$"))
    return words


def _c_unescaped(text: str) -> str:
    simple = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "s": " "}

    def one(match: re.Match[bytes]) -> bytes:
        code = match[1].decode()
        if code[0] == "x":
            return bytes([int(code[1:], 16)])
        if code[0].isdigit():
            return bytes([int(code, 8)])
        return simple.get(code, code).encode()

    return re.sub(rb"\\(x[0-9a-f]{2}|[0-7]{3}|.)", one, text.encode()).decode()


def newer_debian(root: Path, program: str) -> tuple[str, ...]:
    """Return the words that start a program of a later Debian release, unpacked at ``root``."""
    library = root / "usr/lib/x86_64-linux-gnu"
    loader = need(library / "ld-linux-x86-64.so.2")
    return (loader, "--library-path", str(library), need(root / program))


def nginx() -> tuple[str, ...]:
    """Return the words that start nginx; skips where the installation could not have it."""
    if (TOOLS / "no-nginx").exists():
        pytest.skip("scripts/install_test_tools.sh found no nginx of Debian forky")
    return newer_debian(TOOLS / "nginx", "usr/sbin/nginx")


def quadlet_service(directory: Path) -> str:
    """Return the service that quadlet makes of the directory's files."""
    done = run(
        *newer_debian(TOOLS / "root", "usr/libexec/podman/quadlet"),
        "-dryrun",
        env={"QUADLET_UNIT_DIRS": str(directory)},
    )
    assert done.returncode == 0, done.stderr
    problems = [line for line in done.stderr.splitlines() if "Loading source unit" not in line]
    assert problems == []
    return done.stdout.partition("---\n")[2]
