"""What sources print beside their cells: means, task rates, wrong values, and what was found.

None of these rates is a cell; they are kept so that nothing is dropped silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PublishedRate:
    """A printed rate that is no cell of its own; ``reason`` says why. Units as ``DecodeRow``."""

    row_id: str
    kind: Literal["cell-mean", "mean", "task", "repeat"]
    reason: str
    source: str
    experiment: str | None
    config: str | None
    session: str
    date: str
    image: str
    engine_version: str | None
    gpu: str
    gpu_count: int
    tp: int
    checkpoint: str
    quant: str
    kv_cache_dtype: str | None
    spec_method: str
    spec_tokens: int
    gpu_memory_utilization: float | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    content: str | None
    concurrency: int | None
    context: int | None
    n: int
    std_tps: float | None
    rate_tps: float
    ttft_ms: float | None
    itl_ms: float | None
    accept_rate: float | None
    note: str | None


@dataclass(frozen=True, slots=True)
class WrongValue:
    """A printed value that is wrong, with the right one (to ``right_max``); empty: none known."""

    row_id: str
    place: str
    label: str
    unit: str
    printed_value: str
    right_value: str | None
    right_max: str | None
    finding: str
    evidence: str


@dataclass(frozen=True, slots=True)
class SourceFinding:
    """One contradiction or doubt in the sources and what the tables do about it."""

    finding: str
    area: str
    statement: str
    decision: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Experiment:
    """One server configuration that a study ran; ``window`` is measured / warm-up time."""

    experiment: str
    config: str
    session: str
    source: str
    date: str
    image: str
    image_digest: str | None
    engine_version: str | None
    gpu: str
    gpu_count: int
    tp: int | None
    checkpoint: str
    quant: str
    spec_method: str | None
    spec_tokens: int | None
    draft_sampler: str | None
    attention_backend: str | None
    spec_attention_backend: str | None
    kv_cache_dtype: str | None
    gpu_memory_utilization: float | None
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    kv_tokens: int | None
    boot_s: float | None
    harness: str | None
    window: str | None
    driver: str | None
    host_tuning: str | None
    n: int | None
    note: str | None
