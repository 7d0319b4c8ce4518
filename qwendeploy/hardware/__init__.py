"""Hardware facts: what real machines print, read into one ``Machine``.

``detect`` and ``find_machine`` read this computer, ``machine_from_files`` saved output,
``load_machine`` either that or a machine document, ``stated_machine`` a description.
``choose_gpus`` says which GPUs to serve on. All take the GPU catalogue as an argument.
"""

from qwendeploy.hardware.choose import GpuChoice, GpuReason, choose_gpus, with_chosen
from qwendeploy.hardware.files import load_machine, machine_from_files, save_machine
from qwendeploy.hardware.live import detect, find_machine, refuse_unusable
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
