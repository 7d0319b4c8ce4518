"""The plain table of ``nvidia-smi``: header, GPU rows, MIG devices, processes.

Rows are recognised by their cells and not by column positions, because the widths changed with
drivers 450, 535, 550 and 610 and posted tables lose blanks. A GPU row needs an index and a PCI
address (or its fault), so process and MIG rows cannot pass for one.
"""

from __future__ import annotations

import re

from qwendeploy.hardware.naming import looks_like_gpu
from qwendeploy.hardware.reading import (
    GpuReading,
    MigReading,
    ProcessReading,
    Rank,
    Reading,
)
from qwendeploy.hardware.values import VERSION, bus_id, fault, mib, switch

_SMI = re.compile(rf"NVIDIA-SMI(?:\s+version\s*:)?\s+({VERSION})\b")
_DRIVER = re.compile(
    rf"(?:Driver|KMD)\s+Version\s*:\s*({VERSION})(?!\S)"
    rf"|NVIDIA-SMI\s+\S+\s+Driver\s+({VERSION})(?!\S)",
    re.IGNORECASE,
)
_CUDA = re.compile(
    r"CUDA\s+(?:(?:UMD|Driver)\s+)?Version\s*:\s*(\d{1,2}\.\d{1,2})(?![\d.])", re.IGNORECASE
)
"""A mail program may break the line inside; nvitop writes ``CUDA Driver Version``."""

HEADER_LENGTH = 250
"""Characters within which the tool prints driver and CUDA beside its own version."""

_NAME_CELL = re.compile(
    r"^\s*(\d{1,3})\s+(\S.{0,80}?)\s+(On|Off|WDDM|TCC|MCDM|N/A|ERR!)\s*$", re.IGNORECASE
)
_OLD_NAME_CELL = re.compile(r"^\s*(\d{1,3})(?:\.\s{1,3}|\s{1,4})(\S.{0,60}?)()\s*$")
"""``0.  Tesla C2075``, as drivers before 300 wrote it, without a mode; ``nvidia-smi vgpu`` too."""
_BUS_CELL = re.compile(r"^\s*([0-9A-Fa-f:.]{7,16}|N/A|ERR!)(?:\s+(On|Off|N/A|ERR!))?\s*$")
_MEMORY = re.compile(
    r"(\d{1,9}(?:\.\d{1,3})?\s*(?:[KMG]i?)?B)\s*/\s*(\d{1,9}(?:\.\d{1,3})?\s*[MG]i?B)"
)
_FAN_ALONE = re.compile(r"^\s*ERR!\s+\d{1,3}C\s+P\d{1,2}\s+\d{1,5}W\s*/")
_POWER_CAP = re.compile(r"/\s*(\d{1,5})\s*W\b")
_MIG_CELL = re.compile(r"^\s*(\d{1,3})\s+(\d{1,4})\s+(\d{1,4})\s+(\d{1,4})\s*$")
_INSTANCES = re.compile(r"(?:GPU|Compute) instance(s| profiles):")
_INSTANCE = re.compile(
    r"^\s*(\d{1,3})\s+(?:(\d{1,4})\s+)?MIG (\S{1,24})\s+\d{1,4}\*?\s+(\d{1,4})"
    r"\s+\d{1,3}:\d{1,3}\s*$"
)
"""A row of ``nvidia-smi mig -lgi``: GPU, profile, its number, GPU instance, placement; of
``-lci`` the GPU instance stands behind the GPU and the compute instance in its place."""
_BARLESS = re.compile(
    r"^\s{0,8}(\d{1,3})\s{1,4}(\S.{0,60}?)\s+(On|Off|WDDM|TCC|MCDM)\s+"
    r"((?:[0-9A-Fa-f]{4}|[0-9A-Fa-f]{8}):[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)(?:\s+(On|Off|N/A))?(.*)$"
)
"""A GPU's first row where a form took the bars."""
_PROCESS = re.compile(
    r"^\|?\s*(\d{1,3})\s+(?:(?:\d+|N/A)\s+(?:\d+|N/A)\s+)?(\d{1,9})\s+(C\+G|G|C|M\+C)\s+(.*?)"
    r"\s+(\d+\s*MiB|N/A|Insufficient Permissions)?\s*\|?\s*$"
)


def read_versions(text: str, reading: Reading) -> None:
    """Take driver, CUDA ceiling and tool version from a table header, ``--version`` or report.

    What the tool prints beside its own version comes before what stands elsewhere: people write
    the versions of other programs, and of other days, around a table.
    """
    tool = _SMI.search(text)
    if reading.smi_version is None and tool:
        reading.smi_version = tool[1]
    near = text[tool.start() : tool.start() + HEADER_LENGTH] if tool else ""
    headed = _DRIVER.search(near)
    if reading.driver is None and (match := headed or _DRIVER.search(text)):
        reading.driver = match[1] or match[2]
    if reading.cuda is None and (match := _CUDA.search(near if headed else text)):
        reading.cuda = match[1]


