"""Merging of several readings into one machine.

One GPU is one index. A reading without an index is matched by PCI address, then by UUID, then by
its place in a list of the same length; only if nothing else names GPUs is its place the index.
Where two texts give one field, the source with the higher ``Rank`` wins; disagreement on the
kind of card is noted, since the texts may come from two machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

from qwendeploy.documents import Gpu, Machine, MigDevice
from qwendeploy.hardware.catalogue import Catalogue
from qwendeploy.hardware.interconnect import with_interconnect
from qwendeploy.hardware.naming import Naming, naming
from qwendeploy.hardware.reading import GpuReading, MigReading, Rank, Reading
from qwendeploy.hardware.texts.buses import without_buses
from qwendeploy.hardware.texts.links import links_of, numa_nodes
from qwendeploy.hardware.texts.missing import mark_lost, missing_gpus
from qwendeploy.hardware.texts.platforms import platform_of
from qwendeploy.hardware.usable import judge
from qwendeploy.hardware.values import bus_id, health_of

_IDENTITY = ("rank", "position", "index", "faults")


def machine_of(
    readings: Sequence[Reading], catalogue: Catalogue, *, origin: str = "file"
) -> Machine:
    """Return the machine that the readings describe, with ``usable`` decided.

    ``count`` is ``None`` when the texts cannot tell how many GPUs there are.
    """
    readings = without_buses(readings)
    gpus = _merged(readings)
    for index, node in numa_nodes(readings).items():
        gpus[index][-1].numa_node = node
    notes: list[str] = [note for reading in readings for note in reading.notes]
    mark_lost(readings, gpus, notes)
    documents = tuple(_gpu(index, merged, catalogue, notes) for index, merged in gpus.items())
    mig = _mig_devices(readings, gpus)
    if mig:
        parents = {device.gpu for device in mig}
        documents = tuple(
            gpu.model_copy(update={"mig": True}) if gpu.index in parents else gpu
            for gpu in documents
        )
    driver = next((r.driver for r in readings if r.driver), None)
    smi = next((r.smi_version for r in readings if r.smi_version), None)
    platform, system, arch_note = platform_of(readings, documents, driver, smi)
    if arch_note:
        notes.append(arch_note)
    failures = [failure for reading in readings for failure in reading.failures]
    machine = Machine(
        gpus=documents,
        missing_gpus=missing_gpus(readings, gpus),
        mig_devices=mig,
        count=len(documents)
        if documents
        else next((f.count for f in failures if f.count == 0), None),
        driver=driver,
        cuda=next((r.cuda for r in readings if r.cuda), None),
        smi_version=smi if smi != driver and driver is not None else None,
        nvml_library_version=next(
            (r.nvml_library_version for r in readings if r.nvml_library_version), None
        ),
        links=links_of(readings, documents),
        unified_memory=_is_unified(documents, gpus, catalogue),
        host_memory_mib=next((r.host_memory_mib for r in readings if r.host_memory_mib), None),
        os=system,
        platform=platform,
        origin=origin,
        notes=tuple(dict.fromkeys(notes)),
    )
    return with_interconnect(judge(machine, failures), catalogue)


def _merged(readings: Sequence[Reading]) -> dict[int, list[GpuReading]]:
    """Return per index the readings of that GPU, the most believed first."""
    merged: dict[int, list[GpuReading]] = {}
    by_bus: dict[str, int] = {}
    by_uuid: dict[str, int] = {}
    loose: list[list[GpuReading]] = []

    def put(index: int, gpu: GpuReading) -> None:
        merged.setdefault(index, []).append(gpu)
        if (address := bus_id(gpu.bus_id)) is not None:
            by_bus.setdefault(address, index)
        if gpu.uuid is not None:
            by_uuid.setdefault(gpu.uuid, index)

    for reading in readings:
        without = []
        for gpu in reading.gpus:
            if gpu.index is None:
                without.append(gpu)
            else:
                put(gpu.index, gpu)
        loose.extend(
            [gpu for gpu in without if gpu.rank == rank] for rank in {gpu.rank for gpu in without}
        )
    for reading in readings:
        for topology in reading.topologies:
            for position, index in enumerate(topology.gpus):
                put(index, GpuReading(Rank.TOPOLOGY, position, index=index))
        for position, index in enumerate(sorted(reading.peer_gpus)):
            put(index, GpuReading(Rank.TOPOLOGY, position, index=index))
    for group in sorted(loose, key=lambda group: -group[0].rank):
        _place(group, merged, by_bus, by_uuid, put)
    for index in merged:
        merged[index].sort(key=lambda gpu: -gpu.rank)
    return dict(sorted(merged.items()))


def _place(
    group: list[GpuReading],
    merged: dict[int, list[GpuReading]],
    by_bus: dict[str, int],
    by_uuid: dict[str, int],
    put: Callable[[int, GpuReading], None],
) -> None:
    """Give the readings of one list their indices."""
    known = sorted(merged)
    unique = {gpu.uuid for gpu in group if gpu.uuid}
    for gpu in group:
        address = bus_id(gpu.bus_id) or ""
        if address in by_bus:
            put(by_bus[address], gpu)
        elif (gpu.uuid or "") in by_uuid and len(unique) == len(group):
            put(by_uuid[gpu.uuid or ""], gpu)
        elif gpu.position < len(known):
            put(known[gpu.position], gpu)
        else:
            put(gpu.position, gpu)
    for position, gpu in enumerate(group):
        gpu.position = position


def _value(readings: list[GpuReading], name: str) -> object:
    return next(
        (value for gpu in readings if (value := getattr(gpu, name)) not in (None, "")), None
    )


def _best_name(readings: list[GpuReading]) -> str | None:
    names = [gpu.name for gpu in readings if gpu.name]
    whole = [name for name in names if not name.endswith(("...", "…"))]
    return next(iter(whole or names), None)


def _gpu(index: int, readings: list[GpuReading], catalogue: Catalogue, notes: list[str]) -> Gpu:
    if any(gpu.memory_mib and not gpu.memory_guessed for gpu in readings):
        readings = [replace(g, memory_mib=None) if g.memory_guessed else g for g in readings]
    values = {
        item.name: _value(readings, item.name)
        for item in fields(GpuReading)
        if item.name not in _IDENTITY
    }
    name = _best_name(readings)
    faults = list(dict.fromkeys(text for gpu in readings for text in gpu.faults))
    total = values["memory_mib"]
    cap = values["power_cap_default_w"] or values["power_cap_w"]
    known = (
        naming(
            name,
            catalogue,
            memory_mib=total if isinstance(total, int) else None,
            power_w=cap if isinstance(cap, float) else None,
        )
        if name
        else Naming(False, False, None, ())
    )
    capability = values.pop("compute_capability") or known.compute_capability
    _note_conflicts(index, name, readings, notes)
    model, edition = _model(known)
    if len(known.cards) > 1:
        others = ", ".join(card.name for card in known.cards[1:4])
        notes.append(f"{name!r} is read as {model}; it could also be {others}")
    used = values["memory_used_mib"]
    free = values.pop("memory_free_mib")
    if free is None and isinstance(used, int) and isinstance(total, int):
        free = max(total - used, 0)
    unsupported = bool(values.pop("memory_unsupported"))
    if values.pop("memory_guessed") and isinstance(total, int) and _is_no_size(known, total):
        total = values["memory_mib"] = values["memory_used_mib"] = free = None
    return Gpu(
        index=index,
        name=name,
        model=model,
        name_truncated=known.truncated,
        edition=edition,
        compute_capability=capability,
        compute_capability_by_name=bool(capability)
        and not any(gpu.compute_capability for gpu in readings),
        mig=bool(values.pop("mig")),
        vgpu=bool(values.pop("vgpu")) or known.vgpu,
        health=health_of(faults),
        health_reason="; ".join(faults) or None,
        memory_free_mib=free if total is not None else None,
        memory_shared=unsupported and total is None,
        **{key: value for key, value in values.items() if key not in ("name", "vgpu")},
    )


def _is_no_size(known: Naming, total: int) -> bool:
    """Say whether a bare number is none of the named cards' memory, as sold or doubled."""
    return bool(known.cards) and all(
        card.has_memory(total) is False and card.has_memory(total / 2) is False
        for card in known.cards
    )


