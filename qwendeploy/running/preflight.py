"""Checks before an image is pulled: the plan's machine, and the doctor's findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qwendeploy.documents import Gpu, Machine, Plan
from qwendeploy.errors import DataError, EnvironmentProblem
from qwendeploy.hardware.checks.doctor import doctor_here, refuse_errors
from qwendeploy.hardware.checks.findings import DoctorReport, Needs
from qwendeploy.planning.needs import needs_of_plan
from qwendeploy.rendering.launch import HUB_TOKEN, Launch
from qwendeploy.tables.gpus import gpus as catalogue

Doctor = Callable[[Needs], DoctorReport]


def _here(needs: Needs) -> DoctorReport:
    return doctor_here(needs, catalogue=catalogue())


def check_machine(
    plan: Plan,
    launch: Launch,
    *,
    occupied: bool,
    secrets: Mapping[str, str],
    doctor: Doctor = _here,
) -> None:
    """Return if the plan's GPUs are here and empty enough, and nothing keeps it from starting.

    ``occupied`` says that a container of ours runs, whose port and memory will be given back.

    Raises:
        DataError: the plan was made for another machine.
        EnvironmentProblem: something keeps a server from starting; the first is named.
    """
    report = doctor(needs_of_plan(plan))
    excused = {"port-in-use"} if occupied else set()
    if HUB_TOKEN in secrets:
        excused.add("token-absent")
    findings = tuple(item for item in report.findings if item.id not in excused)
    refuse_errors(report.model_copy(update={"findings": findings}), live=True)
    if report.machine is not None:
        _compare(plan, launch, report.machine, occupied=occupied)


def _compare(plan: Plan, launch: Launch, machine: Machine, *, occupied: bool) -> None:
    here = {name: gpu for gpu in machine.gpus for name in (gpu.uuid, str(gpu.index)) if name}
    by_index = {gpu.index: gpu for gpu in machine.gpus}
    for device in machine.mig_devices:
        if device.uuid and device.gpu in by_index:
            here[device.uuid] = by_index[device.gpu]
    planned = {gpu.index: gpu for gpu in plan.machine.gpus}
    for position, name in enumerate(launch.gpus):
        gpu = here.get(name)
        if gpu is None:
            raise DataError(
                f"the plan's GPU {name} is not in this machine, which has"
                f" {', '.join(sorted(here)) or 'none'}",
                key="gpu_indices",
                hint="make the plan here: `qwendeploy recommend`; or --no-checks",
            )
        _same_kind(planned.get(launch.gpu_indices[position]), gpu, name)
        if not occupied:
            _room(plan, gpu, name)


def _same_kind(planned: Gpu | None, present: Gpu, name: str) -> None:
    if planned is None or planned.model is None or present.model is None:
        return
    if planned.model != present.model:
        raise DataError(
            f"the plan's GPU {name} is a {planned.model}, this one is a {present.model}",
            key="machine",
            hint="make the plan here: `qwendeploy recommend`; or --no-checks",
        )


def _room(plan: Plan, gpu: Gpu, name: str) -> None:
    """Refuse what vLLM refuses: less memory free than the fraction asks for.

    What is free of a MIG slice is not shown, only of the GPU that it is cut from.
    """
    fraction = plan.option.gpu_memory_utilization
    if fraction is None or gpu.memory_mib is None or gpu.memory_free_mib is None or gpu.mig:
        return
    needed = fraction * gpu.memory_mib
    if gpu.memory_free_mib < needed:
        raise EnvironmentProblem(
            f"GPU {name} has {gpu.memory_free_mib / 1024:.1f} GiB free, the plan needs"
            f" {needed / 1024:.1f} GiB",
            where="nvidia-smi",
            hint="stop the processes that use it (see `nvidia-smi`), or plan with a lower --util",
        )
