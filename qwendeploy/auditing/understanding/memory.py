"""What the memory model says of a launch: the pool, how much runs, and what stops the start."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from qwendeploy.auditing.understanding.context import card_sizes
from qwendeploy.auditing.understanding.understand import Understood
from qwendeploy.engines.vllm.flags import nearest_choice
from qwendeploy.errors import NoPlan, UserError
from qwendeploy.evidence.box import describe
from qwendeploy.evidence.knowledge import slides_in
from qwendeploy.evidence.knowledge_here import knowledge_for
from qwendeploy.evidence.memory_view import Pool
from qwendeploy.evidence.pool_estimate import (
    KnownStarts,
    PoolQuestion,
    estimate_pool,
    layout_of,
    shipped_starts,
)
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.models.memory import blocks_reserved, largest_max_model_len, short_step
from qwendeploy.rulebook.fields import FactValue
from qwendeploy.tables.own_place import has_own_tables


@dataclass(frozen=True)
class PoolView:
    """The pool of one server with the limits that the launch asks of it."""

    pool: Pool
    max_num_seqs: int | None
    full_graphs: bool
    max_num_batched_tokens: int
    automatic_length: bool = False
    """The engine takes the longest length that its pool holds."""

    @property
    def safe_length(self) -> int:
        """Largest ``--max-model-len`` that most starts take, whole kilobytes of it."""
        return self.pool.largest_length(self.pool.safe_blocks) // 1024 * 1024

    @property
    def lacks_length(self) -> bool:
        """One full-length request does not fit, and the band's upper half does not save it."""
        blocks = self.pool.blocks
        return (blocks.value + blocks.high) / 2 < self.pool.per_request

    @property
    def may_lack_length(self) -> bool:
        """One full-length request may well not fit: in about every fourth such start, or more."""
        return not self.automatic_length and self.pool.may_refuse

    @property
    def lacks_seats(self) -> bool:
        """More seats than blocks while full decode steps are captured."""
        seats = self.max_num_seqs or 0
        return self.full_graphs and seats > self.pool.blocks.value

    @property
    def may_lack_seats(self) -> bool:
        """The seats lie within the pool's band while full decode steps are captured."""
        seats = self.max_num_seqs or 0
        return self.full_graphs and seats > self.pool.blocks.low

    @property
    def lacks_step(self) -> bool:
        """With prefix caching a step must hold one block."""
        return short_step(self.pool.layout, self.max_num_batched_tokens)

    def facts(self) -> dict[str, FactValue]:
        """Return ``memory.*``."""
        return self.pool.facts(
            starts=not (self.lacks_length or self.lacks_seats or self.lacks_step)
        )


_WITHOUT_FULL_GRAPHS = ("NONE", "PIECEWISE")
"""Modes that capture no full decode step: seats are then not held against the blocks."""


def view_pool(understood: Understood) -> PoolView | None:
    """Return the pool of a launch, ``None`` where the memory model does not apply.

    It needs vLLM, a model of the 27B's shape, a known card and known numbers; unknown draft methods
    and cache types have no arithmetic.
    """
    question = pool_question(understood)
    if question is None:
        return None
    try:
        pool = estimate_pool(question, _known_starts(understood))
    except UserError:
        return None
    seats = understood.number("max_num_seqs")
    automatic = pool.max_model_len < 1
    if automatic:
        longest = max(1, largest_max_model_len(pool.layout, pool.count))
        pool = replace(pool, max_model_len=longest)
    return PoolView(
        pool,
        int(seats) if seats else None,
        full_graphs=understood.number("capture_size") != 0
        and understood.value("graph_mode") not in _WITHOUT_FULL_GRAPHS,
        max_num_batched_tokens=question.max_num_batched_tokens,
        automatic_length=automatic,
    )


def _known_starts(understood: Understood) -> KnownStarts:
    """Return the starts that pools of the machine are estimated from, its own among them."""
    machine = understood.context.machine
    if machine is None or not has_own_tables():
        return shipped_starts()
    try:
        return knowledge_for(describe(machine)).known_starts
    except NoPlan:
        return shipped_starts()


def blocks_per_full_request(understood: Understood) -> int | None:
    """Return the blocks of one full-length request; they do not depend on the machine."""
    question = _arithmetic(understood)
    if question is None or question.max_model_len < 1:
        return None
    try:
        layout = layout_of(question)
    except UserError:
        return None
    return blocks_reserved(layout, question.max_model_len)


