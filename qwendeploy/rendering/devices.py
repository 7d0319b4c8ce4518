"""Which GPUs a plan serves on, and how Docker, CDI, CUDA and Kubernetes call them."""

from __future__ import annotations

import re

from qwendeploy.documents import MigDevice, Plan
from qwendeploy.errors import DataError
from qwendeploy.hardware.memory import serving_slice

WHOLE_GPU = "nvidia.com/gpu"
"""Resource of NVIDIA's device plugin for GPUs, and for slices under its ``single`` strategy."""

_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_OLD_SLICE = re.compile(r"MIG-GPU-[0-9a-f-]{36}/\d+/\d+\Z")
"""Name of a slice before driver 470."""


def gpu_indices(plan: Plan) -> tuple[int, ...]:
    """Return the indices of the GPUs that serve, as nvidia-smi counts.

    Raises:
        DataError: they are not as many as the layout needs, or not in the plan's machine.
    """
    needed = plan.option.gpus_used
    indices = plan.gpu_indices
    if not indices:
        known = plan.machine.chosen_gpu_indices or plan.machine.usable_gpu_indices
        indices = tuple(known[:needed]) if len(known) >= needed else tuple(range(needed))
    if len(indices) != needed or len(set(indices)) != needed or min(indices) < 0:
        raise DataError(
            f"{list(indices)} does not name the {needed} GPU(s) of tp {plan.option.tp} x"
            f" {plan.option.replicas} replica(s)",
            key="gpu_indices",
        )
    present = {gpu.index for gpu in plan.machine.gpus if gpu.index is not None}
    absent = [index for index in indices if present and index not in present]
    if absent:
        raise DataError(
            f"GPU {absent[0]} is not in the plan's machine, which has {sorted(present)}",
            key="gpu_indices",
        )
    return indices


def slices(plan: Plan, indices: tuple[int, ...]) -> tuple[MigDevice, ...]:
    """Return the MIG slices that serve; empty where whole GPUs do."""
    chosen = [gpu for gpu in plan.machine.gpus if gpu.index in indices]
    found = [serving_slice(plan.machine, gpu) for gpu in chosen]
    return tuple(device for device in found if device is not None)


def gpu_names(plan: Plan, indices: tuple[int, ...]) -> tuple[str, ...]:
    """Return UUIDs when the machine has several GPUs and all chosen ones show a whole UUID.

    A GPU in MIG mode is named by the slice that serves, since its own name would give any.

    Raises:
        DataError: the slice has no UUID and the GPU has others of another size.
    """
    uuids = {gpu.index: gpu.uuid for gpu in plan.machine.gpus if gpu.uuid}
    serving = slices(plan, indices)
    for device in serving:
        if device.uuid:
            uuids[device.gpu] = device.uuid
        elif _unlike(plan, device):
            raise DataError(
                f"the slices of GPU {device.gpu} are of unlike size and the one that serves shows"
                " no UUID, so it cannot be named",
                key="machine.mig_devices",
                hint="make the plan anew where `nvidia-smi -L` shows the UUIDs of the slices",
            )
    chosen = [uuids.get(index) for index in indices]
    names = [uuid for uuid in chosen if uuid and (_UUID.match(uuid) or _OLD_SLICE.match(uuid))]
    several = len(plan.machine.gpus) > 1 or bool(serving)
    if several and len(names) == len(indices):
        return tuple(names)
    return tuple(str(index) for index in indices)


def _unlike(plan: Plan, device: MigDevice) -> bool:
    beside = [other for other in plan.machine.mig_devices if other.gpu == device.gpu]
    return len({(other.profile, other.memory_mib) for other in beside}) > 1


def shows_all_gpus(plan: Plan) -> bool:
    """Whether containers see every GPU of the host, whatever they are given.

    Under WSL2 GPUs come through one device of Windows, and the container toolkit takes ``all``
    alone (NVIDIA, CUDA on WSL User Guide, known limitations).
    """
    return plan.machine.os in ("wsl2", "windows") or plan.machine.platform in ("wsl2", "windows")


def resource_name(plan: Plan, indices: tuple[int, ...]) -> tuple[str, str]:
    """Return what Kubernetes calls the GPUs or slices, and a remark on it (empty without one).

    A slice's resource is named after its profile under the device plugin's ``mixed`` strategy
    (NVIDIA, MIG Support in Kubernetes), with ``+`` written as a full stop.

    Raises:
        DataError: the slice is a compute instance of a GPU instance, which the plugin refuses.
    """
    serving = slices(plan, indices)
    if not serving:
        return WHOLE_GPU, ""
    profiles = {device.profile for device in serving}
    if None in profiles or len(profiles) > 1:
        return WHOLE_GPU, "MIG slices: the device plugin's single strategy calls them so"
    profile = str(profiles.pop())
    if not re.fullmatch(r"\d+g\.\d+gb(\+[a-z0-9.]+)?", profile):
        raise DataError(
            f"{profile} is a compute instance inside a slice, which Kubernetes does not give out",
            key="machine.mig_devices",
            hint="generate -f docker, or make slices without compute instances of their own",
        )
    name = profile.replace("+", ".")
    return (
        f"nvidia.com/mig-{name}",
        f"as the device plugin's mixed strategy calls it; under the single one it is {WHOLE_GPU}",
    )


def cuda_devices(plan: Plan, indices: tuple[int, ...]) -> tuple[str, ...]:
    """Return what ``CUDA_VISIBLE_DEVICES`` holds for an engine outside a container.

    Raises:
        DataError: vLLM would have to be given a slice: it reads only numbers there, and a number
            is the GPU's first slice (vllm-project/vllm#41848, open in #46132).
    """
    serving = slices(plan, indices)
    if not serving:
        return tuple(str(index) for index in indices)
    alone = len(plan.machine.mig_devices) == len(serving) == len(plan.machine.gpus)
    if plan.option.engine == "vllm" and not alone:
        raise DataError(
            "outside a container vLLM cannot be given one of several MIG slices",
            key="machine.mig_devices",
            hint="generate -f docker: the container sees the slice alone",
        )
    return tuple(str(index) for index in indices) if alone else gpu_names(plan, indices)
