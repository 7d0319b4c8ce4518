"""``up`` when things go wrong: the cause is named, nothing is left, what ran before runs again."""

from __future__ import annotations

import contextlib
import gc
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plan_samples import LLAMA_OPTION, sample_plan
from real_daemon import IMAGE, OTHER_IMAGE, running_daemon
from starting_plans import Box, box_of

from qwendeploy.errors import EnvironmentProblem, ExitCode, UserError
from qwendeploy.rendering.container import PLAN_LABEL
from qwendeploy.running import starting, watching
from qwendeploy.running.waiting import FailedStart

pytestmark = pytest.mark.container

UP = ("--network", "qwendeploy-tests", "--no-checks", "--name", "test")

CRASHES = [
    pytest.param(
        "starting",
        2,
        "vllm serve: error: unrecognized arguments: --max-model-length 4096",
        "unknown-flag",
        id="unknown-flag",
    ),
    pytest.param(
        "weights",
        1,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 170.00 MiB. GPU 0 has a"
        " total capacity of 23.55 GiB of which 60.12 MiB is free.",
        "cuda-out-of-memory",
        id="out-of-memory",
    ),
    pytest.param(
        "memory",
        1,
        "ValueError: To serve at least one request with the models's max seq len (262144),"
        " (26.66 GiB KV cache is needed, which is larger than the available KV cache memory"
        " (25.91 GiB). Based on the available memory, the estimated maximum model length is"
        " 253952. Try increasing `gpu_memory_utilization`",
        "kv-cache-too-small",
        id="cache-too-small",
    ),
    pytest.param("compiling", 139, "Segmentation fault", None, id="unknown-cause"),
    pytest.param("graphs", 137, "Killed", None, id="killed"),
]


NESTED = [
    "(EngineCore pid=71) ERROR 11-30 09:03:51 [core.py:1100] Traceback (most recent call last):",
    "(EngineCore pid=71) ERROR 11-30 09:03:51 [core.py:1100] KeyError: 'layers.0.weight_scale'",
    *(f"(APIServer pid=1)   File 'server.py', line {number}, in run" for number in range(20)),
    "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.",
]


def test_root_that_no_signature_knows_is_quoted_from_above_the_last_lines(box: Box) -> None:
    script = {"end_in": "weights", "code": 1, "lines": NESTED}

    with pytest.raises(FailedStart) as failed:
        starting.up(box.plan(script=script), box.settings(), box.tell)

    assert failed.value.hint == "first error in the log: KeyError: 'layers.0.weight_scale'"
    assert not any("KeyError" in line for line in failed.value.lines)
    assert box.names() == []


def test_killed_engine_says_where_to_look(box: Box) -> None:
    with pytest.raises(FailedStart, match="killed by SIGKILL: check `dmesg`"):
        starting.up(box.plan(script={"end_in": "weights", "code": 137}), box.settings(), box.tell)


@pytest.mark.parametrize(("phase", "code", "line", "cause"), CRASHES)
def test_crash_is_told_with_phase_cause_and_change(
    box: Box, run: Callable[..., Any], phase: str, code: int, line: str, cause: str | None
) -> None:
    script = {"end_in": phase, "code": code, "lines": [line], "phase_s": 0.1}
    plan = box.store(box.plan(script=script))

    said = run("up", plan, *UP)

    assert (said.code, said.out) == (1, "")
    assert f"  | {line}" in said.err
    assert re.search(rf"the engine exited while .*exit code {code}", said.err)
    if cause is not None:
        assert f"[{cause}]" in said.err
        assert "fix: " in said.err
    assert "state: the new container was removed" in said.err
    assert "Traceback" not in said.err
    assert box.names() == []


def test_largest_length_that_fits_is_in_the_message(box: Box) -> None:
    _, code, line, _ = CRASHES[2].values
    script = {"end_in": "memory", "code": code, "lines": [line]}

    with pytest.raises(FailedStart) as failed:
        starting.up(box.plan(script=script), box.settings(), box.tell)

    assert "laying out the KV pool" in failed.value.what
    assert any("253952" in cause.fix for cause in failed.value.causes)
    assert failed.value.exit_code == ExitCode.REFUTED


