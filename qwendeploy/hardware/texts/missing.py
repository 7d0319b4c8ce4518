"""Missing GPUs: reported by a tool or the kernel log, or shown by a gap in the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qwendeploy.documents import MissingGpu
from qwendeploy.hardware.reading import GpuReading, Reading
from qwendeploy.hardware.values import bus_id

FELL = "fallen off the bus (kernel log)"


def missing_gpus(
    readings: Sequence[Reading], gpus: Mapping[int, list[GpuReading]]
) -> tuple[MissingGpu, ...]:
    """Return the cards that are named as gone and not listed, each once.

    The tool counts cards by address, so a single unnumbered one belongs into a single gap of the
    listed numbers, unless the addresses around the gap say otherwise.
    """
    listed = {address for merged in gpus.values() for g in merged if (address := bus_id(g.bus_id))}
    found: dict[object, MissingGpu] = {}
    for reading in readings:
        for item in reading.missing:
            key = bus_id(item.bus_id) or ("index", item.index)
            found.setdefault(
                key, MissingGpu(index=item.index, bus_id=item.bus_id, reason=item.reason)
            )
        for lost in reading.lost:
            address = bus_id(lost.bus_id)
            if address not in listed:
                found.setdefault(address, MissingGpu(index=None, bus_id=lost.bus_id, reason=FELL))
    gap = _only_gap(gpus)
    gone = list(found.values())
    lone = gone[0] if len(gone) == 1 and gone[0].index is None else None
    if gap is not None and lone is not None and _fits(gap, bus_id(lone.bus_id), gpus):
        return (lone.model_copy(update={"index": gap}),)
    return tuple(gone)


def mark_lost(
    readings: Sequence[Reading], gpus: Mapping[int, list[GpuReading]], notes: list[str]
) -> None:
    """Give a listed card that fell off the bus afterwards its fault, any other such a note."""
    for reading in readings:
        for lost in reading.lost:
            address = bus_id(lost.bus_id)
            for index, merged in gpus.items():
                if address is None or all(bus_id(gpu.bus_id) != address for gpu in merged):
                    continue
                if lost.after:
                    merged[0].faults.append(FELL)
                else:
                    notes.append(f"GPU {index}: the kernel log shows that it once fell off the bus")


def _only_gap(gpus: Mapping[int, list[GpuReading]]) -> int | None:
    gaps = sorted(set(range(max(gpus, default=-1))) - set(gpus))
    return gaps[0] if len(gaps) == 1 else None


def _fits(gap: int, address: str | None, gpus: Mapping[int, list[GpuReading]]) -> bool:
    """Say whether an address stands between those of the cards before and behind the gap."""
    if address is None:
        return False
    for index, merged in gpus.items():
        for gpu in merged:
            known = bus_id(gpu.bus_id)
            if known is not None and (known < address) != (index < gap):
                return False
    return True
