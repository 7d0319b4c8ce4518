"""The interconnect of the serving GPUs, and whether they have peer access."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from qwendeploy.documents import Gpu, Machine, Tri
from qwendeploy.hardware.catalogue import Catalogue

Interconnect = Literal["nvlink", "pcie", "unified", "none", "unknown"]


def with_interconnect(machine: Machine, catalogue: Catalogue) -> Machine:
    """Return the machine with ``interconnect`` and ``p2p`` of its serving GPUs filled in.

    Where it cannot be told which can serve, those are all that are not known to be faulty.
    """
    serving = machine.chosen_gpu_indices or machine.usable_gpu_indices
    if not serving and machine.usable is None:
        serving = tuple(
            gpu.index for gpu in machine.gpus if gpu.health == "ok" and gpu.index is not None
        )
    return machine.model_copy(
        update={
            "interconnect": interconnect_of(machine, serving, catalogue),
            "p2p": p2p_of(machine, serving, catalogue),
        }
    )


def _cards(machine: Machine, serving: Sequence[int]) -> list[Gpu]:
    return [gpu for gpu in machine.gpus if gpu.index in serving]


def interconnect_of(machine: Machine, serving: Sequence[int], catalogue: Catalogue) -> Interconnect:
    """Return ``nvlink`` if NVLink joins every serving pair, ``pcie`` if at least one pair is
    known to lack it, ``unknown`` if neither is known.
    """
    if machine.unified_memory:
        return "unified"
    if len(serving) < 2:
        return "none"
    inside = [p for p in machine.links.pairs if p.a in serving and p.b in serving]
    expected = len(serving) * (len(serving) - 1) // 2
    if machine.links.nvlink == "pairs":
        if len(inside) == expected and all(pair.nvlinks for pair in inside):
            return "nvlink"
        return "pcie"
    if machine.links.nvlink == "none":
        return "pcie"
    kinds = {
        card.nvlink if (card := catalogue.find(gpu.model or gpu.name or "")) else "unknown"
        for gpu in _cards(machine, serving)
    }
    return "pcie" if kinds == {"none"} else "unknown"


def p2p_of(machine: Machine, serving: Sequence[int], catalogue: Catalogue) -> Tri:
    """Return whether peer access works: as read, else by NVLink, else by the kind of card.

    The stock driver refuses peer access over PCIe on GeForce cards; on professional cards it
    works unless the host's IOMMU stands in the way, so by kind it stays unknown there.
    """
    if len(serving) < 2:
        return "unknown"
    inside = [p for p in machine.links.pairs if p.a in serving and p.b in serving]
    read: set[Tri] = {pair.p2p for pair in inside if pair.p2p != "unknown"}
    if read:
        return "no" if "no" in read else "yes"
    if inside and all(pair.nvlinks for pair in inside):
        return "yes"
    for gpu in _cards(machine, serving):
        card = catalogue.find(gpu.model or gpu.name or "")
        without = machine.links.nvlink == "none" or (card is not None and card.nvlink == "none")
        if card is not None and card.p2p == "no" and without:
            return "no"
    return "unknown"
