"""The operating system and architecture that the texts come from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from qwendeploy.documents import Gpu
from qwendeploy.hardware.reading import Reading

System = Literal["linux", "wsl2", "windows", "container", "unknown"]

_ARM_CARDS = re.compile(r"\b(?:GB10|GB200|GB300|GH200|Thor|Orin|Xavier|T4G)\b")
"""GPUs that exist only beside an Arm processor (Grace, GB10, Jetson; T4G: Amazon EC2 G5g)."""

_POWER_CARDS = re.compile(r"\b[VP]100-SXM2")
_POWER_ADDRESS = re.compile(r"^0000(?!0000)[0-9A-F]{4}:0[1-9]:00\.0$", re.IGNORECASE)
"""SXM2 boards sit in PCI domain 0 of x86 hosts; on IBM Power each slot is a domain of its own
(IBM AC922: 0004:04:00.0, 0035:03:00.0)."""


def is_windows_release(driver: str | None) -> bool:
    """Say whether a driver number exists on Windows only.

    Linux branches since 430 are multiples of five (435, 440, … 535, … 610); Windows releases
    count on between them (536.40, 551.88, 596.36). A multiple of five may be either.
    """
    if driver is None:
        return False
    major = int(driver.split(".")[0])
    return major > 430 and major % 5 != 0 and driver.count(".") == 1


def platform_of(
    readings: Sequence[Reading], gpus: Sequence[Gpu], driver: str | None, smi: str | None
) -> tuple[str, System, str | None]:
    """Return platform, operating system, and a note if the architecture is assumed."""
    hints = {hint for reading in readings for hint in reading.platform_hints}
    windows = "windows-driver-model" in hints or "windows-process" in hints
    if any(reading.container for reading in readings):
        system: System = "container"
    elif "wsl2" in hints or (
        smi
        and driver
        and smi != driver
        and driver.count(".") == 1
        and (smi.count(".") == 2 or is_windows_release(driver))
        and not windows
    ):
        return "wsl2", "wsl2", None
    elif windows and ("linux-process" in hints or "linux" in hints):
        return "unknown", "unknown", "the input looks like both Windows and Linux"
    elif windows or "windows" in hints:
        return "windows", "windows", None
    elif is_windows_release(driver) and "linux" not in hints:
        return "unknown", "unknown", f"driver {driver} is a Windows version: Windows or WSL2"
    else:
        system = "linux"
    arch, assumed = _architecture(hints, gpus)
    note = "processor architecture unknown: x86_64 assumed" if assumed else None
    return f"linux-{arch}", system, note


def _architecture(hints: set[str], gpus: Sequence[Gpu]) -> tuple[str, bool]:
    for arch in ("aarch64", "ppc64le", "x86_64"):
        if arch in hints:
            return arch, False
    if any(_ARM_CARDS.search(gpu.name or "") for gpu in gpus):
        return "aarch64", False
    if gpus and all(
        _POWER_CARDS.search(gpu.name or "") and _POWER_ADDRESS.match(gpu.bus_id or "")
        for gpu in gpus
    ):
        return "ppc64le", False
    return "x86_64", True
