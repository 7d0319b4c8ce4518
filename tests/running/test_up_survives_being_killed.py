"""``up`` interrupted or killed at any time: all or nothing is there; the next ``up`` goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from real_daemon import running_daemon
from starting_plans import Box, box_of

from qwendeploy.errors import ExitCode
from qwendeploy.running import starting, watching

pytestmark = pytest.mark.container

UP = ("--network", "qwendeploy-tests", "--no-checks", "--name", "test")


def command(plan: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "qwendeploy", "up", str(plan), *UP, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),
    )


def await_container(box: Box, name: str) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        # made and started are two calls
        if name in box.names() and box.attributes(name)["State"]["Running"]:
            return
        time.sleep(0.1)
    raise AssertionError(f"{name} did not appear")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_start_leaves_no_container(box: Box, number: signal.Signals) -> None:
    process = command(box.store(box.plan(script={"hang_in": "compiling"})))
    await_container(box, "test-next")

    process.send_signal(number)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (130, "")
    assert "state: the new container was removed" in err
    assert "Traceback" not in err
    assert box.names() == []


@pytest.mark.parametrize("after_s", [0.4, 0.55, 0.7, 0.8, 0.95, 1.2, 1.6, 2.0, 2.6])
def test_interrupt_at_any_time_leaves_all_or_nothing(box: Box, after_s: float) -> None:
    first = box.plan()
    old = starting.up(first, box.settings(), box.tell)
    other = box.plan(port=first.port, served_model_name="other-name")
    process = command(box.store(other), "--yes")
    time.sleep(after_s)

    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)

    # before its handler is there the process just ends; nothing has been touched then
    assert process.returncode in {0, 130, -signal.SIGTERM}
    assert "Traceback" not in err
    assert box.names() == ["test"]
    attributes = box.attributes()
    assert attributes["State"]["Running"] is True
    if process.returncode == 0:
        assert attributes["Id"] != old.container_id


def test_status_tells_the_phase_of_a_start_under_way(box: Box) -> None:
    process = command(box.store(box.plan(script={"hang_in": "graphs", "phase_s": 0.01})))
    await_container(box, "test-next")
    end = time.monotonic() + 20
    phases: list[str] = []
    while time.monotonic() < end and phases[-1:] != ["capturing CUDA graphs"]:
        phases = [one.phase for one in watching.status("test")]
        time.sleep(0.2)

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert phases == ["capturing CUDA graphs"]


def test_killed_start_is_taken_up_by_the_next_one(box: Box) -> None:
    plan = box.plan(script={"phase_s": 1})
    process = command(box.store(plan))
    await_container(box, "test-next")
    process.kill()
    process.communicate()
    left = box.attributes("test-next")["Id"]

    (status,) = watching.status(None)
    report = starting.up(plan, box.settings(), box.tell)

    assert (status.name, status.serving) == ("test-next", False)
    assert report.container_id == left
    assert box.names() == ["test"]


def test_start_killed_in_its_last_step_is_finished_by_the_next(box: Box) -> None:
    plan = box.plan()
    starting.up(plan, box.settings(), box.tell)
    with contextlib.closing(box.daemon.client()) as client:
        client.containers.get("test").update(restart_policy={"Name": "no"})

    report = starting.up(plan, box.settings(), box.tell)

    assert report.did == "was running"
    assert box.attributes()["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"


@pytest.mark.parametrize("after_s", [0.7, 1.3, 1.6, 1.9, 2.2, 2.8])
def test_replacement_killed_at_any_time_is_finished_by_the_next(box: Box, after_s: float) -> None:
    first = box.plan()
    starting.up(first, box.settings(), box.tell)
    other = box.plan(port=first.port, served_model_name="other-name")
    process = command(box.store(other), "--yes")
    time.sleep(after_s)

    process.kill()
    process.communicate()
    report = starting.up(other, box.settings(yes=True), box.tell)

    assert report.exit_code == ExitCode.DONE
    assert box.names() == ["test"]
    attributes = box.attributes()
    assert attributes["State"]["Running"] is True
    assert attributes["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    assert "other-name" in attributes["Config"]["Cmd"]


def test_interrupt_while_the_old_server_ends_is_told_and_can_be_hurried(box: Box) -> None:
    first = box.plan(script={"end_s": 40})
    old = starting.up(first, box.settings(), box.tell)
    timers = [
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)) for seconds in (0.5, 1.5)
    ]

    def tell(text: str, share: float | None) -> None:
        box.tell(text, share)
        if text.startswith("stopping"):
            for timer in timers:
                timer.start()

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as interrupt:
        starting.up(box.plan(port=first.port), box.settings(yes=True), tell)

    assert time.monotonic() - begin < 20
    assert "the previous one is running again" in " ".join(interrupt.value.__notes__)
    assert any("press Ctrl-C again to abort them" in text for text in box.told)
    assert box.names() == ["test"]
    attributes = box.attributes()
    assert (attributes["Id"], attributes["State"]["Running"]) == (old.container_id, True)


def test_what_has_served_comes_back_after_a_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_daemon() as own, box_of(own, tmp_path, monkeypatch) as box:
        report = starting.up(box.plan(), box.settings(), box.tell)

        own.restart()

        await_container(box, "test")
        assert box.attributes()["Id"] == report.container_id


def test_killed_replacement_is_undone_by_down(box: Box) -> None:
    first = box.plan()
    starting.up(first, box.settings(), box.tell)
    process = command(
        box.store(box.plan(port=first.port, script={"hang_in": "graphs"}), "other.yaml")
    )
    # the second plan needs --yes: without it nothing happened
    process.communicate(timeout=60)
    assert process.returncode == 2

    done = watching.down("test", timeout_s=5)

    assert done.removed == ("test",)
    assert box.names() == []
