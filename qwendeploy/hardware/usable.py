"""Whether a machine can serve, and the reason if it cannot.

A GPU meets it if it is not faulty, has compute capability 7.0 or higher and the driver is new
enough: R525 (CUDA 12), R570 from capability 10 on. An unknown driver does not count against it;
without any known capability the answer is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from qwendeploy.documents import Gpu, Machine
from qwendeploy.hardware.reading import Failure

UNKNOWN_CAPABILITY = (
    "the compute capability is unknown; state the GPU model:"
    " qwendeploy detect --from PATH --gpu NAME -o machine.yaml"
)
MIN_CAPABILITY = (7, 0)
"""vLLM's oldest compiled architecture (its GPU installation page)."""
MIN_DRIVER = 525
"""First branch for CUDA 12 by minor-version compatibility (NVIDIA CUDA release notes)."""
MIN_DRIVER_BLACKWELL = 570
"""First branch that knows Blackwell (compute capability 10 and 12; NVIDIA driver notes)."""


def capability_of(gpu: Gpu) -> tuple[int, int] | None:
    """Return the compute capability as two numbers."""
    if gpu.compute_capability is None:
        return None
    major, minor = gpu.compute_capability.split(".")
    return int(major), int(minor)


def objection(gpu: Gpu, driver: str | None) -> str | None:
    """Return why a GPU cannot serve, or ``None`` if nothing known speaks against it."""
    if gpu.health != "ok":
        return f"GPU {gpu.index} is faulty ({gpu.health_reason})"
    capability = capability_of(gpu)
    if capability is not None and capability < MIN_CAPABILITY:
        return (
            f"GPU {gpu.index} ({gpu.name}) has compute capability {gpu.compute_capability},"
            f" older than {MIN_CAPABILITY[0]}.{MIN_CAPABILITY[1]}"
        )
    if driver is not None:
        blackwell = capability is not None and capability >= (10, 0)
        needed = MIN_DRIVER_BLACKWELL if blackwell else MIN_DRIVER
        if int(driver.split(".")[0]) < needed:
            return f"driver {driver} is older than R{needed}"
    return None


def judge(machine: Machine, failures: Sequence[Failure] = ()) -> Machine:
    """Return the machine with ``usable``, its reason and the GPUs that meet the rule."""
    objections = {gpu.index: objection(gpu, machine.driver) for gpu in machine.gpus}
    fit = [
        gpu.index
        for gpu in machine.gpus
        if gpu.index is not None
        and objections[gpu.index] is None
        and gpu.compute_capability is not None
    ]
    reasons = [text for text in dict.fromkeys(objections.values()) if text]
    reasons += [
        f"GPU {item.index if item.index is not None else item.bus_id} is missing: {item.reason}"
        for item in machine.missing_gpus
    ]
    usable: bool | None
    if fit:
        usable, reason = True, f"{len(fit)} of {len(machine.gpus)} GPUs can serve"
        if reasons:
            reason += "; " + "; ".join(reasons)
    elif machine.gpus and any(objections[gpu.index] is None for gpu in machine.gpus):
        usable, reason = None, UNKNOWN_CAPABILITY
    elif machine.gpus:
        usable, reason = False, "; ".join(reasons)
    elif failures:
        usable, reason = False, f"{failures[0].line}: {failures[0].reason}"
    elif machine.missing_gpus:
        usable, reason = False, "; ".join(reasons)
    else:
        usable, reason = None, "the input lists no GPU: save the full output of nvidia-smi or -L"
    return machine.model_copy(
        update={"usable": usable, "usable_reason": reason, "usable_gpu_indices": tuple(fit)}
    )
