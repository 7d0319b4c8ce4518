"""Which GPUs to serve on when a box has more than are needed, each decision with its reason.

Order of preference: able to serve › whole (no MIG parent) › of the kind with the most memory in
sum (so the odd card stays out) › idle › faster › without display › best links within the set ›
same NUMA node › low index. Sizes within ``SAME_SIZE`` are one size: 24564 MiB is no less than
24576 MiB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

from qwendeploy.documents import Gpu, GpuLink, Machine
from qwendeploy.errors import UserError
from qwendeploy.hardware.catalogue import Catalogue
from qwendeploy.hardware.interconnect import with_interconnect
from qwendeploy.hardware.memory import serving_memory_mib
from qwendeploy.hardware.reading import PCIE_PATHS
from qwendeploy.hardware.usable import objection

BUSY_SHARE = 0.05
"""A GPU with more of its memory taken is busy; display and driver take about 2 %."""

SAME_SIZE = 0.03
"""Cards sold with one size differ by up to this share in what the driver prints (24463 MiB of an
RTX 5090 Laptop, 24576 MiB of an RTX 3090: 0.5 %; 46068 MiB with ECC is another size)."""

MAX_SETS = 20_000
"""Sets that are compared; choosing 8 of 16 gives 12,870."""


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
            f"{needed} GPUs are asked for and {len(able)} can serve"
            + (f": {machine.usable_reason}" if machine.usable_reason else ""),
            where="--gpus",
            hint="ask for fewer, or name another machine with --gpu",
        )
    ranked = _preferred(machine, able, catalogue)
    if needed is None:
        kind = kind_of(ranked[0]) if ranked else None
        chosen = [gpu for gpu in ranked if kind_of(gpu) == kind and not gpu.mig] or ranked[:1]
    else:
        chosen = _best_set(machine, ranked, needed, catalogue)
        _refuse_joined_slices(chosen, "--gpus")
    chosen.sort(key=lambda gpu: gpu.index or 0)
    return _choice(machine, chosen, {}, catalogue)


def with_chosen(machine: Machine, choice: GpuChoice, catalogue: Catalogue) -> Machine:
    """Return the machine that serves on the chosen GPUs, links and warnings brought in line."""
    notes = tuple(dict.fromkeys((*machine.notes, *choice.warnings)))
    chosen = machine.model_copy(update={"chosen_gpu_indices": choice.indices, "notes": notes})
    return with_interconnect(chosen, catalogue)


def kind_of(gpu: Gpu) -> tuple[str | None, int | None]:
    """Return what cards of a kind have in common: model and memory."""
    return gpu.model or gpu.name, gpu.memory_mib


def _is_busy(gpu: Gpu) -> bool:
    return bool(
        gpu.memory_mib and gpu.memory_used_mib and gpu.memory_used_mib > BUSY_SHARE * gpu.memory_mib
    )


def _named(machine: Machine, needed: int | None, devices: Sequence[int]) -> list[Gpu]:
    there = {gpu.index: gpu for gpu in machine.gpus}
    chosen = []
    for index in devices:
        if index not in there:
            have = ", ".join(str(gpu.index) for gpu in machine.gpus)
            raise UserError(
                f"GPU {index} is not in this machine",
                where="--devices",
                hint=f"it has {have or 'none'}",
            )
        if (problem := objection(there[index], machine.driver)) is not None:
            raise UserError(problem, where="--devices", hint="name another GPU")
        chosen.append(there[index])
    if len(set(devices)) != len(devices):
        raise UserError("a GPU is named twice", where="--devices")
    if needed is not None and needed != len(devices):
        raise UserError(
            f"{len(devices)} GPUs are named but --gpus says {needed}", where="--devices"
        )
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
            f"GPU {sliced.index} is in MIG mode: one of its slices serves alone, never with other"
            " GPUs",
            where=where,
            hint=f"leave it out, plan for one GPU, or sudo nvidia-smi -i {sliced.index} -mig 0",
        )


def _sizes(machine: Machine, gpus: Sequence[Gpu]) -> dict[int | None, int]:
    """Return the memory by index, equal for cards of one size: the largest printed of these."""
    found = {gpu.index: (serving_memory_mib(machine, gpu) or (0, ""))[0] for gpu in gpus}
    alike: dict[int, int] = {}
    largest = 0
    for size in sorted(set(found.values()), reverse=True):
        largest = largest if largest and size >= (1 - SAME_SIZE) * largest else size
        alike[size] = largest
    return {index: alike[size] for index, size in found.items()}


def _pace(gpu: Gpu, catalogue: Catalogue) -> float:
    """Return the memory bandwidth of the card in GB/s, 0 if it is not known."""
    card = catalogue.find(gpu.model or gpu.name or "")
    return (card.bandwidth_gbps if card else None) or 0.0


def _preferred(machine: Machine, able: list[Gpu], catalogue: Catalogue) -> list[Gpu]:
    """Return the GPUs best first by what each is on its own."""
    size = _sizes(machine, able)
    sums: Counter[tuple[str | None, int | None]] = Counter()
    for gpu in able:
        sums[kind_of(gpu)] += size[gpu.index] or 1

    def key(gpu: Gpu) -> tuple[object, ...]:
        return (
            gpu.mig,
            -sums[kind_of(gpu)],
            -size[gpu.index],
            _is_busy(gpu) and gpu.memory_used_mib,
            -_pace(gpu, catalogue),
            bool(gpu.display),
            gpu.index if gpu.index is not None else 0,
        )

    return sorted(able, key=key)


def _best_set(machine: Machine, ranked: list[Gpu], needed: int, catalogue: Catalogue) -> list[Gpu]:
    """Return the set of ``needed`` GPUs with the fewest objections, then the best links."""
    if not needed:
        return []
    links = {(pair.a, pair.b): pair for pair in machine.links.pairs}
    size = _sizes(machine, ranked)
    pace = {gpu.index: _pace(gpu, catalogue) for gpu in ranked}
    groups = islice(combinations(ranked, needed), MAX_SETS)
    return list(min(groups, key=lambda group: _cost(group, links, size, pace)))


def _cost(
    group: Iterable[Gpu],
    links: dict[tuple[int, int], GpuLink],
    size: dict[int | None, int],
    pace: dict[int | None, float],
) -> tuple[float, ...]:
    """Return what speaks against a set, the weightiest first.

    The weakest card sets pace and memory, so a like set with more memory per card comes before
    one with better links.
    """
    group = tuple(group)
    distance = worst = 0
    for a, b in combinations(sorted(gpu.index or 0 for gpu in group), 2):
        pair = links.get((a, b))
        step = _distance(pair.nvlinks if pair else 0, pair.pcie_path if pair else None)
        distance, worst = distance + step, max(worst, step)
    return (
        sum(gpu.mig for gpu in group),
        len({kind_of(gpu) for gpu in group}) > 1,
        -min(size[gpu.index] for gpu in group),
        sum(gpu.memory_used_mib or 0 for gpu in group if _is_busy(gpu)),
        -min(pace[gpu.index] for gpu in group),
        sum(bool(gpu.display) for gpu in group),
        worst,
        distance,
        len({gpu.numa_node for gpu in group if gpu.numa_node is not None}),
        sum(gpu.index or 0 for gpu in group),
    )


def _distance(nvlinks: int, path: str | None) -> int:
    """Return 0 for the widest NVLink, then PCIe paths in order, unknown last."""
    if nvlinks:
        return max(0, 18 - nvlinks)
    return 20 + (PCIE_PATHS.index(path) if path in PCIE_PATHS else len(PCIE_PATHS))


def _choice(
    machine: Machine, chosen: list[Gpu], why: dict[int | None, str], catalogue: Catalogue
) -> GpuChoice:
    indices = tuple(gpu.index for gpu in chosen if gpu.index is not None)
    reasons = tuple(
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
    unlike = len({kind_of(gpu) for gpu in chosen}) > 1
    return GpuChoice(indices, reasons, unlike, _warnings(machine, chosen, unlike, catalogue))


def _why_used(machine: Machine, gpu: Gpu, indices: tuple[int, ...]) -> str:
    if len(machine.gpus) == len(indices):
        return "all GPUs serve"
    inside = [
        p for p in machine.links.pairs if gpu.index in (p.a, p.b) and {p.a, p.b} <= set(indices)
    ]
    paths = sorted({f"NV{p.nvlinks}" if p.nvlinks else p.pcie_path or "unknown" for p in inside})
    link = f", joined by {'/'.join(paths)}" if paths else ""
    return f"able and best placed{link}"


def _why_not(machine: Machine, gpu: Gpu, chosen: list[Gpu]) -> str:
    if (problem := objection(gpu, machine.driver)) is not None:
        return problem
    if gpu.compute_capability is None:
        return "its compute capability is neither shown nor known by name"
    if gpu.mig and not any(other.mig for other in chosen):
        return "in MIG mode: only its slices can be used"
    if chosen and kind_of(gpu) != kind_of(chosen[0]):
        return f"unlike the chosen cards ({gpu.model or gpu.name})"
    if _is_busy(gpu):
        return f"{gpu.memory_used_mib} of {gpu.memory_mib} MiB are taken by other processes"
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
        least = f", and every card counts as {min(known.values())} MiB" if known else ""
        warnings.append(f"unlike cards ({kinds}) run at the pace of the weakest{least}")
    warnings += [
        f"GPU {gpu.index} is busy: {gpu.memory_used_mib} of {gpu.memory_mib} MiB are taken"
        for gpu in chosen
        if _is_busy(gpu)
    ]
    warnings += [
        f"GPU {gpu.index} drives a display, which takes memory and time"
        for gpu in chosen
        if gpu.display
    ]
    return tuple(warnings)