def _note_conflicts(
    index: int, name: str | None, readings: list[GpuReading], notes: list[str]
) -> None:
    stem = (name or "").casefold()
    for gpu in readings:
        other = (gpu.name or "").rstrip(".… ").casefold()
        if other and not (stem.startswith(other) or other.startswith(stem)):
            notes.append(
                f"GPU {index}: the inputs show {name!r} and {gpu.name!r}; is it one machine?"
            )
    addresses = sorted({shown for gpu in readings if (shown := bus_id(gpu.bus_id))})
    if len(addresses) > 1:
        notes.append(
            f"GPU {index}: the inputs show the addresses {' and '.join(addresses[:2])};"
            " is it one machine?"
        )
    sizes = {gpu.memory_mib for gpu in readings if gpu.memory_mib}
    if sizes and max(sizes) > 1.1 * min(sizes):
        notes.append(f"GPU {index}: the inputs show memory totals of {sorted(sizes)} MiB")


def _model(known: Naming) -> tuple[str | None, str | None]:
    """Return catalogue name and, if only one card fits, its edition."""
    if not known.cards:
        return None, None
    model = known.cards[0].name
    editions = ("Max-Q", "Server", "Workstation", "Laptop")
    edition = next((word for word in editions if word in model), None)
    return model, edition if len(known.cards) == 1 else None


