"""``nvidia-smi --query-gpu=... --format=csv``: any columns, with or without header and units.

Without a header a column's meaning comes from the shape of its values, and only rows that carry
a GPU's name, UUID or PCI address (or a fault in place of them) count as GPUs. A header may also be
divided by semicolons, tabs or bars: spreadsheets and forms do that.
"""

from __future__ import annotations

import csv
import re

from qwendeploy.hardware.naming import looks_like_gpu, series_capability
from qwendeploy.hardware.reading import GpuReading, ProcessReading, Rank, Reading
from qwendeploy.hardware.texts.columns import COMMON, column, is_column
from qwendeploy.hardware.texts.records import records_as_query
from qwendeploy.hardware.values import (
    VERSION,
    bus_id,
    capability,
    fault,
    given,
    is_unsupported,
    mib,
    number,
    switch,
    version,
    whole,
)

_HARMLESS_FAULTS = ("power", "fan", "ecc", "retired", "remapped", "clocks", "encoder", "inforom")
"""Columns that print ``[Unknown Error]`` on healthy cards too (missing sensor or counter)."""

_SMALL = re.compile(r"^\d{1,3}$")
_UUID = re.compile(r"^GPU-[0-9a-fA-F-]{8,36}$")
_MASKED = re.compile(r"^GPU-\S{1,40}$")
"""A UUID of which somebody left little."""
_SIZE = re.compile(r"^\d{1,9} Mi?B$")
_MEASURED = re.compile(r"^(?:\d{1,6}(?:\.\d{1,3})? (?:W|%|MHz|C)|P\d{1,2})$")
_OTHER = re.compile(
    r"^(?:[\d.:/ -]*|[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f]{2}){4}|Enabled|Disabled|Default|Active"
    r"|Not Active|On|Off|Yes|No|Exclusive_Process|Prohibited|0x[0-9A-Fa-f]{1,16})$"
)
"""Further values that the query prints: numbers, times, VBIOS versions, switches, masks."""
_RELEASE = re.compile(rf"^{VERSION}$")
_COUNTED = re.compile(r"^\s*(\d{1,2})\s+((?:NVIDIA|Tesla|GeForce|Quadro|TITAN)\b[^,|]{1,60}?)\s*$")
"""A line of ``sort | uniq -c`` over names."""
_WHOLE_NAME = re.compile(
    r"^(?:NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID)\b|-(?:SXM|PCIE)", re.IGNORECASE
)
"""What makes a word in a line of its own a name and not any ``A2``."""
_LEFT_OUT = re.compile(r"^\W{0,4}(?:\.{3}|…)\W{0,4}$")
_OFFER = re.compile(r"^\W{0,4}GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*$")
"""Heading of ``nvidia-smi vgpu -s``, which lists what a host can offer."""
MAX_COUNTED = 64
WIDE = 8
"""Columns from which an unknown header is that of another table and not a person's own words."""
_ASKED = re.compile(
    r"--query-(?:gpu|compute-apps)[= ]([a-z_.]{1,40}(?:,[a-z_.]{1,40}){1,60})(?![\w.,])"
)
"""The columns that a command asks for; with ``noheader`` nothing else names them."""
_WORD = re.compile(r"^[A-Za-z_][\w ()/%-]{0,40}$")


def _is_header(cells: list[str]) -> bool:
    known = sum(map(is_column, cells))
    enough = known == len(cells) if len(cells) < 4 else known >= 0.5 * len(cells)
    return known >= 1 and enough and not any(fault(cell) for cell in cells)


def _is_foreign_header(cells: list[str]) -> bool:
    """Say whether cells are the column names of a wide table of something else."""
    return len(cells) >= WIDE and all(_WORD.match(cell) for cell in cells)


def _split(line: str, mark: str = ",") -> list[str]:
    if mark == "|":
        line = line.strip().strip("|")
    try:
        row = next(csv.reader([line], delimiter=mark, skipinitialspace=True), [])
    except csv.Error:
        return []
    return [cell.strip() for cell in row]


