"""The matrices of ``nvidia-smi topo -m``, ``-mp`` and ``-p2p r``.

Columns are counted from the header, so that NIC columns of any name, blanks instead of tabs and
empty affinity cells do not shift a value into the wrong place.
"""

from __future__ import annotations

import re

from qwendeploy.hardware.reading import PCIE_PATHS, Reading, TopologyReading

_GPU = re.compile(r"^GPU(\d{1,3})$")
_CELL = re.compile(r"^(?:X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|PSB|C2C|N/A|ERR!?)$")
_P2P_CELL = re.compile(r"^(?:X|OK|CNS|GNS|TNS|NS|DR|NA|U)$")
_AFFINITY = re.compile(r"^\d{1,5}(?:[-,]\d{1,5})*$")
_COMMAND = re.compile(r"^.{0,200}?\btopo(?:\s+-\S{1,4}){1,4}(?:\s+[rwnap]{1,2})?\s{2,}(?=GPU\d)")
"""A header that stands behind the command in one line."""
_P2P_KIND = re.compile(r"\btopo\b.{0,20}-?p2p\s+([rwnap]{1,2})\b")
_MATRIX_KIND = re.compile(r"\btopo\s+(?:--matrix|-m(p)?)(?![\w-])")
"""``topo -mp`` shows PCIe paths only, also where its legend is cut off."""
_OLD_NAMES = {"SOC": "SYS", "PSB": "PIX"}
"""Cells of drivers before 390 (SOC) and of multi-GPU boards (PSB), in today's words."""

MAX_GPUS = 64


def read_topologies(lines: list[str], reading: Reading) -> None:
    """Take every matrix in the lines."""
    start = 0
    kind = "r"
    hidden = False
    while start < len(lines):
        if asked := _P2P_KIND.search(lines[start]):
            kind = asked[1]
        if matrix := _MATRIX_KIND.search(lines[start]):
            hidden = matrix[1] is not None
        columns = _header(lines[start])
        if columns is None:
            if re.search(
                r"topo -\w+'? (?:returned|failed)|failed to .{0,40}topolog", lines[start], re.I
            ):
                reading.topology_failed = True
            start += 1
            continue
        end = start + 1
        rows: dict[int, list[str]] = {}
        while end < len(lines) and end - start < 4 * MAX_GPUS:
            tokens = _tokens(lines[end])
            if tokens and (label := _GPU.match(tokens[0])) and len(tokens) > 1:
                rows.setdefault(int(label[1]), tokens[1:])
            elif tokens and tokens[0] not in columns:
                break
            end += 1
        shows_nvlink = not hidden and _shows_nvlink(lines[end : end + 40])
        _take(columns, rows, shows_nvlink, reading, kind)
        start = end


def _tokens(line: str) -> list[str]:
    """Return the words of a line; the bars of a Markdown table part them too."""
    if not line.lstrip().startswith("|"):
        return line.split()
    return line.replace("|", " ").split() if line.strip(" |:-") else []


def _header(line: str) -> list[str] | None:
    """Return the column labels of a matrix header, or ``None``."""
    tokens = _tokens(_COMMAND.sub("", line) if "topo" in line else line)
    if not tokens or not _GPU.match(tokens[0]):
        return None
    columns: list[str] = []
    for token in tokens:
        if token in ("CPU", "NUMA", "GPU"):
            break
        columns.append(token)
    if len(columns) > 1 and _CELL.match(columns[1]):
        return None
    return columns if len(columns) <= 4 * MAX_GPUS else None


def _take(
    columns: list[str],
    rows: dict[int, list[str]],
    shows_nvlink: bool,
    reading: Reading,
    kind: str,
) -> None:
    """Add one matrix; ``kind`` is what ``-p2p`` was asked for: reads, writes, PCIe, or else.

    The header lists every GPU, also where the rows are cut off.
    """
    gpus = [int(match[1]) for label in columns if (match := _GPU.match(label))]
    cells: dict[tuple[int, int], str] = {}
    numa: dict[int, int] = {}
    peers: dict[tuple[int, int], str] = {}
    complete = False
    for row, values in rows.items():
        body = values[: len(columns)]
        if row not in gpus or not body:
            continue
        for label, value in zip(columns, body, strict=False):
            match = _GPU.match(label)
            if match is None or int(match[1]) == row:
                complete = complete or value == "X"
                continue
            pair = (min(row, int(match[1])), max(row, int(match[1])))
            if _P2P_CELL.match(value):
                peers[pair] = _worse_peer(peers.get(pair), value)
            elif _CELL.match(value):
                cells.setdefault(pair, _OLD_NAMES.get(value, value))
        if (node := _numa(values[len(columns) :])) is not None:
            numa[row] = node
    listed = tuple(sorted(gpus))
    if peers and not cells:
        reading.peer_gpus.update(listed)
        if kind[0] in "rw":
            reading.p2p.update(peers)
        elif kind[0] == "p":
            reading.p2p_pcie.update(peers)
    elif complete:
        reading.topologies.append(TopologyReading(listed, cells, numa, shows_nvlink))


def _worse_peer(first: str | None, second: str) -> str:
    return second if first in (None, "OK", "X") else first


def _numa(rest: list[str]) -> int | None:
    """Return the NUMA node after the CPU affinity: ``1``, or the first of ``1,18-33``.

    A range of nodes without a single first one (``0-1``) is no node.
    """
    affine = [token for token in rest if _AFFINITY.match(token)]
    if len(affine) < 2 or not rest or not _AFFINITY.match(rest[0]):
        return None
    first = affine[1].split(",")[0]
    return int(first) if first.isdigit() else None


def _shows_nvlink(after: list[str]) -> bool:
    """Say whether the matrix shows NVLink: its legend explains NV#, or there is no legend.

    ``topo -mp`` prints a legend that ends with PIX.
    """
    legend = [line.split("=")[0].strip() for line in after if "=" in line]
    return "NV#" in legend or "PIX" not in legend


def worst_path(paths: list[str]) -> str | None:
    """Return the longest of the PCIe paths, ``None`` if there is none."""
    known = [path for path in paths if path in PCIE_PATHS]
    return max(known, key=PCIE_PATHS.index) if known else None
