"""GPU telemetry by NVML when the server runs on this machine; nothing when it does not.

Clocks, power, temperature and the reasons why the card holds its clock back. Remote servers and
machines without NVIDIA driver give no samples, which is not an error.
"""

from __future__ import annotations

from typing import Any

POWER_CAP = "software power cap"
THROTTLE_REASONS = {
    0x4: POWER_CAP,
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of ``nvmlClocksEventReasons`` (nvml.h) that mean less speed than the card could give."""


class Gpus:
    """Reads the GPUs of this machine; ``offered`` says whether there are any to read."""

    def __init__(self, *, local: bool, indices: tuple[int, ...] = ()) -> None:
        self._nvml: Any = None
        self._handles: list[tuple[int, Any]] = []
        if local:
            self._open(indices)

    @property
    def offered(self) -> bool:
        """Whether telemetry can be read here."""
        return bool(self._handles)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the GPUs that can be read; one without a name is left out."""
        told = (self._ask("nvmlDeviceGetName", handle) for _, handle in self._handles)
        return tuple(
            name.decode() if isinstance(name, bytes) else str(name) for name in told if name
        )

    def _open(self, indices: tuple[int, ...]) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:  # every failure of the driver library means: no telemetry here
            return
        self._nvml = pynvml
        for index in indices or range(pynvml.nvmlDeviceGetCount()):
            try:
                self._handles.append((index, pynvml.nvmlDeviceGetHandleByIndex(index)))
            except pynvml.NVMLError:
                continue

    def read(self) -> tuple[dict[str, float | str | None], ...]:
        """Return one reading per GPU; a value that the card does not give is ``None``."""
        return tuple(self._one(index, handle) for index, handle in self._handles)

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, name)(*arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _one(self, index: int, handle: Any) -> dict[str, float | str | None]:
        power = self._ask("nvmlDeviceGetPowerUsage", handle)
        cap = self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        usual = self._ask("nvmlDeviceGetPowerManagementDefaultLimit", handle)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        busy = self._ask("nvmlDeviceGetUtilizationRates", handle)
        bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
        reasons = [text for bit, text in THROTTLE_REASONS.items() if bits & bit]
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        return {
            "index": float(index),
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", handle, 1),
            "temperature_c": self._ask("nvmlDeviceGetTemperature", handle, 0),
            "power_w": None if power is None else power / 1e3,
            "power_cap_w": None if cap is None else cap / 1e3,
            "power_default_w": None if usual is None else usual / 1e3,
            "memory_used_mib": None if memory is None else memory.used / 2**20,
            "utilization": None if busy is None else busy.gpu / 100,
            "processes": None if processes is None else float(len(processes)),
            "throttle": ", ".join(reasons) or None,
        }

    def close(self) -> None:
        """Let go of the driver library."""
        if self._nvml is not None:
            self._ask("nvmlShutdown")
        self._handles.clear()
