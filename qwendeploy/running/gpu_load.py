"""What the serving GPUs do while a start hangs."""

from __future__ import annotations

from typing import Any


def gpu_metrics(gpus: tuple[str, ...]) -> dict[str, float]:
    """Return ``gpu_utilization`` (lowest of the GPUs, percent), empty where NVML is not there."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        handles: list[Any] = [_handle(pynvml, gpu) for gpu in gpus]
        rates = [pynvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles]
    except pynvml.NVMLError:
        return {}
    finally:
        pynvml.nvmlShutdown()
    return {"gpu_utilization": float(min(rates))} if rates else {}


def _handle(library: Any, gpu: str) -> Any:
    if gpu.isdigit():
        return library.nvmlDeviceGetHandleByIndex(int(gpu))
    return library.nvmlDeviceGetHandleByUUID(gpu)
