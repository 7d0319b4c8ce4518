"""Workload, option and operating point: what is asked and one complete way to run it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from qwendeploy.documents.base import Model


class Content(StrEnum):
    """What is generated; drafts are accepted more often in code than in prose."""

    PROSE = "prose"
    CODE = "code"
    AGENT = "agent"
    MIXED = "mixed"


class Quality(StrEnum):
    """Quality class of a checkpoint, strictest first (``rank`` 0)."""

    REFERENCE = "reference"
    NEAR = "near"
    RELAXED = "relaxed"
    ANY = "any"

    @property
    def rank(self) -> int:
        """0 for reference; a workload accepts every class of its rank or lower."""
        return list(Quality).index(self)


class Objective(StrEnum):
    """What the ranking maximises at the operating point."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"
    CAPACITY = "capacity"


MOST_REQUESTS = 4096
"""Requests in flight that a workload may state: four times what one server seats."""


class Workload(Model):
    """What the server must do; ``None`` leaves a value to be derived and printed as assumed."""

    concurrency: Annotated[int, Field(ge=1, le=MOST_REQUESTS)] = 1
    """Requests in flight, closed loop."""
    max_context: Annotated[int, Field(ge=1)] = 32768
    typical_context: Annotated[int, Field(ge=1)] | None = None
    contexts: Literal["shared", "separate"] = "separate"
    isl: Annotated[int, Field(ge=1)] | None = None
    osl: Annotated[int, Field(ge=1)] | None = None
    prefix_hit: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of a prompt that an earlier request left in the prefix cache."""
    content: Content = Content.MIXED
    vision: bool = False
    tools: bool = True
    thinking: bool = True
    quality: Quality = Quality.NEAR
    quality_explicit: bool = False
    objective: Objective = Objective.THROUGHPUT
    tpot_ms: Annotated[float, Field(gt=0)] | None = None
    ttft_ms: Annotated[float, Field(gt=0)] | None = None
    prefix_cache: Literal["on", "off", "auto"] = "auto"


SpecMethod = Literal["none", "mtp", "dflash", "draft_model", "ngram", "eagle3"]
KvDtype = Literal["bf16", "fp8"]


class Option(Model):
    """One complete way to run. Scheduler limits are ``None`` until resolved."""

    engine: Literal["vllm", "llama.cpp"] = "vllm"
    image: str | None = None
    engine_version: str | None = None
    fork: bool = False
    checkpoint: str
    quant: str
    kv_cache_dtype: KvDtype = "bf16"
    spec_method: SpecMethod = "none"
    spec_tokens: Annotated[int, Field(ge=0, le=32)] = 0
    tp: Annotated[int, Field(ge=1)] = 1
    replicas: Annotated[int, Field(ge=1)] = 1
    prefix_cache: bool = False
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    max_model_len: Annotated[int, Field(ge=1)] | None = None
    max_num_seqs: Annotated[int, Field(ge=1)] | None = None
    max_num_batched_tokens: Annotated[int, Field(ge=1)] | None = None
    capture_size: Annotated[int, Field(ge=0)] | None = None
    """Largest step batch in tokens that replays a captured CUDA graph."""

    @property
    def gpus_used(self) -> int:
        """GPUs that the layout occupies."""
        return self.tp * self.replicas


class OperatingPoint(Model):
    """Where a plan is ranked, predicted and verified."""

    concurrency: Annotated[int, Field(ge=1)]
    context: Annotated[int, Field(ge=0)]
    isl: Annotated[int, Field(ge=0)]
    osl: Annotated[int, Field(ge=0)]
    content: Content
    contexts: Literal["shared", "separate"]
    prefix_cache: bool
    context_assumed: bool = False
    prefix_hit: float = 0.0
    """Share of a prompt that is found in the prefix cache; 0 with caching off."""
