"""Which machine is planned for: the stated one, a stored one, this one, or the assumed card."""

from __future__ import annotations

from pathlib import Path

from qwendeploy.documents import Machine
from qwendeploy.errors import EnvironmentProblem, UserError
from qwendeploy.hardware.choose import choose_gpus, with_chosen
from qwendeploy.hardware.stated import assumed_machine, stated_machine, system_named
from qwendeploy.tables.gpus import gpus as catalogue


def resolve(
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
    """Return the machine, with the GPUs to serve on chosen where it has more than are asked for.

    Raises:
        UserError: a setting is invalid or contradicts another, or a file cannot be read.
        EnvironmentProblem: this computer's GPUs cannot be read or none is usable.
    """
    wanted = device_indices(devices)
    if machine_file is not None and gpu is not None:
        raise UserError("--machine and --gpu both describe the machine", hint="remove one")
    stated = {"--vram": vram, "--driver": driver, "--nvlink": nvlink, "--os": system}
    if gpu is None:
        for setting, value in stated.items():
            if value is not None:
                raise UserError(
                    f"{setting} needs a machine that --gpu names",
                    where=setting,
                    hint="add --gpu NAME",
                )
    if gpu is not None:
        machine = stated_machine(
            gpu,
            gpus,
            catalogue=catalogue(),
            vram_gib=vram,
            driver=driver,
            nvlink=nvlink,
            system=system_named(system) or "linux",
        )
    elif machine_file is not None:
        from qwendeploy.hardware.files import load_machine

        machine = load_machine(machine_file, catalogue=catalogue())
    else:
        machine = _here(gpus)
    if machine.usable is False:
        return machine
    if machine.origin in ("detected", "file") or wanted:
        machine = _with_chosen(machine, gpus, wanted)
    return machine


def _here(gpus: int | None) -> Machine:
    from qwendeploy.hardware.live.machine import find_machine

    machine = find_machine(catalogue())
    if machine is None:
        return assumed_machine(catalogue(), gpus)
    if machine.usable is False:
        raise EnvironmentProblem(
            f"the GPUs of this machine cannot serve: {machine.usable_reason}",
            hint="to plan for another machine, name its card with --gpu",
        )
    return machine


def _with_chosen(machine: Machine, gpus: int | None, wanted: tuple[int, ...]) -> Machine:
    have = len(machine.usable_gpu_indices)
    if gpus is not None and gpus > have:
        raise UserError(
            f"--gpus asks for {gpus} GPUs, {have} can serve",
            where="--gpus",
            hint="to plan for another machine, name its card with --gpu",
        )
    choice = choose_gpus(machine, gpus, wanted, catalogue=catalogue())
    return with_chosen(machine, choice, catalogue())


def device_indices(text: str | None) -> tuple[int, ...]:
    """Return the GPU indices of ``0,1``. Raises ``UserError`` for anything else."""
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(
            f"{text!r} is not a list of GPU indices", where="--devices", hint="write 0,1"
        ) from None
