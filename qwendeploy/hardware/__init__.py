"""Hardware facts: what real machines print, read into one ``Machine``.

``detect`` and ``find_machine`` read this computer, ``machine_from_files`` saved output,
``load_machine`` either that or a machine document, ``stated_machine`` a description.
``choose_gpus`` says which GPUs to serve on. All take the GPU catalogue as an argument.

The names are loaded on first use: a stated machine needs none of the parsers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qwendeploy.hardware.choose import GpuChoice, GpuReason, choose_gpus, with_chosen
    from qwendeploy.hardware.files import load_machine, machine_from_files, save_machine
    from qwendeploy.hardware.live.machine import detect, find_machine, refuse_unusable
    from qwendeploy.hardware.memory import serving_memory_mib
    from qwendeploy.hardware.stated import STUDY_CARD, STUDY_COUNT, assumed_machine, stated_machine

__all__ = [
    "STUDY_CARD",
    "STUDY_COUNT",
    "GpuChoice",
    "GpuReason",
    "assumed_machine",
    "choose_gpus",
    "detect",
    "find_machine",
    "load_machine",
    "machine_from_files",
    "refuse_unusable",
    "save_machine",
    "serving_memory_mib",
    "stated_machine",
    "with_chosen",
]

_HOME = {
    "GpuChoice": "choose",
    "GpuReason": "choose",
    "choose_gpus": "choose",
    "with_chosen": "choose",
    "load_machine": "files",
    "machine_from_files": "files",
    "save_machine": "files",
    "detect": "live.machine",
    "find_machine": "live.machine",
    "refuse_unusable": "live.machine",
    "serving_memory_mib": "memory",
    "STUDY_CARD": "stated",
    "STUDY_COUNT": "stated",
    "assumed_machine": "stated",
    "stated_machine": "stated",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