def _header_of(line: str) -> tuple[list[str], str] | None:
    """Return the columns that a header line names, and what divides them."""
    for mark in (",", ";", "\t", "|"):
        if mark != "," and line.count(mark) < 1:
            continue
        cells = _split(line, mark)
        if _is_header(cells) and (mark == "," or len(cells) > 1):
            return [column(cell) for cell in cells], mark
    return None


def read_query(lines: list[str], reading: Reading) -> None:
    """Take the rows of every query table in the lines; other lines are passed over.

    A name that stands alone in its line counts only where nothing else names a GPU: it may be a
    heading, or a type that a host offers.
    """
    header: list[str] | None = None
    mark = ","
    rows: list[dict[str, str]] = []
    alone: list[GpuReading] = []
    position = foreign = 0
    asked: list[str] = []
    for line in records_as_query(lines):
        if match := _ASKED.search(line):
            asked = [column(name) for name in match[1].split(",")]
            header, mark, position = None, ",", 0
            continue
        if not line.strip() or _LEFT_OUT.match(line) or (mark == "|" and not line.strip(" |:-")):
            continue
        cells = _split(line, mark)
        if found := _header_of(line):
            _take_rows(rows, reading)
            header, mark = found
            rows, position = [], 0
            continue
        if header is not None and len(cells) == len(header) and not _is_box(line, mark):
            rows.append(dict(zip(header, cells, strict=True)))
            continue
        header, mark = None, ","
        if drawn := _drawn_row(line, position):
            reading.gpus.append(drawn)
            position += 1
            continue
        if not cells or _is_box(line, ","):
            continue
        if len(cells) >= WIDE and len(cells) == foreign:
            continue
        foreign = len(cells) if _is_foreign_header(cells) else foreign
        if _process_header(cells := _split(line)):
            _take_rows(rows, reading)
            header, rows = [column(cell) for cell in cells], []
        elif (counted := _COUNTED.match(line)) and looks_like_gpu(counted[2]):
            for _ in range(min(int(counted[1]), MAX_COUNTED - len(alone))):
                alone.append(GpuReading(rank=Rank.CSV, position=len(alone), name=counted[2]))
        elif (row := _asked_row(asked, cells, position)) is not None:
            _read_row(row, position, reading)
            position += 1
        elif bare := _bare_row(cells, position):
            if len(cells) == 1:
                bare.position = len(alone)
                alone.append(bare)
                continue
            reading.gpus.append(bare)
            if reading.driver is None:
                reading.driver = next((cell for cell in cells if _is_driver(cell)), None)
            position += 1
    _take_rows(rows, reading)
    if not reading.gpus and not any(_OFFER.match(line) for line in lines):
        known = [gpu for gpu in alone[:MAX_COUNTED] if series_capability(gpu.name or "")]
        reading.gpus += [gpu for gpu in known if _WHOLE_NAME.search(gpu.name or "")]


def _asked_row(asked: list[str], cells: list[str], position: int) -> dict[str, str] | None:
    """Return the row by the columns that a command asked for, ``None`` if it is not of that query.

    Its cells must have the shapes of values, and its name stand in the column of names.
    """
    if len(cells) != len(asked):
        return None
    row = dict(zip(asked, cells, strict=True))
    if "pid" in row:
        return row if row["pid"].isdigit() else None
    name = row.get("name") or row.get("gpu_name")
    shapes = (_OTHER.match, _SIZE.match, _MEASURED.match, _UUID.match, bus_id, fault)
    shaped = all(
        cell == name or is_unsupported(cell) or any(shape(cell) for shape in shapes)
        for cell in cells
    )
    if name is not None and not (looks_like_gpu(name) or fault(name)):
        return None
    return row if shaped and _named_row(row, position) is not None else None


