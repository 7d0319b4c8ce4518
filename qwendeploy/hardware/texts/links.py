"""Links between GPUs: NVLink pairs, PCIe paths, peer access; *unknown* is never *none*."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from qwendeploy.documents import Gpu, GpuLink, Links, Tri
from qwendeploy.hardware.reading import PCIE_PATHS, PciePath, Reading, TopologyReading
from qwendeploy.hardware.texts.topology import worst_path
from qwendeploy.hardware.values import bus_id


def links_of(readings: Sequence[Reading], gpus: Sequence[Gpu]) -> Links:
    """Return all pairs that a matrix shows, and what is known of NVLink.

    NVLink is ``none`` where a complete matrix shows none, where every one of several GPUs denies
    it, or for a single GPU whose text shows no link; ``unknown`` with MIG, with ``topo -mp``,
    without a matrix, or where links are up without a visible peer.
    """
    topology = _joined([t for reading in readings for t in reading.topologies])
    peers: dict[tuple[int, int], str] = {}
    over_pcie: dict[tuple[int, int], str] = {}
    up: dict[int, int | None] = {}
    for reading in readings:
        peers.update(reading.p2p)
        over_pcie.update(reading.p2p_pcie)
        up.update(reading.nvlink_up)
        for (gpu, _), count in reading.nvlink_remote.items():
            up[gpu] = (up.get(gpu) or 0) + count
    cells = _peers_by_address(readings, gpus) | (topology.cells if topology else {})
    for pair, cell in over_pcie.items():
        if cell == "OK" or cells.get(pair) in PCIE_PATHS:
            peers.setdefault(pair, cell)
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


def _peers_by_address(
    readings: Sequence[Reading], gpus: Sequence[Gpu]
) -> dict[tuple[int, int], str]:
    """Return the pairs that ``nvlink -R`` shows, as cells of a matrix; links to a switch are none.

    Without addresses of the GPUs two of them are a pair if each sees one other end, and not the
    same: a switch would be one and the same for both.
    """
    remote: dict[tuple[int, str], int] = {}
    for reading in readings:
        remote.update(reading.nvlink_remote)
    by_address = {address: gpu.index for gpu in gpus if (address := bus_id(gpu.bus_id))}
    cells: dict[tuple[int, int], str] = {}
    for (gpu, address), count in remote.items():
        other = by_address.get(address)
        if other is not None and other != gpu:
            cells[min(gpu, other), max(gpu, other)] = f"NV{count}"
    indices = [gpu.index for gpu in gpus if gpu.index is not None]
    if not by_address and len(indices) == 2 and sorted(gpu for gpu, _ in remote) == indices:
        (_, first), (_, second) = remote
        if first != second:
            cells[indices[0], indices[1]] = f"NV{min(remote.values())}"
    return cells


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
