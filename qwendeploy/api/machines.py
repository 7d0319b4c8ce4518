"""Machines: found, stated or read from saved output, and what will bite on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from qwendeploy.documents import Machine
    from qwendeploy.hardware.checks.findings import DoctorReport


def resolve_machine(
    *,
    gpu: str | None = None,
    gpus: int | None = None,
    vram: float | None = None,
    driver: str | None = None,
    nvlink: bool | None = None,
    system: str | None = None,
    devices: str | None = None,
    machine_file: Path | None = None,
) -> Machine:
    """Return the machine that is stated, stored in a file, found here, or assumed, in that order.

    Raises:
        UserError: a setting is invalid or contradicts another, or a file cannot be read.
        EnvironmentProblem: this computer's GPUs cannot be read or none is usable.
    """
    from qwendeploy.planning.machines import resolve

    return resolve(
        gpu=gpu,
        gpus=gpus,
        vram=vram,
        driver=driver,
        nvlink=nvlink,
        system=system,
        devices=devices,
        machine_file=machine_file,
    )


def detect(
    paths: Sequence[str | Path] = (),
    *,
    gpu: str | None = None,
    count: int | None = None,
    vram_gib: float | None = None,
    driver: str | None = None,
    system: str | None = None,
) -> Machine:
    """Return the machine of saved output in ``paths``, without paths this computer.

    What is stated besides fills what the saved output does not show.

    Raises:
        UserError: nothing is recognised, or a statement contradicts the text.
        EnvironmentProblem: this computer shows no usable NVIDIA GPU.
    """
    from qwendeploy import hardware
    from qwendeploy.errors import UserError
    from qwendeploy.hardware.stated import system_named
    from qwendeploy.tables.gpus import gpus

    if paths:
        return hardware.machine_from_files(
            paths,
            catalogue=gpus(),
            gpu=gpu,
            count=count,
            vram_gib=vram_gib,
            driver=driver,
            system=system_named(system),
        )
    if any(value is not None for value in (gpu, count, vram_gib, driver, system)):
        raise UserError(
            "facts are stated but no saved output is named",
            where="detect",
            hint="name files, or describe a machine with 'recommend --gpu NAME --gpus N'",
        )
    return hardware.detect(gpus())


def refuse_unusable(machine: Machine, *, live: bool) -> None:
    """Raise if the machine cannot serve.

    Raises:
        EnvironmentProblem: it is this computer (``live``).
        NoPlan: it comes from a file or a statement.
    """
    from qwendeploy import hardware

    hardware.refuse_unusable(machine, live=live)


def load_machine(path: str | Path) -> Machine:
    """Return the machine of a machine document or of saved output.

    Raises:
        UserError: the file is unreadable or holds no machine.
    """
    from qwendeploy import hardware
    from qwendeploy.tables.gpus import gpus

    return hardware.load_machine(path, catalogue=gpus())


def save_machine(machine: Machine, path: Path, *, force: bool = False) -> None:
    """Write a machine document, whole or not at all.

    Raises:
        UserError: the file exists and not ``force``, or cannot be written.
    """
    from qwendeploy import hardware

    hardware.save_machine(machine, path, force=force)


def describe_machine(machine: Machine) -> str:
    """Return a machine's facts as text."""
    from qwendeploy.hardware.text import describe_machine as describe

    return describe(machine)


def doctor(
    plan_file: Path | None = None,
    *,
    image: str | None = None,
    port: int | None = None,
    devices: str | None = None,
    sources: Sequence[str | Path] = (),
    bundle: Path | None = None,
    force: bool = False,
) -> DoctorReport:
    """Return what will bite on this computer, or on the box whose output ``sources`` hold.

    Raises:
        UserError: the plan or the sources cannot be read, or the bundle exists and not ``force``.
    """
    from qwendeploy.documents.disk import write_file
    from qwendeploy.documents.files import read_plan
    from qwendeploy.hardware.checks.bundle import bundle_bytes
    from qwendeploy.hardware.checks.doctor import doctor_files, doctor_here
    from qwendeploy.hardware.checks.findings import ordered
    from qwendeploy.planning.needs import needs_of_plan, other_cards
    from qwendeploy.tables.gpus import gpus

    plan = read_plan(plan_file) if plan_file is not None else None
    needs = needs_of_plan(plan, image=image, port=port, devices=devices)
    if sources:
        report = doctor_files(sources, needs, catalogue=gpus())
    else:
        report = doctor_here(needs, catalogue=gpus())
    if plan is not None and report.machine is not None and devices is None:
        other = other_cards(plan, report.machine)
        findings = ordered((other, *report.findings)) if other else report.findings
        report = report.model_copy(update={"findings": findings})
    if bundle is not None:
        write_file(bundle, bundle_bytes(report, live=not sources), 0o644, force=force)
    return report


def describe_doctor(report: DoctorReport) -> str:
    """Return the findings as text."""
    from qwendeploy.hardware.checks.doctor import describe_report

    return describe_report(report)


def refuse_errors(report: DoctorReport, *, live: bool) -> None:
    """Raise ``EnvironmentProblem`` (``NoPlan`` for saved output) if a finding is an error."""
    from qwendeploy.hardware.checks.doctor import refuse_errors as refuse

    refuse(report, live=live)