def _mig_devices(
    readings: Sequence[Reading], gpus: dict[int, list[GpuReading]]
) -> tuple[MigDevice, ...]:
    """Return the slices in the order shown; table, log and listing tell different halves."""
    by_bus = {
        address: index
        for index, merged in gpus.items()
        for gpu in merged
        if (address := bus_id(gpu.bus_id)) is not None
    }
    slices: dict[tuple[int, int], list[MigReading]] = {}
    for reading in readings:
        for order, item in enumerate(reading.mig):
            gpu = item.gpu if item.gpu is not None else by_bus.get(bus_id(item.gpu_bus_id) or "")
            if gpu is not None:
                device = item.device if item.device is not None else order
                slices.setdefault((gpu, device), []).append(item)

    def first(items: list[MigReading], name: str) -> object:
        ordered = sorted(items, key=lambda item: -item.rank)
        return next((v for item in ordered if (v := getattr(item, name)) is not None), None)

    profiles = {key: name for reading in readings for key, name in reading.mig_profiles.items()}
    devices = []
    for (gpu, _), items in sorted(slices.items()):
        names = ("gi", "ci", "profile", "memory_mib", "uuid")
        values = {name: first(items, name) for name in names}
        gi, ci = values["gi"], values["ci"]
        if values["profile"] is None and isinstance(gi, int):
            exact = profiles.get((gpu, gi, ci)) if isinstance(ci, int) else None
            values["profile"] = exact or profiles.get((gpu, gi, None))
        devices.append(MigDevice.model_validate({"gpu": gpu, **values}))
    return tuple(devices)


def _is_unified(
    documents: tuple[Gpu, ...], gpus: dict[int, list[GpuReading]], catalogue: Catalogue
) -> bool:
    """Say whether GPU and host share one memory: the card's kind, or the tool refuses a total."""
    for gpu in documents:
        if gpu.model and (card := catalogue.find(gpu.model)) is not None and card.unified:
            return True
    return bool(documents) and any(
        reading.memory_unsupported and reading.rank == Rank.TABLE
        for merged in gpus.values()
        for reading in merged
    )
