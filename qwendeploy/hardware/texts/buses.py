"""NVIDIA GPUs in ``lspci`` and ``inxi -G``, for machines without the driver's tools.

They are asked only where no text of the box shows what the driver says: a bus lists a card that a
virtual machine has taken, or that no longer answers, like any other. Memory, driver and health
are not shown there. Cards are numbered in the order of their addresses, as nvidia-smi counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from qwendeploy.hardware.reading import GpuReading, Rank, Reading
from qwendeploy.hardware.values import VERSION, bus_id

_LSPCI = re.compile(
    r"^\W{0,4}((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])\s+"
    r"(?:VGA compatible controller|3D controller|Display controller)(?: \[\w{4}\])?:\s+"
    r"NVIDIA Corporation\s+(\S.{0,160})$",
    re.IGNORECASE,
)
_INXI = re.compile(r"^\W{0,4}Device-\d{1,2}: NVIDIA (?:Corporation )?(\S.{0,400})$")
_NAME = re.compile(r"^[^\[\n]{0,60}\[(?!10de:)([^\]\n]{2,60})\]")
_INXI_DRIVER = re.compile(rf"\bdriver: nvidia v: ({VERSION})")
_INXI_ADDRESS = re.compile(r"\bbus-ID: ([0-9a-fA-F:.]{7,16})")
_IN_USE = re.compile(r"^\s{0,16}Kernel driver in use: (\S{2,30})")
_FILLER = re.compile(r"\s+(?:Lite Hash Rate|Rev\. \w)(?=$|\s)", re.IGNORECASE)
_MOBILE = re.compile(r"\s+Mobile(?: / Max-Q)?(?: Refresh)?$", re.IGNORECASE)
_GONE = "(rev ff)"
"""What lspci prints of a card whose registers read as ones."""
NOTE = "cards as lspci or inxi lists them: memory, driver and health are not shown"


def read_buses(lines: list[str], reading: Reading) -> None:
    """Take the cards of a bus listing if the text shows nothing of the driver."""
    if reading.gpus or reading.failures or reading.topologies or reading.peer_gpus:
        return
    ours = False
    for line in lines:
        if match := _LSPCI.match(line):
            gpu = _add(reading, match[2])
            gpu.bus_id = match[1] if bus_id(match[1]) else None
            if _GONE in match[2]:
                gpu.faults.append("does not answer on the bus (rev ff)")
            ours = True
        elif match := _INXI.match(line):
            gpu = _add(reading, match[1])
            address, driver = _INXI_ADDRESS.search(match[1]), _INXI_DRIVER.search(match[1])
            gpu.bus_id = address[1] if address and bus_id(address[1]) else None
            reading.driver = reading.driver or (driver[1] if driver else None)
        elif re.match(r"\S", line):
            ours = False
        elif ours and (match := _IN_USE.match(line)) and match[1] != "nvidia":
            reading.notes.append(f"GPU {reading.gpus[-1].index} is run by {match[1]}, not nvidia")
    if reading.gpus:
        reading.notes.append(NOTE)
        reading.platform_hints.append("linux")


def _add(reading: Reading, text: str) -> GpuReading:
    number = len(reading.gpus)
    gpu = GpuReading(Rank.BUS, number, index=number)
    if match := _NAME.match(text):
        gpu.name = _MOBILE.sub(" Laptop GPU", _FILLER.sub("", match[1])).strip()
    reading.gpus.append(gpu)
    return gpu


def without_buses(readings: Sequence[Reading]) -> list[Reading]:
    """Return the readings, those of a bus without their cards if another shows the driver's."""
    shown = any(
        reading.failures or any(gpu.rank > Rank.BUS for gpu in reading.gpus) for reading in readings
    )
    shown = shown or any(reading.topologies or reading.peer_gpus for reading in readings)
    if not shown:
        return list(readings)
    return [
        replace(
            reading,
            gpus=[gpu for gpu in reading.gpus if gpu.rank != Rank.BUS],
            notes=[note for note in reading.notes if note != NOTE],
        )
        for reading in readings
    ]
