"""Fixtures for tests that run the command line in this process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from real_daemon import Daemon, running_daemon
from starting_plans import Box, box_of

from qwendeploy.cli import main

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs deaf to Ctrl-C, and programs under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark ``alone`` what measures time or runs containers: ``scripts/test`` runs it afterwards."""
    for item in items:
        measures = hasattr(getattr(item, "module", None), "known_server")
        if measures or any(item.get_closest_marker(name) for name in ("container", "clock")):
            item.add_marker("alone")


@dataclass(frozen=True)
class Ran:
    """What one command line left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Return a function that runs a command line and returns code, stdout and stderr."""

    def call(*args: str | Path) -> Ran:
        with pytest.raises(SystemExit) as stop:
            main([str(arg) for arg in args])
        captured = capsys.readouterr()
        code = stop.value.code
        return Ran(int(code) if code is not None else 0, captured.out, captured.err)

    return call


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep every test's cache and data folders to itself, and its text as wide as in a file."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg-data"))
    monkeypatch.delenv("COLUMNS", raising=False)
    yield


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """One Docker daemon of our own for all container tests of this process."""
    with running_daemon() as started:
        yield started


@pytest.fixture
def box(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """The daemon with no container, and this process pointed at it."""
    with box_of(daemon, tmp_path, monkeypatch) as prepared:
        yield prepared
