"""Facts from NVML through nvidia-ml-py."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from qwendeploy.hardware.reading import (
    Failure,
    GpuReading,
    MigReading,
    ProcessReading,
    Rank,
    Reading,
    TopologyReading,
)
from qwendeploy.units import MIB

_PATHS = {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t; 0 (one board) is PIX in the words of ``topo -m``."""

MAX_LINKS = 18
"""NVLINK_MAX_LINKS of Hopper and Blackwell."""


def read_nvml(library: Any = None) -> Reading | None:
    """Return what NVML says, or ``None`` where the library is not installed.

    An NVML that does not start gives a reading with the failure and no GPU. ``library`` stands
    in for the module ``pynvml`` in tests.
    """
    if library is None:
        library = importlib.import_module("pynvml")
    reading = Reading("NVML")
    try:
        library.nvmlInit()
    except library.NVMLError as problem:
        if _is(library, problem, "NVML_ERROR_LIBRARY_NOT_FOUND"):
            return None
        line = f"Failed to initialize NVML: {problem}"
        reading.failures.append(Failure("nvml", line, "check driver and device permissions"))
        return reading
    try:
        _read(library, reading)
    finally:
        library.nvmlShutdown()
    return reading


def _is(library: Any, problem: Any, name: str) -> bool:
    return getattr(problem, "value", None) == getattr(library, name, object())


def _ask(library: Any, function: str, *arguments: Any) -> Any:
    """Return the answer, or ``None`` where this card or driver does not know the question."""
    call: Callable[..., Any] | None = getattr(library, function, None)
    if call is None:
        return None
    try:
        answer = call(*arguments)
    except library.NVMLError:
        return None
    return answer.decode("utf-8", errors="replace") if isinstance(answer, bytes) else answer


def _read(library: Any, reading: Reading) -> None:
    reading.driver = _ask(library, "nvmlSystemGetDriverVersion")
    cuda = _ask(library, "nvmlSystemGetCudaDriverVersion_v2")
    if isinstance(cuda, int):
        reading.cuda = f"{cuda // 1000}.{cuda % 1000 // 10}"
    handles: dict[int, Any] = {}
    for index in range(_ask(library, "nvmlDeviceGetCount") or 0):
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
        except library.NVMLError as problem:
            gpu = GpuReading(Rank.NVML, index, index=index)
            gpu.faults.append(f"{problem} (does not respond)")
            reading.gpus.append(gpu)
            continue
        handles[index] = handle
        reading.gpus.append(_gpu(library, index, handle))
        _read_mig(library, index, handle, reading)
        _read_processes(library, index, handle, reading)
    _read_links(library, handles, reading)


def _gpu(library: Any, index: int, handle: Any) -> GpuReading:
    gpu = GpuReading(Rank.NVML, index, index=index)
    gpu.name = _ask(library, "nvmlDeviceGetName", handle)
    gpu.uuid = _ask(library, "nvmlDeviceGetUUID", handle)
    pci = _ask(library, "nvmlDeviceGetPciInfo", handle)
    address = getattr(pci, "busId", None)
    gpu.bus_id = address.decode() if isinstance(address, bytes) else address
    memory = _memory(library, handle)
    if memory is not None and memory.total:
        gpu.memory_mib = memory.total // MIB
        gpu.memory_used_mib = memory.used // MIB
        gpu.memory_free_mib = memory.free // MIB
    else:
        gpu.memory_unsupported = memory is None
    capability = _ask(library, "nvmlDeviceGetCudaComputeCapability", handle)
    if capability is not None:
        gpu.compute_capability = f"{capability[0]}.{capability[1]}"
    mode = _ask(library, "nvmlDeviceGetMigMode", handle)
    gpu.mig = bool(mode[0]) if mode is not None else None
    gpu.display = _flag(_ask(library, "nvmlDeviceGetDisplayActive", handle))
    gpu.persistence = _flag(_ask(library, "nvmlDeviceGetPersistenceMode", handle))
    ecc = _ask(library, "nvmlDeviceGetEccMode", handle)
    gpu.ecc = bool(ecc[0]) if ecc is not None else None
    gpu.power_cap_w = _watts(_ask(library, "nvmlDeviceGetEnforcedPowerLimit", handle))
    gpu.power_cap_default_w = _watts(
        _ask(library, "nvmlDeviceGetPowerManagementDefaultLimit", handle)
    )
    limits = _ask(library, "nvmlDeviceGetPowerManagementLimitConstraints", handle)
    gpu.power_cap_max_w = _watts(limits[1]) if limits is not None else None
    gpu.pcie_generation_max = _ask(library, "nvmlDeviceGetMaxPcieLinkGeneration", handle)
    gpu.pcie_width_max = _ask(library, "nvmlDeviceGetMaxPcieLinkWidth", handle)
    node = _ask(library, "nvmlDeviceGetNumaNodeId", handle)
    gpu.numa_node = node if isinstance(node, int) and 0 <= node < 1024 else None
    gpu.clock_sm_mhz = _ask(library, "nvmlDeviceGetClockInfo", handle, 1)
    gpu.clock_sm_max_mhz = _ask(library, "nvmlDeviceGetMaxClockInfo", handle, 1)
    virtual = _ask(library, "nvmlDeviceGetVirtualizationMode", handle)
    gpu.vgpu = virtual == getattr(library, "NVML_GPU_VIRTUALIZATION_MODE_VGPU", 2)
    return gpu


