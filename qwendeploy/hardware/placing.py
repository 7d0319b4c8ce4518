"""Which GPUs serve together: objections to single GPUs and to groups.

Order of preference: whole (no MIG parent) › of the kind with the most memory in sum (so the odd
card stays out) › idle › faster › without display › best links within the group › same NUMA node ›
low index. Sizes within ``SAME_SIZE`` are one size: 24564 MiB is no less than 24576 MiB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

from qwendeploy.documents import Gpu, GpuLink, Machine, Tri
from qwendeploy.hardware.catalogue import Catalogue
from qwendeploy.hardware.interconnect import Interconnect, interconnect_of, p2p_of
from qwendeploy.hardware.memory import serving_memory_mib
from qwendeploy.hardware.reading import PCIE_PATHS

Groups = tuple[tuple[int, ...], ...]

BUSY_SHARE = 0.05
"""A GPU with more of its memory taken is busy; display and driver take about 2 %."""

SAME_SIZE = 0.03
"""Cards sold with one size differ by up to this share in what the driver prints (24463 MiB of an
RTX 5090 Laptop, 24576 MiB of an RTX 3090: 0.5 %; 46068 MiB with ECC is another size)."""

WORST_LINK = 6
"""Where the worst link stands among the objections to a group. Of several groups the worst counts
before the sum, because requests are dealt to all of them alike."""

MAX_SETS = 20_000
"""Sets that are compared; choosing 8 of 16 gives 12,870."""


def kind_of(gpu: Gpu) -> tuple[str | None, int | None]:
    """Return what cards of a kind have in common: model and memory."""
    return gpu.model or gpu.name, gpu.memory_mib


def is_busy(gpu: Gpu) -> bool:
    """Say whether other processes hold memory of the card."""
    return bool(
        gpu.memory_mib and gpu.memory_used_mib and gpu.memory_used_mib > BUSY_SHARE * gpu.memory_mib
    )


def preferred(machine: Machine, able: list[Gpu], catalogue: Catalogue) -> list[Gpu]:
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
            is_busy(gpu) and gpu.memory_used_mib,
            -_pace(gpu, catalogue),
            bool(gpu.display),
            gpu.index if gpu.index is not None else 0,
        )

    return sorted(able, key=key)


@dataclass(frozen=True, slots=True)
class Objections:
    """What is known of the cards of one machine that speaks against taking some of them."""

    links: dict[tuple[int, int], GpuLink]
    size: dict[int | None, int]
    pace: dict[int | None, float]

    @classmethod
    def of(cls, machine: Machine, cards: Sequence[Gpu], catalogue: Catalogue) -> Objections:
        """Return what is known of these cards of the machine."""
        return cls(
            links={(pair.a, pair.b): pair for pair in machine.links.pairs},
            size=_sizes(machine, cards),
            pace={gpu.index: _pace(gpu, catalogue) for gpu in cards},
        )

    def to(self, group: Sequence[Gpu]) -> tuple[float, ...]:
        """Return what speaks against a group, the weightiest first.

        The weakest card sets pace and memory, so a like group with more memory per card comes
        before one with better links.
        """
        distance = worst = 0
        for a, b in combinations(sorted(gpu.index or 0 for gpu in group), 2):
            pair = self.links.get((a, b))
            step = _distance(pair.nvlinks if pair else 0, pair.pcie_path if pair else None)
            distance, worst = distance + step, max(worst, step)
        return (
            sum(gpu.mig for gpu in group),
            len({kind_of(gpu) for gpu in group}) > 1,
            -min(self.size[gpu.index] for gpu in group),
            sum(gpu.memory_used_mib or 0 for gpu in group if is_busy(gpu)),
            -min(self.pace[gpu.index] for gpu in group),
            sum(bool(gpu.display) for gpu in group),
            worst,
            distance,
            len({gpu.numa_node for gpu in group if gpu.numa_node is not None}),
            sum(gpu.index or 0 for gpu in group),
        )


def place_groups(
    machine: Machine, indices: Sequence[int], size: int, count: int, catalogue: Catalogue
) -> Groups:
    """Return ``count`` groups of ``size`` of the GPUs with these indices, each in rising order.

    Cards of one kind come first, then what speaks least against all groups together. All ways of
    grouping are compared up to ``MAX_SETS`` of them, those of the cards preferred first.
    """
    cards = preferred(machine, [gpu for gpu in machine.gpus if gpu.index in indices], catalogue)
    objections = Objections.of(machine, cards, catalogue)

    def cost(groups: Sequence[Sequence[Gpu]]) -> tuple[float, ...]:
        kinds = {kind_of(gpu) for group in groups for gpu in group}
        each = [objections.to(group) for group in groups]
        sliced, *rest = (sum(parts) for parts in zip(*each, strict=True))
        worst = max(part[WORST_LINK] for part in each)
        return (sliced, len(kinds), *rest[: WORST_LINK - 1], worst, *rest[WORST_LINK - 1 :])

    ways = islice(_ways(cards, size, count), MAX_SETS)
    best = min(ways, key=cost, default=())
    return tuple(sorted(tuple(sorted(gpu.index or 0 for gpu in group)) for group in best))


def joined(machine: Machine, groups: Groups, catalogue: Catalogue) -> tuple[Interconnect, Tri]:
    """Return how GPUs are joined inside the groups, in the worst of them, and peer access there."""
    words = {interconnect_of(machine, group, catalogue) for group in groups}
    peers = {p2p_of(machine, group, catalogue) for group in groups}
    link: Interconnect = next(
        (word for word in ("pcie", "unknown", "nvlink", "unified") if word in words), "none"
    )
    peer: Tri = next((word for word in ("no", "unknown", "yes") if word in peers), "unknown")
    return link, peer


def _ways(cards: Sequence[Gpu], size: int, count: int) -> Iterator[tuple[tuple[Gpu, ...], ...]]:
    """Yield every way to take ``count`` groups of ``size`` cards; no group is before an earlier."""
    if count == 0:
        yield ()
        return
    # the first card of a group comes before those of the groups that follow it
    for first in range(len(cards) - size * count + 1):
        for rest in combinations(range(first + 1, len(cards)), size - 1):
            left = [cards[at] for at in range(first + 1, len(cards)) if at not in rest]
            group = (cards[first], *(cards[at] for at in rest))
            for others in _ways(left, size, count - 1):
                yield (group, *others)


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


def _distance(nvlinks: int, path: str | None) -> int:
    """Return 0 for the widest NVLink, then PCIe paths in order, unknown last."""
    if nvlinks:
        return max(0, 18 - nvlinks)
    return 20 + (PCIE_PATHS.index(path) if path in PCIE_PATHS else len(PCIE_PATHS))
