"""What the user fixed: settings that narrow the options before any rule is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from qwendeploy.documents import KvDtype, SpecMethod


@dataclass(frozen=True)
class Pins:
    """Parts of an option that the user stated; ``None`` leaves the choice to the planner."""

    engine: str | None = None
    image: str | None = None
    upstream_only: bool = False
    checkpoint: str | None = None
    quant: str | None = None
    kv_cache_dtype: KvDtype | None = None
    spec_method: SpecMethod | None = None
    spec_tokens: int | None = None
    tp: int | None = None
    replicas: int | None = None
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    capture_size: int | None = None


@dataclass(frozen=True)
class Request:
    """Machine-independent part of a ``recommend`` call besides the workload."""

    pins: Pins = Pins()
    listen: str = "127.0.0.1"
    port: int = 8000
    devices: tuple[int, ...] = ()
    inputs: dict[str, Any] = field(default_factory=dict)
    """Settings as typed, for the document's head."""
