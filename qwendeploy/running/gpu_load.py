"""GPU load during a start: in a hang, utilization is high but memory does not grow."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from qwendeploy.units import MIB

SAMPLE_S = 5.0
WINDOW_S = 60.0
"""The last minute, as the signatures' measurement is defined."""


class GpuWatch:
    """Samples of the serving GPUs; empty where NVML is not there."""

    def __init__(self, gpus: tuple[str, ...], library: Any = None) -> None:
        self._gpus = gpus
        self._library = library
        self._handles: list[Any] | None = None
        self._samples: deque[tuple[float, float, float]] = deque()
        """Time, lowest utilisation in percent, memory in use over all GPUs in MiB."""

    def sample(self, now: float | None = None) -> None:
        """Take a sample if the last one is old enough; a GPU that cannot be read ends it."""
        moment = time.monotonic() if now is None else now
        if self._handles == [] or (self._samples and moment - self._samples[-1][0] < SAMPLE_S):
            return
        if self._library is None:
            import pynvml

            self._library = pynvml
        library = self._library
        try:
            if self._handles is None:
                library.nvmlInit()
                self._handles = [self._handle(gpu) for gpu in self._gpus]
            rates = [library.nvmlDeviceGetUtilizationRates(one).gpu for one in self._handles]
            used = [library.nvmlDeviceGetMemoryInfo(one).used for one in self._handles]
        except library.NVMLError:
            self._handles = []
            return
        self._samples.append((moment, float(min(rates)), sum(used) / MIB))
        while moment - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()

    def _handle(self, gpu: str) -> Any:
        if gpu.isdigit():
            return self._library.nvmlDeviceGetHandleByIndex(int(gpu))
        return self._library.nvmlDeviceGetHandleByUUID(gpu)

    def metrics(self) -> dict[str, float]:
        """Return ``gpu_utilization`` and, after most of a minute, ``gpu_memory_growth_mib``."""
        if not self._samples:
            return {}
        first, last = self._samples[0], self._samples[-1]
        found = {"gpu_utilization": min(rate for _, rate, _ in self._samples)}
        if last[0] - first[0] >= WINDOW_S - 2 * SAMPLE_S:
            found["gpu_memory_growth_mib"] = last[2] - first[2]
        return found