def _memory(library: Any, handle: Any) -> Any:
    """Return total, used and free; the second version leaves the driver's reserve out of used."""
    second = getattr(library, "nvmlMemory_v2", None)
    if second is not None:
        answer = _ask(library, "nvmlDeviceGetMemoryInfo", handle, second)
        if answer is not None:
            return answer
    return _ask(library, "nvmlDeviceGetMemoryInfo", handle)


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _watts(milliwatts: Any) -> float | None:
    return milliwatts / 1000 if isinstance(milliwatts, int) else None


def _read_mig(library: Any, index: int, handle: Any, reading: Reading) -> None:
    if not reading.gpus[-1].mig:
        return
    for device in range(_ask(library, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        slice_ = _ask(library, "nvmlDeviceGetMigDeviceHandleByIndex", handle, device)
        if slice_ is None:
            continue
        memory = _ask(library, "nvmlDeviceGetMemoryInfo", slice_)
        name = _ask(library, "nvmlDeviceGetName", slice_) or ""
        reading.mig.append(
            MigReading(
                Rank.NVML,
                gpu=index,
                device=device,
                gi=_ask(library, "nvmlDeviceGetGpuInstanceId", slice_),
                ci=_ask(library, "nvmlDeviceGetComputeInstanceId", slice_),
                profile=name.split(" MIG ")[-1] if " MIG " in name else None,
                memory_mib=memory.total // MIB if memory is not None else None,
                uuid=_ask(library, "nvmlDeviceGetUUID", slice_),
            )
        )


def _read_processes(library: Any, index: int, handle: Any, reading: Reading) -> None:
    for process in (_ask(library, "nvmlDeviceGetComputeRunningProcesses", handle) or ())[:200]:
        used = process.usedGpuMemory
        name = _ask(library, "nvmlSystemGetProcessName", process.pid) or "unknown"
        reading.processes.append(
            ProcessReading(index, process.pid, name, used // MIB if isinstance(used, int) else None)
        )


def _read_links(library: Any, handles: dict[int, Any], reading: Reading) -> None:
    """Take NVLink counts by the address at the far end, PCIe paths and peer access."""
    addresses = {gpu.bus_id: gpu.index for gpu in reading.gpus if gpu.bus_id}
    cells: dict[tuple[int, int], str] = {}
    for index, handle in handles.items():
        up = 0
        for link in range(MAX_LINKS):
            if not _ask(library, "nvmlDeviceGetNvLinkState", handle, link):
                continue
            up += 1
            remote = _ask(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, link)
            address = getattr(remote, "busId", None)
            address = address.decode() if isinstance(address, bytes) else address
            peer = addresses.get(str(address))
            if peer is not None and peer > index:
                count = int(cells.get((index, peer), "NV0")[2:]) + 1
                cells[(index, peer)] = f"NV{count}"
        if up:
            reading.nvlink_up[index] = up
    for a, first in handles.items():
        for b, second in handles.items():
            if a >= b:
                continue
            if (a, b) not in cells:
                level = _ask(library, "nvmlDeviceGetTopologyCommonAncestor", first, second)
                if isinstance(level, int):
                    cells[(a, b)] = _PATHS.get(level, "PIX")
            status = _ask(library, "nvmlDeviceGetP2PStatus", first, second, 0)
            if status is not None:
                reading.p2p[(a, b)] = "OK" if status == 0 else "NS"
    through_switch = any(reading.nvlink_up.values()) and not any(
        cell.startswith("NV") for cell in cells.values()
    )
    if len(handles) > 1 and cells:
        reading.topologies.append(
            TopologyReading(tuple(handles), cells, {}, shows_nvlink=not through_switch)
        )
