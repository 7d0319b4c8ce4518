"""Selection of the GPUs to serve on, with the reason for each.

Able to serve comes first, then the order of ``qwendeploy.hardware.placing``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qwendeploy.documents import Gpu, Machine
from qwendeploy.errors import UserError
from qwendeploy.hardware.catalogue import Catalogue
from qwendeploy.hardware.interconnect import with_interconnect
from qwendeploy.hardware.memory import serving_memory_mib
from qwendeploy.hardware.placing import is_busy, kind_of, place_groups, preferred
from qwendeploy.hardware.usable import objection


@dataclass(frozen=True, slots=True)
class GpuReason:
    """Why one GPU serves or does not."""

    index: int
    used: bool
    reason: str


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """GPUs to serve on; ``unlike`` says that they differ, and then the weakest sets the pace."""

    indices: tuple[int, ...]
    reasons: tuple[GpuReason, ...]
    unlike: bool
    warnings: tuple[str, ...]


def choose_gpus(
    machine: Machine,
    needed: int | None = None,
    devices: Sequence[int] = (),
    *,
    catalogue: Catalogue,
) -> GpuChoice:
    """Return which GPUs to serve on; ``devices`` overrides every preference but not a fault.

    Without ``needed`` every GPU of the best kind that can serve is taken.

    Raises:
        UserError: an index that is not there, is named twice or cannot serve; fewer GPUs than
            needed; or several of which one is in MIG mode.
    """
    able = [gpu for gpu in machine.gpus if gpu.index in machine.usable_gpu_indices]
    if devices:
        chosen = _named(machine, needed, devices)
        _refuse_joined_slices(chosen, "--devices")
        why = dict.fromkeys((gpu.index for gpu in chosen), "named with --devices")
        return _choice(machine, chosen, why, catalogue)
    if needed is not None and needed > len(able):
        raise UserError(
            f"{needed} GPUs are requested and {len(able)} can serve"
            + (f": {machine.usable_reason}" if machine.usable_reason else ""),
            where="--gpus",
            hint="request fewer, or describe another machine with --gpu",
        )
    if needed is None:
        ranked = preferred(machine, able, catalogue)
        kind = kind_of(ranked[0]) if ranked else None
        chosen = [gpu for gpu in ranked if kind_of(gpu) == kind and not gpu.mig] or ranked[:1]
    else:
        usable = machine.usable_gpu_indices
        best = place_groups(machine, usable, needed, 1, catalogue) if needed else ()
        chosen = [gpu for gpu in able if any(gpu.index in group for group in best)]
        _refuse_joined_slices(chosen, "--gpus")
    chosen.sort(key=lambda gpu: gpu.index or 0)
    return _choice(machine, chosen, {}, catalogue)


def reasons_for(machine: Machine, indices: Sequence[int]) -> tuple[GpuReason, ...]:
    """Return why the GPUs with these indices serve and each other one does not."""
    return _reasons(machine, [gpu for gpu in machine.gpus if gpu.index in indices], {})


def choice_text(machine: Machine, indices: Sequence[int]) -> str:
    """Return which GPUs serve and why the others do not, empty where none is left out.

    A stated machine has no others: its cards are as many as somebody says, and all alike.
    """
    reasons = reasons_for(machine, indices)
    if machine.origin not in ("detected", "file") or all(item.used for item in reasons):
        return ""
    parts: dict[tuple[bool, str], list[int]] = {}
    for item in sorted(reasons, key=lambda item: not item.used):
        parts.setdefault((item.used, item.reason), []).append(item.index)
    return "; ".join(
        f"{'' if used else 'not '}{', '.join(map(str, which))}: {reason}"
        for (used, reason), which in parts.items()
    )


def with_chosen(machine: Machine, choice: GpuChoice, catalogue: Catalogue) -> Machine:
    """Return the machine that serves on the chosen GPUs, links and warnings brought in line."""
    notes = tuple(dict.fromkeys((*machine.notes, *choice.warnings)))
    chosen = machine.model_copy(update={"chosen_gpu_indices": choice.indices, "notes": notes})
    return with_interconnect(chosen, catalogue)


def _named(machine: Machine, needed: int | None, devices: Sequence[int]) -> list[Gpu]:
    there = {gpu.index: gpu for gpu in machine.gpus}
    chosen = []
    for index in devices:
        if index not in there:
            have = ", ".join(str(gpu.index) for gpu in machine.gpus)
            raise UserError(
                f"this machine has no GPU {index}",
                where="--devices",
                hint=f"it has {have or 'none'}",
            )
        if (problem := objection(there[index], machine.driver)) is not None:
            raise UserError(problem, where="--devices", hint="select another GPU")
        chosen.append(there[index])
    if len(set(devices)) != len(devices):
        raise UserError("a GPU is listed twice", where="--devices")
    if needed is not None and needed != len(devices):
        raise UserError(f"{len(devices)} GPUs are listed but --gpus is {needed}", where="--devices")
    return chosen


def _refuse_joined_slices(chosen: Sequence[Gpu], where: str) -> None:
    """Raise if one of several GPUs offers only slices: a process sees one slice and no peer.

    Raises:
        UserError: with the GPU (NVIDIA MIG user guide: no peer access between instances, and
            CUDA enumerates one of them).
    """
    sliced = next((gpu for gpu in chosen if gpu.mig), None)
    if sliced is not None and len(chosen) > 1:
        raise UserError(
            f"GPU {sliced.index} is in MIG mode: its slices cannot be combined with other GPUs",
            where=where,
            hint=f"leave it out, plan for one GPU, or sudo nvidia-smi -i {sliced.index} -mig 0",
        )


def _choice(
    machine: Machine, chosen: list[Gpu], why: dict[int | None, str], catalogue: Catalogue
) -> GpuChoice:
    indices = tuple(gpu.index for gpu in chosen if gpu.index is not None)
    unlike = len({kind_of(gpu) for gpu in chosen}) > 1
    reasons = _reasons(machine, chosen, why)
    return GpuChoice(indices, reasons, unlike, _warnings(machine, chosen, unlike, catalogue))


def _reasons(
    machine: Machine, chosen: Sequence[Gpu], why: dict[int | None, str]
) -> tuple[GpuReason, ...]:
    indices = tuple(gpu.index for gpu in chosen if gpu.index is not None)
    return tuple(
        GpuReason(
            gpu.index,
            gpu.index in indices,
            why.get(gpu.index)
            or (
                _why_used(machine, gpu, indices)
                if gpu.index in indices
                else _why_not(machine, gpu, chosen)
            ),
        )
        for gpu in machine.gpus
        if gpu.index is not None
    )


def _why_used(machine: Machine, gpu: Gpu, indices: tuple[int, ...]) -> str:
    if len(machine.gpus) == len(indices):
        return "all GPUs serve"
    inside = [
        p for p in machine.links.pairs if gpu.index in (p.a, p.b) and {p.a, p.b} <= set(indices)
    ]
    paths = sorted({f"NV{p.nvlinks}" if p.nvlinks else p.pcie_path or "unknown" for p in inside})
    link = f", connected by {'/'.join(paths)}" if paths else ""
    return f"usable and best placed{link}"


def _why_not(machine: Machine, gpu: Gpu, chosen: Sequence[Gpu]) -> str:
    if (problem := objection(gpu, machine.driver)) is not None:
        return problem
    if gpu.compute_capability is None:
        return "its compute capability is unknown"
    if gpu.mig and not any(other.mig for other in chosen):
        return "in MIG mode: only its slices can be used"
    if chosen and kind_of(gpu) != kind_of(chosen[0]):
        return f"another model than the selected GPUs ({gpu.model or gpu.name})"
    if is_busy(gpu):
        return f"other processes use {gpu.memory_used_mib} of {gpu.memory_mib} MiB"
    if gpu.display:
        return "drives a display"
    return "not needed; its links or NUMA node are no better"


def _warnings(
    machine: Machine, chosen: list[Gpu], unlike: bool, catalogue: Catalogue
) -> tuple[str, ...]:
    warnings = []
    if unlike:
        sizes = {
            gpu.index: serving_memory_mib(machine, gpu, catalogue.find(gpu.model or gpu.name or ""))
            for gpu in chosen
        }
        known = {index: size[0] for index, size in sizes.items() if size}
        kinds = ", ".join(dict.fromkeys(str(gpu.model or gpu.name) for gpu in chosen))
        least = f", and each GPU counts as {min(known.values())} MiB" if known else ""
        warnings.append(f"mixed GPU models ({kinds}) run at the speed of the weakest{least}")
    warnings += [
        f"GPU {gpu.index} is busy: {gpu.memory_used_mib} of {gpu.memory_mib} MiB are in use"
        for gpu in chosen
        if is_busy(gpu)
    ]
    warnings += [
        f"GPU {gpu.index} drives a display, which uses GPU memory and time"
        for gpu in chosen
        if gpu.display
    ]
    return tuple(warnings)
