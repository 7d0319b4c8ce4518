"""The posted inventories in tests/data/hardware and the facts that they must give."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from qwendeploy.documents import Machine
from qwendeploy.hardware import machine_from_files
from qwendeploy.tables.gpus import gpus

FOLDER = Path(__file__).parent / "data" / "hardware"
SLUGS = sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir())


@cache
def expected(slug: str) -> dict[str, Any]:
    """Return what a correct reader concludes; ``given`` are facts that stood around the output."""
    content: dict[str, Any] = YAML(typ="safe", pure=True).load(FOLDER / slug / "expected.yaml")
    return content


def texts(slug: str) -> dict[str, bytes]:
    """Return the saved outputs of one machine by file name."""
    return {
        file.name: file.read_bytes()
        for file in sorted((FOLDER / slug).iterdir())
        if file.name != "expected.yaml"
    }


@cache
def machine(slug: str) -> Machine:
    """Return the machine as read from the folder."""
    given = expected(slug).get("given", {})
    return machine_from_files([FOLDER / slug], catalogue=gpus(), **given)


def facts_of(machine: Machine) -> dict[str, Any]:
    """Return a machine in the form of the expected files."""
    joined = [[p.a, p.b, p.nvlinks] for p in machine.links.pairs if p.nvlinks]
    facts: dict[str, Any] = {
        "platform": machine.platform,
        "count": machine.count,
        "driver": machine.driver,
        "cuda": machine.cuda,
        "smi_version": machine.smi_version,
        "nvml_library_version": machine.nvml_library_version,
        "unified_memory": machine.unified_memory,
        "usable": machine.usable,
        "usable_gpu_indices": list(machine.usable_gpu_indices),
        "worst_pcie_path": machine.links.worst_pcie_path,
        "nvlink": joined if machine.links.nvlink == "pairs" else machine.links.nvlink,
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "memory_mib": gpu.memory_mib,
                "cc": gpu.compute_capability,
                "cc_read": gpu.compute_capability is not None
                and not gpu.compute_capability_by_name,
                "mig": gpu.mig,
                "vgpu": gpu.vgpu,
                "faulty": gpu.health != "ok",
                "cut": gpu.name_truncated,
                "bus_id": gpu.bus_id,
            }
            for gpu in machine.gpus
        ],
        "mig_devices": [
            [item.gpu, item.gi, item.ci, item.profile, item.memory_mib]
            for item in machine.mig_devices
        ],
        "missing_gpus": [[item.index, item.bus_id, item.reason] for item in machine.missing_gpus],
    }
    return facts
