"""The facts of one text, before several texts are merged into a machine.

Every parser fills the same classes. ``None`` is *not in this text*; a fault or an unsupported
field is recorded as such and never as zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

PCIE_PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Paths between two GPUs from shortest to longest, as ``nvidia-smi topo`` names them."""

PciePath = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]


class Rank(IntEnum):
    """How much a source is believed where two give one field; larger wins."""

    STATED = 0
    BUS = 1
    TOPOLOGY = 2
    LISTING = 3
    TABLE = 4
    CSV = 5
    LOG = 6
    NVML = 7


@dataclass(slots=True)
class GpuReading:
    """One GPU in one text. ``position`` is its place there, counted from 0."""

    rank: Rank
    position: int
    index: int | None = None
    name: str | None = None
    uuid: str | None = None
    bus_id: str | None = None
    memory_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    memory_unsupported: bool = False
    memory_guessed: bool = False
    """Whether the total is a bare number of a row without header, which may be anything."""
    compute_capability: str | None = None
    mig: bool | None = None
    vgpu: bool | None = None
    display: bool | None = None
    power_cap_w: float | None = None
    power_cap_default_w: float | None = None
    power_cap_max_w: float | None = None
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    numa_node: int | None = None
    persistence: bool | None = None
    driver_model: str | None = None
    ecc: bool | None = None
    clock_sm_mhz: float | None = None
    clock_sm_max_mhz: float | None = None
    slowdown: str | None = None
    faults: list[str] = field(default_factory=list)


@dataclass(slots=True)
class MigReading:
    """One MIG slice; ``device`` is its number on the parent GPU."""

    rank: Rank
    gpu: int | None
    gpu_bus_id: str | None = None
    device: int | None = None
    gi: int | None = None
    ci: int | None = None
    profile: str | None = None
    memory_mib: int | None = None
    uuid: str | None = None


@dataclass(slots=True)
class MissingReading:
    """A card that the text names as gone."""

    index: int | None
    bus_id: str | None
    reason: str


@dataclass(slots=True)
class LostReading:
    """A card that the kernel log says has fallen off the bus; ``after`` the text's last table."""

    bus_id: str
    after: bool


@dataclass(slots=True)
class ProcessReading:
    """A program that holds GPU memory."""

    gpu: int | None
    pid: int | None
    name: str
    memory_mib: int | None
    kind: str = "C"


@dataclass(slots=True)
class TopologyReading:
    """One matrix: GPU pairs (a < b) to the printed cell, NUMA node by GPU.

    ``shows_nvlink`` is false for ``topo -mp``, whose legend has no NV# line: a pair without NV#
    then says nothing about NVLink.
    """

    gpus: tuple[int, ...]
    cells: dict[tuple[int, int], str]
    numa: dict[int, int]
    shows_nvlink: bool


@dataclass(slots=True)
class Failure:
    """An error text of the tool. ``count`` is the number of GPUs that it proves, if any."""

    code: str
    line: str
    reason: str
    count: int | None = None


@dataclass(slots=True)
class Reading:
    """Everything that one text says."""

    origin: str
    gpus: list[GpuReading] = field(default_factory=list)
    mig: list[MigReading] = field(default_factory=list)
    mig_profiles: dict[tuple[int, int, int | None], str] = field(default_factory=dict)
    """Profile by GPU and GPU instance (``mig -lgi``), or compute instance too (``mig -lci``)."""
    missing: list[MissingReading] = field(default_factory=list)
    lost: list[LostReading] = field(default_factory=list)
    processes: list[ProcessReading] = field(default_factory=list)
    topologies: list[TopologyReading] = field(default_factory=list)
    topology_failed: bool = False
    p2p: dict[tuple[int, int], str] = field(default_factory=dict)
    p2p_pcie: dict[tuple[int, int], str] = field(default_factory=dict)
    """Peer access over PCIe (``topo -p2p p``); NVLink may allow what PCIe does not."""
    peer_gpus: set[int] = field(default_factory=set)
    """GPUs that a matrix of ``topo -p2p`` lists."""
    nvlink_up: dict[int, int | None] = field(default_factory=dict)
    """Active links by GPU; 0 where the tool denies NVLink, ``None`` where it cannot tell."""
    nvlink_remote: dict[tuple[int, str], int] = field(default_factory=dict)
    """Links by GPU and address of what is at their other end: a GPU or a switch."""
    driver: str | None = None
    cuda: str | None = None
    smi_version: str | None = None
    nvml_library_version: str | None = None
    failures: list[Failure] = field(default_factory=list)
    platform_hints: list[str] = field(default_factory=list)
    """``windows``, ``linux``, ``wsl2``, ``x86_64``, ``aarch64``, ``ppc64le``."""
    container: bool = False
    host_memory_mib: int | None = None
    notes: list[str] = field(default_factory=list)

    def is_empty(self) -> bool:
        """Say whether nothing about a machine was recognised."""
        return not (
            self.gpus
            or self.missing
            or self.failures
            or self.driver
            or self.topologies
            or self.nvlink_up
            or self.topology_failed
            or self.peer_gpus
            or self.lost
        )