def _drawn_row(line: str, position: int) -> GpuReading | None:
    """Return the GPU of a row of a Markdown table under a person's own heading.

    It begins with a number of its own cell and has a name and a size, an address or the like.
    """
    if line.lstrip()[:1] != "|" or line.count("|") < 4:
        return None
    cells = [cell.strip().strip("`*").strip() for cell in line.strip().strip("|").split("|")]
    if not _SMALL.match(cells[0]) or not any(map(looks_like_gpu, cells[1:])):
        return None
    gpu = _bare_row(cells, position)
    sure = gpu and (gpu.memory_mib or gpu.bus_id or gpu.uuid or gpu.compute_capability)
    return gpu if sure else None


def _is_box(line: str, mark: str) -> bool:
    """Say whether a line is one of a drawn table and not of this query."""
    return mark != "|" and line.count("|") > 1


def _take_rows(rows: list[dict[str, str]], reading: Reading) -> None:
    for position, row in enumerate(rows[: _first_round(rows)]):
        _read_row(row, position, reading)


def _first_round(rows: list[dict[str, str]]) -> int:
    """Return how many rows the first sample of a loop has (``-l 1`` prints all GPUs each time).

    With an index the merging tells; without, the list of UUIDs or addresses repeats itself. One
    and the same value in every row may also be the work of somebody who hid it, unless the rows
    bear times.
    """
    if len(rows) < 2 or "index" in rows[0]:
        return len(rows)
    keys = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")
    names = [next((row[key] for key in keys if key in row), "") for row in rows]
    if not names[0] or names[0] not in names[1:]:
        return len(rows)
    period = names.index(names[0], 1)
    repeats = all(name == names[i % period] for i, name in enumerate(names))
    return period if repeats and (period > 1 or "timestamp" in rows[0]) else len(rows)


def _is_driver(cell: str) -> bool:
    """Say whether a bare number is a driver: three parts, or two that are no whole watts."""
    if not _RELEASE.match(cell):
        return False
    return cell.count(".") == 2 or (cell >= "500" and cell[3] == "." and cell[4:] != "00")


def _process_header(cells: list[str]) -> bool:
    names = {column(cell) for cell in cells}
    return "pid" in names and bool(
        names & {"process_name", "used_memory", "used_gpu_memory", "name"}
    )


def _read_row(row: dict[str, str], position: int, reading: Reading) -> None:
    """Add one row under a header: a GPU, a process, or only the driver's version."""
    if "pid" in row:
        name = given(row.get("process_name") or row.get("name")) or "unknown"
        used = row.get("used_gpu_memory") or row.get("used_memory")
        reading.processes.append(ProcessReading(None, whole(row["pid"]), name, mib(used)))
        return
    kmd = version(row.get("kmd_version"))
    reading.driver = reading.driver or kmd or version(row.get("driver_version"))
    cuda = given(row.get("cuda_version"))
    if cuda and re.fullmatch(r"\d{1,2}\.\d{1,2}", cuda):
        reading.cuda = reading.cuda or cuda
    if set(row) <= {"driver_version", "kmd_version", "cuda_version", "timestamp", "count"}:
        return
    gpu = _named_row(row, position)
    if gpu is not None:
        reading.gpus.append(gpu)


