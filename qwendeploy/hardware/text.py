"""Text of a machine for the terminal."""

from __future__ import annotations

from qwendeploy.documents import Gpu, Machine


def describe_machine(machine: Machine) -> str:
    """Return the machine's facts as lines of text; what is not shown is said to be unknown."""
    head = f"{_count(machine)}, driver {machine.driver or 'unknown'}"
    if machine.cuda:
        head += f", CUDA up to {machine.cuda}"
    lines = [f"{head}, {machine.platform}{' (container)' if machine.os == 'container' else ''}"]
    lines += [_gpu_line(machine, gpu) for gpu in machine.gpus]
    lines += [
        f"  MIG on GPU {item.gpu}: {item.profile or 'slice'}, {_mib(item.memory_mib)}"
        + (f", instance {item.gi}/{item.ci}" if item.gi is not None else "")
        for item in machine.mig_devices
    ]
    lines += [
        f"  missing: GPU {item.index if item.index is not None else '?'}"
        f" at {item.bus_id or 'unknown address'}: {item.reason}"
        for item in machine.missing_gpus
    ]
    if len(machine.gpus) > 1:
        lines.append(f"links: {_links(machine)}")
    if machine.unified_memory:
        host = _mib(machine.host_memory_mib)
        lines.append(f"memory: shared with the host ({host})")
    usable = {True: "yes", False: "no", None: "unknown"}[machine.usable]
    lines.append(f"can serve: {usable} ({machine.usable_reason})")
    lines += [f"note: {note}" for note in machine.notes]
    return "\n".join(lines)


def _count(machine: Machine) -> str:
    if machine.count is None:
        return "number of GPUs unknown"
    return f"{machine.count} GPU" + ("" if machine.count == 1 else "s")


def _mib(size: int | None) -> str:
    return f"{size:,} MiB" if size is not None else "memory unknown"


def _gpu_line(machine: Machine, gpu: Gpu) -> str:
    parts = [gpu.name or "name unknown"]
    if gpu.model and gpu.model != gpu.name:
        parts[0] += f" = {gpu.model}"
    parts.append(_mib(gpu.memory_mib))
    if gpu.memory_mib and gpu.memory_free_mib is not None:
        parts.append(f"{gpu.memory_free_mib:,} free")
    if gpu.compute_capability:
        parts.append(
            f"cc {gpu.compute_capability}" + (" by name" if gpu.compute_capability_by_name else "")
        )
    else:
        parts.append("cc unknown")
    if gpu.power_cap_w:
        parts.append(f"{gpu.power_cap_w:g} W")
    if gpu.pcie_generation_max and gpu.pcie_width_max:
        parts.append(f"PCIe {gpu.pcie_generation_max}.0 x{gpu.pcie_width_max}")
    if gpu.numa_node is not None:
        parts.append(f"NUMA {gpu.numa_node}")
    flags = [
        word
        for word, said in (
            ("MIG", gpu.mig),
            ("virtual GPU", gpu.vgpu),
            ("display", gpu.display),
            ("not usable", machine.usable and gpu.index not in machine.usable_gpu_indices),
        )
        if said
    ]
    parts += flags
    if gpu.health != "ok":
        parts.append(f"FAULTY: {gpu.health_reason}")
    return f"  [{gpu.index}] " + ", ".join(parts)


def _links(machine: Machine) -> str:
    links = machine.links
    joined = [pair for pair in links.pairs if pair.nvlinks]
    parts = []
    if joined:
        shown = ", ".join(f"{p.a}-{p.b} NV{p.nvlinks}" for p in joined[:8])
        more = f" and {len(joined) - 8} more pairs" if len(joined) > 8 else ""
        parts.append(f"NVLink {shown}{more}")
    else:
        parts.append(f"NVLink {links.nvlink}")
    parts.append(f"longest PCIe path {links.worst_pcie_path or 'unknown' if not joined else '-'}")
    if links.worst_pcie_path and joined:
        parts[-1] = f"longest PCIe path {links.worst_pcie_path}"
    elif joined:
        parts.pop()
    parts.append(f"peer access {machine.p2p}")
    return "; ".join(parts)
