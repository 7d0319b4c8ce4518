"""Pieces of posts that several tests change in their own way, and how they read them."""

from __future__ import annotations

from typing import Any

from smi_texts import matrix, row, table

from qwendeploy.documents import Machine
from qwendeploy.hardware.merge import machine_of
from qwendeploy.hardware.texts.sniff import read_text
from qwendeploy.tables.gpus import gpus


def read(*texts: str) -> Machine:
    return machine_of([read_text(text, f"text {i}") for i, text in enumerate(texts)], gpus())


def cards(machine: Machine) -> list[tuple[Any, ...]]:
    return [(gpu.index, gpu.name, gpu.memory_mib) for gpu in machine.gpus]


NAME = "NVIDIA L40S"
BOX = table([row(0, NAME, total=46068), row(1, NAME, total=46068)])
LINES = BOX.split("\n")
PAIR = matrix({0: (" X ", "NODE"), 1: ("NODE", " X ")})
GPU_LIST = "\n".join(
    f"GPU {i}: NVIDIA L40S (UUID: GPU-aaaaaaaa-0000-0000-0000-00000000000{i})" for i in (0, 1)
)

HEADS = GPU_LIST.split("\n")
LOG = """GPU 00000000:01:00.0
    Product Name                          : NVIDIA RTX A4000
    MIG Mode
        Current                           : N/A
    Driver Model
        Current                           : WDDM
        Pending                           : WDDM
    GPU UUID                              : GPU-aaaaaaaa-0000-0000-0000-000000000000
    FB Memory Usage
        Total                             : 16376 MiB
        Used                              : 12 MiB
    BAR1 Memory Usage
        Total                             : 16384 MiB
"""
HEADED = f"==============NVSMI LOG==============\n\nDriver Version : 538.78\n\n{LOG}"
OLD = """| NVIDIA-SMI 2.290.10   Driver Version: 290.10         |
|-------------------------------+----------------------+----------------------+
| Nb.  Name                     | Bus Id        Disp.  | Volatile ECC SB / DB |
|===============================+======================+======================|
| 0.  Tesla C2075               | 0000:03:00.0  Off    |         0          0 |
|  30%   62 C  P0   79W / 225W  |   0%   10MB / 5375MB |    0%     Default    |
"""
