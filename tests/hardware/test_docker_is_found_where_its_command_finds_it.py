"""Contexts of the ``docker`` command: rootless Docker and Docker Desktop listen elsewhere."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from real_daemon import Daemon
from real_tools import need, run

from qwendeploy.hardware.checks.host import docker_state
from qwendeploy.hardware.live.docker_host import USUAL_HOST, docker_host
from qwendeploy.running import watching


def context(folder: Path, name: str, host: str, *, use: bool = True) -> None:
    """Make a context by the command itself."""
    env = {"DOCKER_CONFIG": str(folder), "DOCKER_HOST": ""}
    made = run(*(need("docker"), "context", "create", name, "--docker", f"host={host}"), env=env)
    assert made.returncode == 0, made.stderr
    if use:
        assert run(need("docker"), "context", "use", name, env=env).returncode == 0


def test_context_in_use_names_the_daemon(tmp_path: Path) -> None:
    context(tmp_path, "rootless", "unix:///run/user/1000/docker.sock")
    context(tmp_path, "other.one", "tcp://10.0.0.1:2375", use=False)
    here = {"DOCKER_CONFIG": str(tmp_path)}

    assert docker_host(here) == "unix:///run/user/1000/docker.sock"
    assert docker_host({**here, "DOCKER_CONTEXT": "other.one"}) == "tcp://10.0.0.1:2375"
    assert docker_host({**here, "DOCKER_CONTEXT": "default"}) == USUAL_HOST
    assert docker_host({**here, "DOCKER_HOST": "unix:///mine.sock"}) == "unix:///mine.sock"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"currentContext": 3}', '{"currentContext": "gone"}', "{"]
)
def test_damaged_configuration_is_the_usual_daemon(tmp_path: Path, text: str) -> None:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(text)

    assert docker_host({"HOME": str(tmp_path)}) == USUAL_HOST
    assert docker_host({}) == USUAL_HOST


@pytest.mark.container
def test_daemon_of_a_context_is_used(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context(tmp_path, "own", daemon.host)
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    assert docker_state().reachable
    assert watching.status(None) == ()


def test_a_daemon_behind_a_port_that_refuses_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{one.getsockname()[1]}"
    monkeypatch.setenv("DOCKER_HOST", address)
    state = docker_state()
    assert (state.reachable, state.problem) == (False, f"{address}: Connection refused")


@pytest.mark.parametrize("address", ["garbage", "ssh://nobody@127.0.0.1", "tcp://", "tcp://a:b"])
def test_an_address_that_is_none_is_a_state(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    state = docker_state()
    assert not state.reachable and state.problem.startswith(f"{address}: ")