def test_hang_is_told_after_the_time_given(box: Box) -> None:
    with pytest.raises(FailedStart, match="is not ready after 3 s; it is capturing CUDA"):
        starting.up(box.plan(script={"hang_in": "graphs"}), box.settings(timeout_s=3), box.tell)

    assert box.names() == []


def test_network_without_ports_is_named(box: Box) -> None:
    # the daemon runs with --bridge=none: a port without a network is dropped without a word
    with pytest.raises(FailedStart, match="does not publish ports"):
        starting.up(box.plan(), box.settings(network=None, timeout_s=4), box.tell)

    assert box.names() == []


def test_port_in_use_is_an_environment_problem(box: Box) -> None:
    plan = box.plan()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", plan.port))
        taken.listen()

        with pytest.raises(EnvironmentProblem, match="the port is in use"):
            starting.up(plan, box.settings(), box.tell)

    assert box.names() == []


@pytest.mark.parametrize(
    ("changes", "settings", "complaint"),
    [
        pytest.param({"image": "stand-in/absent:v1"}, {}, "cannot pull the image", id="no-image"),
        pytest.param(
            {}, {"network": "absent"}, "the Docker network does not exist", id="no-network"
        ),
        pytest.param(
            {"checkpoint": "/srv/absent/model"},
            {},
            "does not exist on this machine",
            id="no-checkpoint",
        ),
    ],
)
def test_what_docker_does_not_have_is_named(
    box: Box, changes: dict[str, Any], settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(EnvironmentProblem, match=complaint) as problem:
        starting.up(box.plan(**changes), box.settings(**settings), box.tell)

    assert problem.value.hint
    assert box.names() == []


def test_start_that_somebody_else_has_under_way_is_left_alone(box: Box) -> None:
    """Two hosts share the daemon and no lock: the other one's container comes in between."""
    plan = box.plan()

    def tell(text: str, _share: float | None) -> None:
        if text.startswith("stopping"):
            with contextlib.closing(box.daemon.client()) as client:
                client.containers.create(
                    IMAGE, name="test-next", network_mode="none", labels=labels
                )

    starting.up(plan, box.settings(), box.tell)
    labels = {PLAN_LABEL: "theirs"}
    other = box.plan(port=plan.port, served_model_name="other-name")

    with pytest.raises(EnvironmentProblem, match="another `up` is starting") as problem:
        starting.up(other, box.settings(yes=True), tell)

    assert "the previous one is running again" in " ".join(problem.value.__notes__)
    assert sorted(box.names()) == ["test", "test-next"]
    assert box.attributes("test-next")["Config"]["Labels"] == labels


def test_llama_server_has_no_replicas_in_one_container(box: Box) -> None:
    changes = {**LLAMA_OPTION, "replicas": 2, "image": IMAGE}

    with pytest.raises(UserError, match="one replica per process"):
        starting.up(sample_plan(**changes), box.settings(), box.tell)


def test_hub_directory_that_cannot_be_made_is_named(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    (box.folder / "file").write_text("x")
    monkeypatch.setenv("HF_HOME", str(box.folder / "file" / "hub"))

    with pytest.raises(EnvironmentProblem, match="cache directory of the weights"):
        starting.up(box.plan(), box.settings(), box.tell)

    assert box.names() == []


def test_container_of_somebody_else_is_left_alone(box: Box) -> None:
    with contextlib.closing(box.daemon.client()) as client:
        client.containers.create(IMAGE, name="test", network_mode="none")

        with pytest.raises(UserError, match="that qwendeploy did not create"):
            starting.up(box.plan(), box.settings(yes=True), box.tell)
        with pytest.raises(UserError, match="that qwendeploy did not create"):
            watching.down("test")

    assert box.names() == ["test"]


def test_changed_plan_shows_the_difference_and_asks(box: Box, run: Callable[..., Any]) -> None:
    first = box.plan()
    old = starting.up(first, box.settings(), box.tell)
    longer = box.plan(port=first.port, served_model_name="other-name", image=OTHER_IMAGE)

    said = run("up", box.store(longer), *UP)

    assert said.code == 2
    assert f"image: {IMAGE} -> {OTHER_IMAGE}" in said.err
    assert "--served-model-name: qwen3.6-27b -> other-name" in said.err
    assert "--yes" in said.err
    assert box.attributes()["Id"] == old.container_id
    assert box.attributes()["State"]["Running"] is True


def test_answer_decides_about_the_change(box: Box) -> None:
    first = box.plan()
    old = starting.up(first, box.settings(), box.tell)
    other = box.plan(port=first.port, served_model_name="other-name")
    asked: list[list[str]] = []

    def no(lines: list[str]) -> bool:
        asked.append(lines)
        return False

    with pytest.raises(UserError):
        starting.up(other, box.settings(confirm=no), box.tell)
    report = starting.up(other, box.settings(confirm=lambda _: True), box.tell)

    assert asked == [["--served-model-name: qwen3.6-27b -> other-name"]]
    assert report.did == "replaced"
    assert report.container_id != old.container_id
    assert box.names() == ["test"]


def test_old_container_runs_again_when_the_new_one_fails(box: Box) -> None:
    first = box.plan()
    old = starting.up(first, box.settings(), box.tell)
    broken = box.plan(port=first.port, script={"end_in": "weights", "lines": ["boom"], "code": 1})

    with pytest.raises(FailedStart) as failed:
        starting.up(broken, box.settings(yes=True), box.tell)

    assert "the previous one is running again" in " ".join(failed.value.__notes__)
    assert box.names() == ["test"]
    assert box.attributes()["Id"] == old.container_id
    assert box.attributes()["State"]["Running"] is True


def test_old_container_serves_on_when_the_new_one_needs_other_gpus_and_port(box: Box) -> None:
    machine = box.plan(tp=4).machine
    first = box.plan(tp=1, gpu_indices=(0,), machine=machine)
    starting.up(first, box.settings(), box.tell)
    seen: list[bool] = []

    def tell(_text: str, _share: float | None) -> None:
        seen.append(box.attributes()["State"]["Running"])

    report = starting.up(
        box.plan(tp=1, gpu_indices=(1,), machine=machine), box.settings(yes=True), tell
    )

    assert report.did == "replaced"
    assert set(seen) == {True}


def test_container_that_ended_is_started_again(box: Box) -> None:
    plan = box.plan()
    starting.up(plan, box.settings(), box.tell)
    with contextlib.closing(box.daemon.client()) as client:
        client.containers.get("test").kill()

    report = starting.up(plan, box.settings(), box.tell)

    assert report.did == "was started again"
    assert box.names() == ["test"]


def test_no_daemon_is_one_message(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")

    for words in (("status",), ("down",), ("logs",)):
        said = run(*words)
        assert (said.code, said.out) == (4, "")
        assert said.err == (
            "error: cannot connect to the Docker daemon (start it with `systemctl start docker`,"
            " or set DOCKER_HOST)\n"
        )


# Docker's client leaves the socket of a refused connection to the garbage collector
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_daemon_that_goes_away_while_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_daemon() as own, box_of(own, tmp_path, monkeypatch) as box:

        def tell(text: str, _share: float | None) -> None:
            if text.startswith("capturing") and own.process and own.process.poll() is None:
                own.kill()

        with pytest.raises(
            EnvironmentProblem, match="cannot connect to the Docker daemon"
        ) as problem:
            starting.up(box.plan(script={"hang_in": "graphs"}), box.settings(), tell)

        assert "test-next may still exist" in " ".join(problem.value.__notes__)
        del problem
        gc.collect()
        own.start()
        assert watching.down("test", timeout_s=1).removed == ("test-next",)
    gc.collect()


def test_docker_without_gpu_support_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_daemon(gpus=False) as own, box_of(own, tmp_path, monkeypatch) as box:
        with pytest.raises(EnvironmentProblem, match="cannot give GPUs") as problem:
            starting.up(box.plan(), box.settings(), box.tell)

        assert "nvidia-container-toolkit" in str(problem.value)
        assert box.names() == []
