"""Links between GPUs: NVLink pairs, PCIe paths, peer access; *unknown* is never *none*."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from qwendeploy.documents import Gpu, GpuLink, Links, Tri
from qwendeploy.hardware.reading import PCIE_PATHS, PciePath, Reading, TopologyReading
from qwendeploy.hardware.topology import worst_path


def links_of(readings: Sequence[Reading], gpus: Sequence[Gpu]) -> Links:
    """Return all pairs that a matrix shows, and what is known of NVLink.

    NVLink is ``none`` where a complete matrix shows none, where every one of several GPUs denies
    it, or for a single GPU whose text shows no link; ``unknown`` with MIG, with ``topo -mp``,
    without a matrix, or where links are up without a visible peer.
    """
    topology = _joined([t for reading in readings for t in reading.topologies])
    peers: dict[tuple[int, int], str] = {}
    up: dict[int, int | None] = {}
    for reading in readings:
        peers.update(reading.p2p)
        up.update(reading.nvlink_up)
    cells = topology.cells if topology else {}
    pairs = tuple(
        GpuLink(
            a=a,
            b=b,
            nvlinks=int(cell[2:]) if (cell := cells.get((a, b), "")).startswith("NV") else 0,
            pcie_path=cast(PciePath, cell) if cell in PCIE_PATHS else None,
            p2p=_peer(peers.get((a, b))),
        )
        for a, b in sorted({*cells, *peers})
    )
    return Links(
        nvlink=_nvlink(topology, pairs, up, gpus),
        pairs=pairs,
        worst_pcie_path=cast(
            "PciePath | None", worst_path([p.pcie_path for p in pairs if p.pcie_path])
        ),
    )


def _joined(topologies: list[TopologyReading]) -> TopologyReading | None:
    """Return one matrix: ``-m`` is believed before ``-mp``, whose cells hide NVLink."""
    if not topologies:
        return None
    ordered = sorted(topologies, key=lambda item: item.shows_nvlink)
    cells: dict[tuple[int, int], str] = {}
    numa: dict[int, int] = {}
    for item in ordered:
        cells.update(item.cells)
        numa.update(item.numa)
    gpus = tuple(sorted({gpu for item in topologies for gpu in item.gpus}))
    return TopologyReading(gpus, cells, numa, any(item.shows_nvlink for item in topologies))


def numa_nodes(readings: Sequence[Reading]) -> dict[int, int]:
    """Return the NUMA node by GPU index where a matrix shows one."""
    topology = _joined([t for reading in readings for t in reading.topologies])
    return topology.numa if topology else {}


def _peer(cell: str | None) -> Tri:
    if cell == "OK":
        return "yes"
    return "no" if cell in ("CNS", "GNS", "TNS", "NS", "DR") else "unknown"


def _nvlink(
    topology: TopologyReading | None,
    pairs: tuple[GpuLink, ...],
    up: dict[int, int | None],
    gpus: Sequence[Gpu],
) -> Literal["pairs", "none", "unknown"]:
    if any(pair.nvlinks for pair in pairs):
        return "pairs"
    if not gpus or any(gpu.mig for gpu in gpus) or None in up.values():
        return "unknown"
    if any(up.values()):
        return "unknown"
    if len(gpus) == 1:
        return "none"
    expected = len(gpus) * (len(gpus) - 1) // 2
    shown = sum(pair.pcie_path is not None for pair in pairs)
    if topology and topology.shows_nvlink and shown >= expected:
        return "none"
    denied = {gpu.index for gpu in gpus} <= {index for index, links in up.items() if links == 0}
    return "none" if denied else "unknown"
