"""Line-wise output: ``nvidia-smi -L``, ``nvlink -s``, and environment reports with GPU names."""

from __future__ import annotations

import re

from qwendeploy.hardware.naming import looks_like_gpu
from qwendeploy.hardware.reading import GpuReading, MigReading, Rank, Reading
from qwendeploy.hardware.values import VERSION, bus_id, fault

_GPU = re.compile(r"^\W{0,4}GPU ?(\d{1,3}): (.{1,120}?)\s*\(UUID: ?([^)\s]{0,60})")
_REPORT = re.compile(
    r"^\W{0,4}(?:GPU models and configuration ?: )?"
    r"GPUs? ?(\d{1,3}(?:, ?\d{1,3}){0,63}):\*{0,2} (\S.{0,200}?)\s*$"
)
_SIZE = re.compile(r"\s*[(,]\s*(\d{4,6}) ?Mi?B\)?\s*$")
"""A size that a person put behind a name; gigabytes would be rounded."""
_COLUMNS = re.compile(r"\s{2,}|\s+\|")
"""What parts a name from values that a person put behind it."""
_BEHIND = re.compile(rf"\|\s*(?:(\d{{4,6}}) MiB|driver ({VERSION})|bus (\S{{7,16}}))(?=\s|$)")
"""What a report writes behind a name, each behind a bar; the address in a line of its own."""
_NEXT = re.compile(r"(?<=\)) +(?=GPU ?\d{1,3}: .{1,120}?\(UUID)")
"""Where a form ran the lines of ``-L`` together."""
_CAPABILITY = re.compile(
    r"^\W{0,4}GPUs? ?(\d{1,3}(?:, ?\d{1,3}){0,63}) Compute Capability: ?(\d{1,2}\.\d)\s*$"
)
_MIG = re.compile(
    r"^\W{0,8}MIG\s+(\S{1,24})\s+Device\s+(\d{1,3}):\s*(?:\(UUID: ?(MIG-[^)\s]{0,100}))?"
)
_MIG_PATH = re.compile(r"^MIG-GPU-[^/]{1,60}/(\d{1,4})/(\d{1,4})$")
_REMOTE = re.compile(
    r"^\W{0,20}Link\s+\d{1,3}:\s*(?:Remote Device\s+)?"
    r"((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])(?::\s*Link\s+\d{1,3})?\s*$"
)
"""``nvlink -R`` and ``-p``: what is at the other end of a link."""
_IDLE = re.compile(r"0+(?:\.0+)?\s*[MG]B/s", re.IGNORECASE)
"""A link that is down, as some releases print it in place of ``<inactive>``."""
_LINK = re.compile(r"^\W{0,20}Link\s+\d{1,3}:\s*(\S.{0,60})$")


def read_listing(lines: list[str], reading: Reading) -> None:
    """Take GPU names, UUIDs and MIG profiles of ``-L`` and active links of ``nvlink -s``.

    A report's line counts if its name is that of a GPU, or if the report gives the same numbers
    a compute capability.
    """
    index: int | None = None
    if any("(UUID" in line for line in lines):
        lines = [part for line in lines for part in _NEXT.split(line)]
    capable = {n for line in lines if (m := _CAPABILITY.match(line)) for n in m[1].split(",")}
    for line in lines:
        if match := _GPU.match(line):
            index = int(match[1])
            _add(reading, index, match[2], match[3])
            _take_verdict(reading, index, line[match.end() :])
        elif match := _MIG.match(line):
            _add_mig(reading, index, match[1], int(match[2]), match[3])
        elif match := _REMOTE.match(line):
            if index is not None and (address := bus_id(match[1])):
                links = reading.nvlink_remote
                links[index, address] = links.get((index, address), 0) + 1
        elif match := _LINK.match(line):
            if index is not None and _IDLE.match(match[1]):
                reading.nvlink_up.setdefault(index, 0)
            elif index is not None and re.match(r"\d", match[1]):
                reading.nvlink_up[index] = (reading.nvlink_up.get(index) or 0) + 1
            elif index is not None and "inactive" in match[1].lower():
                reading.nvlink_up.setdefault(index, 0)
        elif index is not None and len(line) < 200 and _take_verdict(reading, index, line):
            continue
        elif match := _CAPABILITY.match(line):
            for number in match[1].split(","):
                _add(reading, int(number), None, None, match[2])
        elif match := _REPORT.match(line):
            numbers = match[1].split(",")
            text, memory = _sized(match[2])
            name = text if capable.issuperset(numbers) else _COLUMNS.split(text)[0]
            if not (looks_like_gpu(name) or capable.issuperset(numbers)):
                continue
            index = int(numbers[0]) if len(numbers) == 1 else index
            for number in numbers:
                _add(reading, int(number), name, None)
                reading.gpus[-1].memory_mib = memory
            _take_behind(reading, line)
        elif index is not None and "| bus " in line and reading.gpus:
            _take_behind(reading, line)


def _take_verdict(reading: Reading, index: int, text: str) -> bool:
    """Take what ``nvlink -s`` says of a GPU in words, and say whether it is about NVLink."""
    low = text.lower()
    if "nvlink" not in low:
        return False
    if "mig mode" in low:
        reading.nvlink_up[index] = None
    elif "does not have or support" in low or "inactive" in low:
        reading.nvlink_up.setdefault(index, 0)
    return True


def _take_behind(reading: Reading, line: str) -> None:
    """Add what a report writes behind the last GPU's name."""
    gpu = reading.gpus[-1]
    for size, driver, address in _BEHIND.findall(line):
        gpu.memory_mib = int(size) if size else gpu.memory_mib
        reading.driver = reading.driver or driver or None
        gpu.bus_id = gpu.bus_id or (address if bus_id(address) else None)


def _sized(text: str) -> tuple[str, int | None]:
    """Return a text without the size behind it, and that in MiB."""
    match = _SIZE.search(text)
    return (text[: match.start()], int(match[1])) if match else (text, None)


def _add(
    reading: Reading, index: int, name: str | None, uuid: str | None, capability: str | None = None
) -> None:
    gpu = GpuReading(rank=Rank.LISTING, position=len(reading.gpus), index=index)
    gpu.compute_capability = capability
    if problem := fault(name or ""):
        gpu.faults.append(problem)
    elif name is not None:
        gpu.name = " ".join(name.split())
    gpu.uuid = uuid if uuid and not uuid.endswith("...") else None
    reading.gpus.append(gpu)


def _add_mig(
    reading: Reading, gpu: int | None, profile: str, device: int, uuid: str | None
) -> None:
    """Add a slice; the UUIDs of drivers before 470 carry its instance numbers."""
    path = _MIG_PATH.match(uuid or "")
    reading.mig.append(
        MigReading(
            Rank.LISTING,
            gpu=gpu,
            device=device,
            gi=int(path[1]) if path else None,
            ci=int(path[2]) if path else None,
            profile=profile,
            uuid=uuid,
        )
    )