def pool_question(understood: Understood) -> PoolQuestion | None:
    """Return the question to the memory model, ``None`` where a part of it is not known."""
    machine = understood.context.machine
    base = _arithmetic(understood)
    if base is None or machine is None or understood.context.vendor != "nvidia":
        return None
    known = [size for size in card_sizes(machine) if size]
    capabilities = [gpu.compute_capability for gpu in machine.gpus if gpu.compute_capability]
    utilization = understood.number("gpu_memory_utilization")
    if not known or not capabilities or utilization is None or understood.number("pp") != 1:
        return None
    if understood.checkpoint is None or understood.checkpoint.files_gib is None:
        return None
    return replace(
        base,
        memory_mib=float(min(known)),
        compute_capability=min(capabilities, key=_as_numbers),
        gpu_memory_utilization=utilization,
    )


def why_no_pool(understood: Understood) -> str:
    """Return why the memory model gives no figure."""
    checkpoint, machine = understood.checkpoint, understood.context.machine
    known = {
        "tensor-parallel size": understood.number("tp") in QWEN_27B.tensor_parallel_sizes,
        "--max-model-len": understood.number("max_model_len") is not None,
        "whether prefix caching is on (the default depends on the release)": understood.value(
            "prefix_cache"
        )
        is not None,
        "draft tokens": understood.spec_tokens is not None and not understood.spec.symbolic,
        "compute capability of the GPU": machine is not None
        and any(gpu.compute_capability for gpu in machine.gpus),
        "memory fraction": understood.number("gpu_memory_utilization") is not None,
        "size of the checkpoint": checkpoint is not None and checkpoint.files_gib is not None,
    }
    if understood.launch.engine != "vllm":
        return "the memory model covers vLLM only"
    if checkpoint is None or not checkpoint.like_27b:
        return "the checkpoint is not recognized as a 27B model of this family"
    if machine is None:
        return "the machine is unknown: state it with --gpu or --machine"
    if understood.context.vendor != "nvidia":
        return "the memory model covers NVIDIA GPUs only"
    if not any(card_sizes(machine)):
        return "the GPU's memory is unknown: state it with --vram"
    missing = [name for name, told in known.items() if not told]
    if missing:
        return f"unknown: {', '.join(missing)}"
    if understood.number("pp") != 1:
        return "the memory model does not cover pipeline parallelism"
    return "the memory model does not cover this draft method or cache type"


def _as_numbers(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split(".") if part.isdigit())


def _on_host_gib(understood: Understood) -> float:
    """Return the weights that ``--cpu-offload-gb`` keeps in host memory, GiB a card."""
    text = understood.arguments.value("--cpu-offload-gb") or ""
    return float(text) if re.fullmatch(r"\d{1,4}(\.\d+)?", text) else 0.0


def _arithmetic(understood: Understood) -> PoolQuestion | None:
    """Return the question without its machine; its budget fields are placeholders."""
    checkpoint = understood.checkpoint
    tp = understood.number("tp")
    length = understood.number("max_model_len")
    cached = understood.value("prefix_cache")
    if checkpoint is None or not checkpoint.like_27b or understood.launch.engine != "vllm":
        return None
    if tp not in QWEN_27B.tensor_parallel_sizes or length is None or cached is None:
        return None
    if understood.spec_tokens is None or understood.spec.symbolic:
        return None
    dtype = _cache_type(understood)
    if dtype == "auto" and checkpoint.forces_fp8_kv:
        dtype = "fp8"
    capture = understood.number("capture_size")
    stated_bytes = understood.number("kv_cache_bytes")
    return PoolQuestion(
        memory_mib=0.0,
        compute_capability="0.0",
        gpu_memory_utilization=0.0,
        tp=int(tp),
        checkpoint=checkpoint.name,
        quant=checkpoint.quant,
        files_gib=max(0.0, (checkpoint.files_gib or 0.0) - _on_host_gib(understood) * int(tp)),
        files_band_gib=checkpoint.files_band_gib,
        max_num_batched_tokens=int(understood.number("max_num_batched_tokens") or 8192),
        max_num_seqs=int(understood.number("max_num_seqs") or 256),
        prefix_cache=bool(cached),
        text_only=understood.value("text_only") is True,
        has_vision=checkpoint.vision is not False,
        has_mtp=checkpoint.mtp is not False,
        spec_method=understood.spec_method,
        spec_tokens=understood.spec_tokens,
        kv_cache_dtype=dtype,
        state_dtype=str(understood.value("state_dtype") or "auto"),
        sliding_drafter=slides_in(
            understood.spec_method, understood.fork, understood.image, understood.engine_version
        ),
        capture_size=int(capture) if capture is not None else None,
        engine_version=understood.engine_version,
        fork=understood.fork,
        max_model_len=int(length),
        kv_cache_bytes=int(stated_bytes) if stated_bytes else None,
    )


def _cache_type(understood: Understood) -> str:
    """Return the cache type, of a misspelt one the type that was meant: it decides the memory."""
    dtype = str(understood.value("kv_cache_dtype") or "auto")
    setting = understood.arguments.last("--kv-cache-dtype")
    row = setting.status.row if setting is not None else None
    return (nearest_choice(row, dtype) if row is not None else None) or dtype
