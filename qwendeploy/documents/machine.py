"""The machine: what the hardware says, with *unknown* kept apart from *none*."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwendeploy.documents.base import Document, Model

Tri = Literal["yes", "no", "unknown"]


class MigDevice(Model):
    """One MIG slice; slices of one ``gi`` share its memory."""

    gpu: int
    gi: int | None = None
    ci: int | None = None
    profile: str | None = None
    memory_mib: int | None = None
    uuid: str | None = None


class Gpu(Model):
    """One GPU as the machine shows it; ``None`` is *not shown*, never zero."""

    index: int | None
    name: str | None
    """As shown, possibly cut."""
    model: str | None = None
    """Name in the GPU catalogue, if known."""
    name_truncated: bool = False
    edition: str | None = None
    uuid: str | None = None
    bus_id: str | None = None
    memory_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    memory_shared: bool = False
    """The tool refuses a total, as on cards that share the host's memory."""
    compute_capability: Annotated[str, Field(pattern=r"^\d{1,2}\.\d$")] | None = None
    compute_capability_by_name: bool = False
    mig: bool = False
    vgpu: bool = False
    health: Literal["ok", "error", "lost", "requires_reset", "unknown"] = "ok"
    health_reason: str | None = None
    display: bool | None = None
    power_cap_w: float | None = None
    power_cap_default_w: float | None = None
    power_cap_max_w: float | None = None
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    numa_node: int | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    driver_model: str | None = None
    """Windows: WDDM, TCC or MCDM."""
    clock_sm_mhz: float | None = None
    clock_sm_max_mhz: float | None = None
    slowdown: str | None = None
    """Reasons that hold the clock down right now, as the tool names them."""


class MissingGpu(Model):
    """A card that the text names as gone; it is not in the GPU list."""

    index: int | None = None
    bus_id: str | None = None
    reason: str


class GpuLink(Model):
    """How two GPUs of this machine reach each other."""

    a: int
    b: int
    nvlinks: int = 0
    pcie_path: Literal["PIX", "PXB", "PHB", "NODE", "SYS"] | None = None
    p2p: Tri = "unknown"


class Links(Model):
    """All GPU pairs; ``unknown`` means it cannot be told, which is not ``none``."""

    nvlink: Literal["pairs", "none", "unknown"] = "unknown"
    pairs: tuple[GpuLink, ...] = ()
    worst_pcie_path: Literal["PIX", "PXB", "PHB", "NODE", "SYS"] | None = None
    """Worst path among pairs without NVLink."""


class Machine(Model):
    """GPUs with links, driver and CUDA ceiling, and host: detected, read from files, or stated."""

    gpus: tuple[Gpu, ...]
    missing_gpus: tuple[MissingGpu, ...] = ()
    mig_devices: tuple[MigDevice, ...] = ()
    count: int | None = None
    """GPUs listed, faulty ones included; ``None`` when the text cannot tell."""
    driver: str | None = None
    cuda: str | None = None
    """CUDA ceiling of the driver as shown (not an installed toolkit)."""
    smi_version: str | None = None
    nvml_library_version: str | None = None
    links: Links = Links()
    interconnect: Literal["nvlink", "pcie", "unified", "none", "unknown"] = "unknown"
    """How the GPUs chosen for serving are joined; ``none`` for a single GPU."""
    p2p: Tri = "unknown"
    unified_memory: bool = False
    host_memory_mib: int | None = None
    os: Literal["linux", "wsl2", "windows", "container", "unknown"] = "unknown"
    platform: str = "unknown"
    """linux-x86_64, linux-aarch64, linux-ppc64le, windows, wsl2 or unknown."""
    usable: bool | None = None
    usable_reason: str = ""
    usable_gpu_indices: tuple[int, ...] = ()
    chosen_gpu_indices: tuple[int, ...] = ()
    """GPUs to serve on, by index; empty means all usable ones."""
    origin: Literal["detected", "file", "stated", "assumed"] = "stated"
    notes: tuple[str, ...] = ()


class MachineDocument(Document):
    """A stored machine."""

    schema_id: str = Field(default="qwendeploy/machine", alias="schema")
    machine: Machine