def read_table(lines: list[str], reading: Reading) -> None:
    """Take GPUs, MIG slices and processes from every table in the lines.

    A table that occurs twice (a watch log) repeats its indices; merging makes them one.
    """
    current: GpuReading | None = None
    section = "gpus"
    for line in lines:
        if "|" not in line:
            if line.lstrip().startswith("+"):
                current = None
                continue
            if row := _barred(line):
                line, section = row, "gpus"
            elif current is not None and _MEMORY.search(line):
                line = f"|{line}|{line}|"
            else:
                continue
        cells = line.split("|")[1:]
        if "MIG devices:" in line:
            section, current = "mig", None
        elif "Processes:" in line:
            section, current = "processes", None
        elif match := _INSTANCES.search(line):
            section, current = ("instances" if match[1] == "s" else "offers"), None
        elif "Persistence-M" in line or "Driver-Model" in line:
            section, current = "gpus", None
        elif section == "mig":
            _read_mig(cells, reading)
        elif section == "instances":
            if match := _INSTANCE.match(cells[0]):
                gi, ci = match[2] or match[4], int(match[4]) if match[2] else None
                reading.mig_profiles.setdefault((int(match[1]), int(gi), ci), match[3])
        elif section == "offers":
            continue
        elif section == "processes":
            _read_process(line[line.index("|") :], reading)
        elif gpu := _gpu_row(cells, len(reading.gpus)) or (
            _gpu_row(row.split("|")[1:], len(reading.gpus)) if (row := _barred(cells[0])) else None
        ):
            reading.gpus.append(gpu)
            current = gpu
        elif current is not None:
            _read_detail(current, cells, reading)


def _barred(text: str) -> str | None:
    """Return a GPU's first row with the bars that a form or a person took out of it."""
    match = _BARLESS.match(text)
    if match is None:
        return None
    return f"|{match[1]} {match[2]} {match[3]}|{match[4]} {match[5] or ''}|{match[6]}"


def _gpu_row(cells: list[str], position: int) -> GpuReading | None:
    """Return the GPU whose first row the cells are, or ``None``."""
    if len(cells) < 2:
        return None
    name_cell = _NAME_CELL.match(cells[0]) or _OLD_NAME_CELL.match(cells[0])
    bus_cell = _BUS_CELL.match(cells[1])
    if name_cell is None or bus_cell is None:
        return None
    address = bus_cell[1]
    faulty = _faulty(cells, ("name", "bus", "ECC"))
    named = looks_like_gpu(name_cell[2].strip())
    if not (named or faulty or (bus_id(address) and name_cell[3])):
        return None
    gpu = GpuReading(rank=Rank.TABLE, position=position, index=int(name_cell[1]))
    gpu.name = None if fault(name_cell[2]) else " ".join(name_cell[2].split())
    gpu.bus_id = address if bus_id(address) else None
    gpu.display = switch(bus_cell[2])
    model = name_cell[3].upper()
    if model in ("WDDM", "TCC", "MCDM"):
        gpu.driver_model = model
    else:
        gpu.persistence = switch(name_cell[3])
    if len(cells) > 2:
        gpu.ecc = {"off": False}.get(cells[2].strip().lower(), cells[2].strip().isdigit() or None)
    gpu.faults.extend(faulty)
    return gpu


def _faulty(cells: list[str], names: tuple[str, str, str]) -> list[str]:
    """Return what the cells say in place of values: ``ERR! in the sensor cell``."""
    found = []
    for cell, name in zip(cells, names, strict=False):
        if text := fault(cell):
            words = "ERR!" if "err!" in text.lower() else " ".join(text.split())
            found.append(f"{words} in the {name} cell")
    return found


def _read_detail(gpu: GpuReading, cells: list[str], reading: Reading) -> None:
    """Add the second or third row of a GPU: power cap, memory, MIG mode.

    A fan that reads ERR! beside a temperature, state and power that are read is a broken fan or
    tachometer; the GPU itself answers.
    """
    if _FAN_ALONE.match(cells[0]):
        reading.notes.append(f"GPU {gpu.index}: the fan reads ERR!, the GPU is fine")
        cells = [cells[0].replace("ERR!", "", 1), *cells[1:]]
    gpu.faults.extend(_faulty(cells, ("sensor", "memory", "utilisation or MIG")))
    if cap := _POWER_CAP.search(cells[0]):
        gpu.power_cap_w = float(cap[1])
    if len(cells) > 1:
        if memory := _MEMORY.search(cells[1]):
            gpu.memory_used_mib, gpu.memory_mib = mib(memory[1]), mib(memory[2]) or None
        elif "not supported" in cells[1].lower():
            gpu.memory_unsupported = True
    if len(cells) > 2 and (word := cells[2].strip()) and " " not in word:
        mode = switch(word)
        if word.rstrip("*").lower() in ("enabled", "disabled"):
            gpu.mig = mode


def _read_mig(cells: list[str], reading: Reading) -> None:
    head = _MIG_CELL.match(cells[0]) if cells else None
    if head is None:
        return
    memory = _MEMORY.search(cells[1]) if len(cells) > 1 else None
    gpu, gi, ci, device = (int(head[i]) for i in range(1, 5))
    size = mib(memory[2]) if memory else None
    reading.mig.append(
        MigReading(Rank.TABLE, gpu=gpu, device=device, gi=gi, ci=ci, memory_mib=size or None)
    )


def _read_process(line: str, reading: Reading) -> None:
    match = _PROCESS.match(line)
    if match is None:
        return
    reading.processes.append(
        ProcessReading(
            gpu=int(match[1]),
            pid=int(match[2]),
            kind=match[3],
            name=match[4].strip(),
            memory_mib=mib(match[5]),
        )
    )
