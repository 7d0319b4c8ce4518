"""The column names of ``nvidia-smi --query-gpu``, with or without units."""

from __future__ import annotations

import re

_UNIT = re.compile(r"\s*\[[A-Za-z%/]{1,8}\]$")
_GPU_COLUMNS = frozenset(
    {
        *("timestamp", "driver_version", "kmd_version", "cuda_version", "count", "index"),
        *("name", "gpu_name", "uuid", "gpu_uuid", "serial", "gpu_serial", "gpu_bus_id"),
        *("memory.total", "memory.used", "memory.free", "memory.reserved", "compute_cap"),
        *("utilization.gpu", "utilization.memory", "enforced.power.limit", "fan.speed", "pstate"),
        *("persistence_mode", "display_mode", "display_active", "display_attached"),
        *("compute_mode", "vbios_version", "driver_model.current"),
    }
)
_FAMILIES = ("pci.", "clocks", "ecc.", "power.", "pcie.", "temperature.", "fabric.", "gom.", "mig.")

COMMON = frozenset({"index", "name", "count", "timestamp", "serial", "uuid"})
"""Columns that lists of any other things have too."""


def column(text: str) -> str:
    """Return a column's name without its unit, in small letters."""
    return _UNIT.sub("", text.strip().lower())


def is_column(text: str) -> bool:
    """Say whether a text names a column of the query."""
    name = column(text)
    return name in _GPU_COLUMNS or name.startswith(_FAMILIES)
