"""What the user fixed: settings that narrow the options before any rule is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from qwendeploy.documents import KvDtype, Option, SpecMethod


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

    @classmethod
    def of(cls, option: Option) -> Pins:
        """Return pins that leave nothing of the option open."""
        return cls(
            engine=option.engine,
            image=option.image,
            checkpoint=option.checkpoint,
            quant=option.quant,
            kv_cache_dtype=option.kv_cache_dtype,
            spec_method=option.spec_method,
            spec_tokens=option.spec_tokens,
            tp=option.tp,
            replicas=option.replicas,
            gpu_memory_utilization=option.gpu_memory_utilization,
            max_model_len=option.max_model_len,
            max_num_seqs=option.max_num_seqs,
            max_num_batched_tokens=option.max_num_batched_tokens,
            capture_size=option.capture_size,
        )


@dataclass(frozen=True)
class Request:
    """Machine-independent part of a ``recommend`` call besides the workload."""

    pins: Pins = Pins()
    listen: str = "127.0.0.1"
    port: int = 8000
    devices: tuple[int, ...] = ()
    inputs: dict[str, Any] = field(default_factory=dict)
    """Settings as typed, for the document's head."""
