"""Only one ``up`` of a name is under way on a daemon, whoever and wherever starts it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from qwendeploy.errors import EnvironmentProblem
from qwendeploy.running import alone as locks
from qwendeploy.running import found
from qwendeploy.running.alone import alone, lock_path

NOBODY = 65534
HOST = "unix:///var/run/docker.sock"


@pytest.fixture(autouse=True)
def common_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like ``/tmp``: everybody writes, nobody removes what is another's."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    for above in folder.parents:
        if above.stat().st_uid == os.getuid() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o011)
    monkeypatch.setattr(locks, "LOCKS", folder)
    return folder


def outcome(body: Callable[[], object], *, user: int | None = None) -> str:
    """Return what ``body`` raises in a process of its own, which runs as ``user``."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        told = "nothing"
        try:
            if user is not None:
                os.setuid(user)
            body()
        except BaseException as problem:
            told = f"{type(problem).__name__}: {problem}"
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return text


def take(host: str = HOST, name: str = "test") -> None:
    with alone(host, name):
        pass


def test_second_one_is_refused_while_the_first_runs() -> None:
    with alone(HOST, "test"):
        assert "is running" in outcome(take)
    assert outcome(take) == "nothing"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_users_share_the_lock(mask: int, common_folder: Path) -> None:
    before = os.umask(mask)
    try:
        with alone(HOST, "test"):
            told = outcome(take, user=NOBODY)
    finally:
        os.umask(before)
    assert "another `qwendeploy up` for test is running" in told

    # what another user left is used all the same, and goes when its owner uses it
    path = lock_path(HOST, "test")
    path.touch(mode=0o644)
    assert outcome(take, user=NOBODY) == "nothing"
    assert path.exists()
    take()
    assert list(common_folder.iterdir()) == []


def test_temporary_folder_of_a_user_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere() -> None:
        monkeypatch.setenv("TMPDIR", "/var/tmp")
        take()

    with alone(HOST, "test"):
        assert "is running" in outcome(elsewhere)


def test_one_socket_has_one_lock_however_it_is_spelt(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var-run").symlink_to("run")

    one, other = (f"unix://{tmp_path}/{place}/docker.sock" for place in ("run", "var-run"))

    assert lock_path(one, "a") == lock_path(other, "a")
    assert lock_path(one, "a") != lock_path(one, "b")
    assert lock_path(one, "a") != lock_path("tcp://192.0.2.7:2375", "a")


def test_other_daemons_and_names_are_not_locked() -> None:
    with ExitStack() as stack:
        for host in (HOST, "tcp://192.0.2.7:2375"):
            for name in ("test", "other"):
                stack.enter_context(alone(host, name))


def test_lock_of_a_killed_process_is_free(common_folder: Path) -> None:
    def killed() -> None:
        with alone(HOST, "test"):
            os._exit(1)

    assert outcome(killed) == ""
    assert list(common_folder.iterdir()) != []
    assert outcome(take) == "nothing"


def test_link_in_the_place_of_the_lock_is_not_followed() -> None:
    path = lock_path(HOST, "test")
    path.symlink_to("/etc/passwd")

    with (
        pytest.raises(EnvironmentProblem, match="cannot create the lock") as problem,
        alone(HOST, "test"),
    ):
        pass

    assert str(path) in str(problem.value)


def labelled(by: str) -> SimpleNamespace:
    return SimpleNamespace(name="test-next", labels={found.BY_LABEL: by} if by else {})


def test_start_of_another_host_is_not_taken_for_the_rest_of_a_killed_one() -> None:
    found.check_own_host(None)
    found.check_own_host(labelled(""))
    found.check_own_host(labelled(found.maker()))

    with pytest.raises(EnvironmentProblem, match="me@elsewhere is starting") as problem:
        found.check_own_host(labelled("me@elsewhere"))

    assert "qwendeploy down" in str(problem.value)