def _named_row(row: dict[str, str], position: int) -> GpuReading | None:
    """Return the GPU of a row with known columns, or ``None`` if no value speaks of a GPU."""
    gpu = GpuReading(rank=Rank.CSV, position=position)
    gpu.faults.extend(dict.fromkeys(_faults(row)))
    gpu.index = whole(row.get("index"))
    if "index" in row and gpu.index is None and not gpu.faults:
        return None
    gpu.name = given(row.get("name") or row.get("gpu_name"))
    gpu.uuid = given(row.get("uuid") or row.get("gpu_uuid"))
    address = (row.get("pci.bus_id") or row.get("gpu_bus_id") or "").strip()
    gpu.bus_id = address if bus_id(address) else None
    total = row.get("memory.total")
    gpu.memory_mib = mib(total) or None
    gpu.memory_unsupported = total is not None and is_unsupported(total)
    gpu.memory_used_mib = mib(row.get("memory.used"))
    gpu.memory_free_mib = mib(row.get("memory.free"))
    gpu.compute_capability = capability(row.get("compute_cap"))
    gpu.mig = switch(given(row.get("mig.mode.current")))
    gpu.display = switch(given(row.get("display_active")))
    gpu.persistence = switch(given(row.get("persistence_mode")))
    gpu.ecc = switch(given(row.get("ecc.mode.current")))
    gpu.power_cap_w = number(row.get("enforced.power.limit") or row.get("power.limit"))
    gpu.power_cap_default_w = number(row.get("power.default_limit"))
    gpu.power_cap_max_w = number(row.get("power.max_limit"))
    gpu.pcie_generation_max = whole(row.get("pcie.link.gen.max"))
    gpu.pcie_width_max = whole(row.get("pcie.link.width.max"))
    gpu.clock_sm_mhz = number(row.get("clocks.sm") or row.get("clocks.current.sm"))
    gpu.clock_sm_max_mhz = number(row.get("clocks.max.sm"))
    gpu.driver_model = given(row.get("driver_model.current"))
    if gpu.faults:
        return gpu
    if row.keys() <= COMMON and not (
        looks_like_gpu(gpu.name or "") or (gpu.uuid or "").startswith("GPU-")
    ):
        return None
    sure = gpu.index is not None or gpu.uuid or gpu.bus_id or gpu.memory_mib
    sure = sure or gpu.compute_capability
    return gpu if sure or (gpu.name and looks_like_gpu(gpu.name)) else None


def _faults(row: dict[str, str]) -> list[str]:
    """Return the fault values of a row; sensor columns that fail on healthy cards do not count."""
    found = []
    for name, value in row.items():
        problem = fault(value)
        if problem and not (
            "unknown error" in problem.lower() and name.startswith(_HARMLESS_FAULTS)
        ):
            found.append(problem)
    return found


def _bare_row(cells: list[str], position: int) -> GpuReading | None:
    """Return the GPU of a row without header, or ``None`` if it is not certainly one."""
    gpu = GpuReading(rank=Rank.CSV, position=position)
    sizes: list[int] = []
    plain: list[int] = []
    faults: list[str] = []
    absent = measured = strange = masked = 0
    for place, cell in enumerate(cells):
        if place == 0 and _SMALL.match(cell):
            gpu.index = int(cell)
        elif _UUID.match(cell):
            gpu.uuid = cell
        elif bus_id(cell):
            gpu.bus_id = cell
        elif problem := fault(cell):
            faults.append(problem)
        elif _SIZE.match(cell):
            sizes.append(mib(cell) or 0)
        elif cell.isascii() and cell.isdigit() and 3 < len(cell) <= 7:
            plain.append(int(cell))
        elif capability(cell) and 3 <= float(cell) <= 20 and gpu.compute_capability is None:
            gpu.compute_capability = cell
        elif gpu.name is None and looks_like_gpu(cell) and ":" not in cell and "/" not in cell:
            gpu.name = cell
        elif is_unsupported(cell):
            absent += 1
        elif _MEASURED.match(cell):
            measured += 1
        elif _MASKED.match(cell):
            masked += 1
        elif not _OTHER.match(cell):
            strange += 1
    if 2 * strange > len(cells):
        return None  # a table of something else that names a card in one of its columns
    if not (gpu.name or gpu.uuid or gpu.bus_id):
        shaped = 1 + len(sizes) + len(faults) + absent + measured + masked
        shaped += gpu.compute_capability is not None
        if gpu.index is None or shaped < len(cells) or not (sizes or faults):
            return None
    if not gpu.name and not gpu.uuid and len(cells) < 2:
        return None
    shown = bool(gpu.index is not None or gpu.uuid or gpu.bus_id or gpu.compute_capability)
    shown = shown or bool(sizes or plain or faults or absent or measured)
    if len(cells) > 1 and not shown and not any(_is_driver(cell) for cell in cells):
        return None  # a name and bare numbers: prices or rates as well as temperatures
    gpu.faults.extend(dict.fromkeys(faults))
    total = max(sizes or plain, default=0)
    gpu.memory_mib = total or None
    gpu.memory_guessed = bool(total) and not sizes
    gpu.memory_unsupported = not total and absent > 0
    return gpu
