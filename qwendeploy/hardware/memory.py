"""How much memory of a GPU a server can use, and the source of the number."""

from __future__ import annotations

import re
from typing import Literal

from qwendeploy.documents import Gpu, Machine, MigDevice
from qwendeploy.hardware.catalogue import CatalogueGpu
from qwendeploy.units import MIB

How = Literal["read", "slice", "host", "card"]

_PROFILE = re.compile(r"(\d{1,3})gb\b", re.IGNORECASE)


def serving_memory_mib(
    machine: Machine, gpu: Gpu, card: CatalogueGpu | None = None
) -> tuple[int, How] | None:
    """Return memory in MiB and its origin, or ``None`` if nothing tells it.

    A GPU in MIG mode offers its largest slice, not itself; a slice whose size is not shown has at
    least its profile's gigabytes of 10^9 bytes. A card without memory of its own offers the
    host's. What the text does not show is taken from the card's kind: what nvidia-smi prints for
    it, else the gigabytes on the box as 10^9 bytes, the smaller reading.
    """
    if gpu.mig:
        device = serving_slice(machine, gpu)
        size = _slice_mib(device) if device is not None else None
        return (size, "slice") if size else None
    if gpu.memory_mib:
        return gpu.memory_mib, "read"
    if machine.unified_memory and machine.host_memory_mib:
        return machine.host_memory_mib, "host"
    if card is not None and card.memory_mib:
        return card.memory_mib, "card"
    if card is not None and card.memory_gb_nominal:
        return int(card.memory_gb_nominal * 1e9 / MIB), "card"
    return None


def serving_slice(machine: Machine, gpu: Gpu) -> MigDevice | None:
    """Return the slice of a GPU in MIG mode that serves: the largest, the first of equals."""
    sized = [
        (size, device)
        for device in machine.mig_devices
        if gpu.mig and device.gpu == gpu.index and (size := _slice_mib(device))
    ]
    return max(sized, key=lambda item: item[0])[1] if sized else None


def _slice_mib(device: MigDevice) -> int | None:
    if device.memory_mib:
        return device.memory_mib
    match = _PROFILE.search(device.profile or "")
    return int(int(match[1]) * 1e9 / MIB) if match else None
