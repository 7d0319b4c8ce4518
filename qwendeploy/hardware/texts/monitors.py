"""GPUs in the output of gpustat, nvtop, dcgmi, ollama, llama.cpp and /proc.

They are asked only where the text holds no output of nvidia-smi itself.
"""

from __future__ import annotations

import re

from qwendeploy.hardware.naming import looks_like_gpu
from qwendeploy.hardware.reading import GpuReading, Rank, Reading
from qwendeploy.hardware.values import VERSION, bus_id, capability, mib

_GPUSTAT = re.compile(
    r"^\W{0,4}\[(\d{1,3})\]\s+(\S.{1,60}?)\s*\|(.{0,200}?)(\d{1,7}|\?{1,7})\s*/\s*(\d{2,7})\s*MB\b"
)
_GPUSTAT_HEAD = re.compile(rf"\s\w{{3}} \w{{3}} [ \d]\d \d\d:\d\d:\d\d \d{{4}}\s+({VERSION})\s*$")
_NVTOP = re.compile(r"Device (\d{1,3}) \[([^\]\n]{2,60})\]\s+(?:PCIe|Integrated|N/A)")
_NVTOP_MEMORY = re.compile(r"MEM\[[^\]\n]{0,120}?[\d.]{1,8}[KMG]i/(\d{1,4}\.\d{1,3}Gi)\]")
_ENGINE = re.compile(
    r"Device (\d{1,3}): (\S.{1,60}?), compute capability (\d{1,2}\.\d)\b", re.IGNORECASE
)
_DEVICE = re.compile(
    r"\bCUDA(\d{1,3})\s{0,8}: (\S.{1,60}?) \((\d{3,7}) MiB, (\d{1,7}) MiB free\)"
    r"|\busing device CUDA(\d{1,3}) \(([^()\n]{2,60})\)(?: \([0-9a-f:.]{7,16}\))?"
    r" - \d{1,7} MiB free"
)
_PRODUCT = re.compile(r"^\W{0,8}(?:\d{1,6}[:-]\W{0,8})?Product Name\s{0,60}: (\S.{1,60}?)\s*$")

_DCGMI = re.compile(
    r"^\W{0,4}\|\s*(\d{1,3})?\s*\| (Name|PCI Bus ID|Device UUID): (\S[^|]{1,80}?)\s*\|"
)
_OLLAMA = re.compile(r'msg="inference compute".{0,20}\bid=(GPU-\S{4,40}|\d{1,3})\b(.{1,600})')
_OLLAMA_NAME = re.compile(r'\b(?:name|description)="([^"]{2,60})"')
_OLLAMA_COMPUTE = re.compile(r"\bcompute=(\d{1,2}\.\d)\b")
_OLLAMA_ADDRESS = re.compile(r"\bpci_id=([0-9a-fA-F:.]{7,16})")
_SAMPLE = re.compile(r'^\W{0,4}Device (\d{1,3}): "([^"]{2,60})"\s*$')
_SAMPLE_CAPABILITY = re.compile(
    r"^\W{0,4}CUDA Capability Major/Minor version number:\s+(\d{1,2}\.\d)\s*$"
)
_DUMP_ID = re.compile(r"^\W{0,4}Device ID:\s+(\d{1,3})\s*$")
_DUMP_NAME = re.compile(r"^\W{0,4}Device name:\s+(\S.{1,60}?)\s*$")
_MODEL = re.compile(r"^\W{0,4}Model:\s{1,20}(\S.{1,60}?)\s*$")
_LOCATION = re.compile(r"^\W{0,4}Bus Location:\s{1,20}([0-9a-fA-F:.]{7,16})\s*$")
_UUID = re.compile(r"^\W{0,4}GPU UUID:\s{1,20}(GPU-[0-9a-fA-F-]{8,36})\s*$")


def read_monitors(lines: list[str], reading: Reading) -> None:
    """Take the GPUs of the first form that is found, if the reading has none yet."""
    if reading.gpus:
        return
    for form in (_gpustat, _nvtop, _dcgmi, _engine, _devices, _ollama, _sample, _products, _kernel):
        form(lines, reading)
        if reading.gpus:
            return


def _add(reading: Reading, index: int, name: str, memory: int | None = None) -> GpuReading:
    gpu = GpuReading(Rank.LISTING, len(reading.gpus), index=index, memory_mib=memory)
    gpu.name = " ".join(name.split())
    reading.gpus.append(gpu)
    return gpu


def _gpustat(lines: list[str], reading: Reading) -> None:
    """Take ``[0] NVIDIA A100 | 33'C, 0 % | 4 / 81920 MB |``; its MB are MiB."""
    for line in lines:
        if (match := _GPUSTAT.match(line)) and looks_like_gpu(match[2]):
            gpu = _add(reading, int(match[1]), match[2], int(match[5]))
            gpu.memory_used_mib = int(match[4]) if match[4].isdigit() else None
        elif reading.driver is None and (head := _GPUSTAT_HEAD.search(line)):
            reading.driver = head[1]


