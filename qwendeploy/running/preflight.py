"""Before anything is pulled: is this the plan's machine, and are its GPUs free?"""

from __future__ import annotations

from qwendeploy.documents import Gpu, Plan
from qwendeploy.errors import EnvironmentProblem, UserError
from qwendeploy.hardware.live import detect
from qwendeploy.rendering.launch import Launch
from qwendeploy.tables.gpus import gpus as catalogue


def check_machine(plan: Plan, launch: Launch, *, occupied: bool) -> None:
    """Return if the plan's GPUs are here, well and empty enough.

    ``occupied`` says that a container of ours holds them now and will be stopped.

    Raises:
        UserError: the plan was made for another machine.
        EnvironmentProblem: no GPU is usable, or its memory is taken.
    """
    machine = detect(catalogue())
    here = {name: gpu for gpu in machine.gpus for name in (gpu.uuid, str(gpu.index)) if name}
    planned = {gpu.index: gpu for gpu in plan.machine.gpus}
    for position, name in enumerate(launch.gpus):
        gpu = here.get(name)
        if gpu is None:
            raise UserError(
                f"the plan's GPU {name} is not in this machine, which has"
                f" {', '.join(sorted(here)) or 'none'}",
                where="gpu_indices",
                hint="make the plan here: `qwendeploy recommend`; or --no-checks",
            )
        _same_kind(planned.get(launch.gpu_indices[position]), gpu, name)
        if not occupied:
            _room(plan, gpu, name)


def _same_kind(planned: Gpu | None, present: Gpu, name: str) -> None:
    if planned is None or planned.model is None or present.model is None:
        return
    if planned.model != present.model:
        raise UserError(
            f"the plan's GPU {name} is a {planned.model}, this one is a {present.model}",
            where="machine",
            hint="make the plan here: `qwendeploy recommend`",
        )


def _room(plan: Plan, gpu: Gpu, name: str) -> None:
    """vLLM refuses to start when less memory is free than the fraction asks for."""
    fraction = plan.option.gpu_memory_utilization
    if fraction is None or gpu.memory_mib is None or gpu.memory_free_mib is None:
        return
    needed = fraction * gpu.memory_mib
    if gpu.memory_free_mib < needed:
        raise EnvironmentProblem(
            f"GPU {name} has {gpu.memory_free_mib / 1024:.1f} GiB free, the plan takes"
            f" {needed / 1024:.1f} GiB",
            where="nvidia-smi",
            hint="end what holds the memory (`nvidia-smi` lists it), or plan with a lower --util",
        )
