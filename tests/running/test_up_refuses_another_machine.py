"""What ``up`` looks at before anything is pulled: this machine against the plan's."""

from __future__ import annotations

from typing import Any

import pytest
from plan_samples import CARD, machine, sample_plan, uuid

from qwendeploy.documents import Machine, MigDevice
from qwendeploy.errors import EnvironmentProblem, UserError
from qwendeploy.hardware.checks.findings import DoctorFinding, DoctorReport, Needs
from qwendeploy.rendering import launch_of
from qwendeploy.running.daemon import refused, unreachable
from qwendeploy.running.preflight import check_machine


def report(present: Machine | None, *errors: str) -> DoctorReport:
    return DoctorReport(
        machine=present,
        findings=tuple(
            DoctorFinding(id=name, severity="error", text=name, evidence="seen", fix=f"mend {name}")
            for name in errors
        ),
    )


def check(
    found: DoctorReport, *, occupied: bool = False, secrets: dict[str, str] | None = None
) -> Needs:
    plan = sample_plan(port=8123, gated_repositories=("z-lab/Qwen3.6-27B-DFlash",))
    asked: list[Needs] = []

    def doctor(needs: Needs) -> DoctorReport:
        asked.append(needs)
        return found

    check_machine(plan, launch_of(plan), occupied=occupied, secrets=secrets or {}, doctor=doctor)
    return asked[0]


def changed(**gpu: Any) -> Machine:
    both = machine(2)
    first, second = both.gpus
    return both.model_copy(update={"gpus": (first, second.model_copy(update=gpu))})


def test_the_plans_own_machine_is_accepted() -> None:
    needs = check(report(machine(2)))

    assert (needs.port, needs.gpu_indices) == (8123, (0, 1))


def test_gpu_that_is_not_here_is_named() -> None:
    with pytest.raises(UserError, match=f"GPU {uuid(1)} is not in this machine"):
        check(report(changed(uuid="GPU-99999999-1111-2222-3333-444444444444")))


def test_other_kind_of_gpu_is_named() -> None:
    with pytest.raises(UserError, match=f"is a {CARD}, this one is a RTX 3090"):
        check(report(changed(model="RTX 3090")))


def test_memory_that_is_taken_is_told_in_gib() -> None:
    with pytest.raises(EnvironmentProblem, match=r"has 58\.6 GiB free, the plan needs 81\.3 GiB"):
        check(report(changed(memory_free_mib=60000)))
    check(report(changed(memory_free_mib=60000)), occupied=True)


def test_slice_of_a_gpu_in_mig_mode_is_found_by_its_name() -> None:
    name = "MIG-12345678-1111-2222-3333-444444444444"
    card = machine(1).gpus[0].model_copy(update={"mig": True, "memory_free_mib": 40000})
    here = machine(1).model_copy(
        update={
            "gpus": (card,),
            "mig_devices": (MigDevice(gpu=0, gi=1, profile="3g.40gb", uuid=name),),
        }
    )
    plan = sample_plan(tp=1, machine=here)
    gone = here.model_copy(update={"mig_devices": ()})

    # what is free of the whole GPU says nothing about the slice
    check_machine(
        plan, launch_of(plan), occupied=False, secrets={}, doctor=lambda _needs: report(here)
    )
    with pytest.raises(UserError, match=f"GPU {name} is not in this machine"):
        check_machine(
            plan, launch_of(plan), occupied=False, secrets={}, doctor=lambda _needs: report(gone)
        )


def test_what_the_doctor_finds_stops_the_start() -> None:
    with pytest.raises(EnvironmentProblem, match="first: driver-too-old") as problem:
        check(report(machine(2), "driver-too-old"))
    assert problem.value.hint == "mend driver-too-old"


def test_port_of_our_own_container_is_excused() -> None:
    with pytest.raises(EnvironmentProblem, match="port-in-use"):
        check(report(machine(2), "port-in-use"))
    check(report(machine(2), "port-in-use"), occupied=True)


def test_token_in_the_secrets_is_a_token() -> None:
    with pytest.raises(EnvironmentProblem, match="token-absent"):
        check(report(machine(2), "token-absent"))
    check(report(machine(2), "token-absent"), secrets={"HF_TOKEN": "hf_x"})


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (
            "Bind for 127.0.0.1:8000 failed: port is already allocated",
            "the port is in use",
            "--port",
        ),
        (
            'could not select device driver "" with capabilities: [[gpu]]',
            "cannot give GPUs",
            "nvidia-container-toolkit",
        ),
        ("unknown or invalid runtime name: nvidia", "cannot give GPUs", "nvidia-ctk"),
        (
            "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=7",
            "does not find the plan's GPUs",
            "recommend",
        ),
        ("network qd not found", "the Docker network does not exist", "network ls"),
        ("write /x: no space left on device", "the disk is full", "docker system df"),
        ("something new", "Docker returns an error: something new", ""),
    ],
)
def test_refusal_of_docker_is_explained(text: str, what: str, hint: str) -> None:
    problem = refused(text)

    assert what in problem.what
    assert text in problem.what
    assert hint in (problem.hint or "")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("PermissionError: [Errno 13] Permission denied", "permission denied on the Docker socket"),
        ("FileNotFoundError: [Errno 2] No such file", "cannot connect to the Docker daemon"),
        ("UnixHTTPConnectionPool: Read timed out. (read timeout=120)", "did not respond within"),
    ],
)
def test_unreachable_daemon_is_told_apart(text: str, what: str) -> None:
    assert what in unreachable(text).what