def _nvtop(lines: list[str], reading: Reading) -> None:
    sizes: list[int | None] = []
    for line in lines:
        for index, name in _NVTOP.findall(line):
            _add(reading, int(index), name)
        if reading.gpus:
            sizes += [mib(f"{size}B") for size in _NVTOP_MEMORY.findall(line)]
    if len(sizes) == len(reading.gpus):
        for gpu, size in zip(reading.gpus, sizes, strict=True):
            gpu.memory_mib = size


def _engine(lines: list[str], reading: Reading) -> None:
    """Take ``Device 0: NVIDIA L4, compute capability 8.9`` as llama.cpp prints it.

    The numbers are CUDA's, which may differ from nvidia-smi's: fastest first unless
    CUDA_DEVICE_ORDER says otherwise.
    """
    for line in lines:
        for index, name, shown in _ENGINE.findall(line):
            if looks_like_gpu(name):
                _add(reading, int(index), name).compute_capability = capability(shown)
    _note_order(reading)


def _devices(lines: list[str], reading: Reading) -> None:
    """Take ``CUDA0: NVIDIA L4 (22563 MiB, 22382 MiB free)`` of llama.cpp's list of devices."""
    for line in lines:
        for index, name, total, free, used, named in _DEVICE.findall(line):
            if looks_like_gpu(name or named):
                gpu = _add(reading, int(index or used), name or named)
                gpu.memory_mib = int(total) if total else None
                gpu.memory_free_mib = int(free) if free else None
    _note_order(reading)


def _note_order(reading: Reading) -> None:
    if len({gpu.name for gpu in reading.gpus}) > 1:
        reading.notes.append("GPU numbers are CUDA's, which may differ from those of nvidia-smi")


def _products(lines: list[str], reading: Reading) -> None:
    """Take ``nvidia-smi -q | grep 'Product Name'``."""
    for line in lines:
        if (match := _PRODUCT.match(line)) and looks_like_gpu(match[1]):
            _add(reading, len(reading.gpus), match[1])


def _sample(lines: list[str], reading: Reading) -> None:
    """Take ``deviceQuery`` of the CUDA samples, and ``nvidia-debugdump -l``."""
    number: int | None = None
    for line in lines:
        if (match := _SAMPLE.match(line)) and looks_like_gpu(match[2]):
            _add(reading, int(match[1]), match[2])
        elif reading.gpus and (match := _SAMPLE_CAPABILITY.match(line)):
            reading.gpus[-1].compute_capability = capability(match[1])
        elif match := _DUMP_ID.match(line):
            number = int(match[1])
        elif number is not None and (match := _DUMP_NAME.match(line)) and looks_like_gpu(match[1]):
            _add(reading, number, match[1])
            number = None


def _dcgmi(lines: list[str], reading: Reading) -> None:
    """Take ``dcgmi discovery -l``: a number and three lines a GPU."""
    for line in lines:
        match = _DCGMI.match(line)
        if match is None:
            continue
        if match[1] is not None and match[2] == "Name" and looks_like_gpu(match[3]):
            _add(reading, int(match[1]), match[3])
        elif reading.gpus and match[2] == "PCI Bus ID" and bus_id(match[3]):
            reading.gpus[-1].bus_id = match[3]
        elif reading.gpus and match[2] == "Device UUID":
            reading.gpus[-1].uuid = match[3]


def _ollama(lines: list[str], reading: Reading) -> None:
    """Take the lines that ollama logs at its start, each GPU once; its sizes are rounded."""
    for line in lines:
        match = _OLLAMA.search(line) if "inference compute" in line else None
        if match is None or match[1] in {gpu.uuid for gpu in reading.gpus}:
            continue
        names = [name for name in _OLLAMA_NAME.findall(match[2]) if looks_like_gpu(name)]
        if names:
            gpu = _add(reading, len(reading.gpus), names[-1])
            gpu.uuid = match[1]
            compute, address = _OLLAMA_COMPUTE.search(match[2]), _OLLAMA_ADDRESS.search(match[2])
            gpu.compute_capability = capability(compute[1]) if compute else None
            gpu.bus_id = address[1] if address and bus_id(address[1]) else None


def _kernel(lines: list[str], reading: Reading) -> None:
    """Take ``/proc/driver/nvidia/gpus/*/information``, in the order of addresses."""
    for line in lines:
        if (match := _MODEL.match(line)) and looks_like_gpu(match[1]):
            _add(reading, len(reading.gpus), match[1])
        elif reading.gpus and (match := _LOCATION.match(line)) and bus_id(match[1]):
            reading.gpus[-1].bus_id = match[1]
        elif reading.gpus and (match := _UUID.match(line)):
            reading.gpus[-1].uuid = match[1]
