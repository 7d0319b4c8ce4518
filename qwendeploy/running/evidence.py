"""The actual KV pool size of a start, stored as evidence beside its prediction."""

from __future__ import annotations

from datetime import UTC, datetime

from qwendeploy.documents import Plan
from qwendeploy.engines.vllm.boot_log import BootLog
from qwendeploy.errors import QwendeployError
from qwendeploy.figures import Figure
from qwendeploy.hardware.memory import serving_memory_mib
from qwendeploy.tables.own_pools import add_pool, with_boot
from qwendeploy.tables.pools import PoolRow


def store(plan: Plan, log: BootLog, blocks: int | None, boot_id: str | None = None) -> str | None:
    """Store the pool of this start; return one line about it, ``None`` if no pool is known.

    A table that cannot be written is told, not raised: the server runs all the same.
    """
    if plan.option.engine != "vllm" or (blocks is None and log.kv_tokens is None):
        return None
    row = pool_row(plan, log, blocks, now=datetime.now(UTC), boot_id=boot_id)
    try:
        new = add_pool(row)
    except (QwendeployError, OSError) as problem:
        return f"cannot store the KV pool size as evidence: {problem}"
    stored = "stored as evidence (measured-here)" if new else "same as in an earlier start"
    return f"KV pool {_size(blocks, log.kv_tokens)}, predicted {_predicted(plan)}: {stored}"


def pool_row(
    plan: Plan, log: BootLog, blocks: int | None, *, now: datetime, boot_id: str | None = None
) -> PoolRow:
    """Return the row of one's own pool table for this start; ``boot_id`` as a run has it."""
    option = plan.option
    card = next(
        (gpu for gpu in plan.machine.gpus if gpu.index in plan.gpu_indices),
        plan.machine.gpus[0] if plan.machine.gpus else None,
    )
    # of a GPU in MIG mode the slice counts, not the card
    memory = serving_memory_mib(plan.machine, card) if card else None
    text_only = any(flag.name == "--language-model-only" for flag in plan.flags)
    return PoolRow(
        row_id=f"own/{plan.plan_id}/{now:%Y%m%dT%H%M%SZ}",
        status="ok",
        reason=None,
        evidence=with_boot(f"{now:%Y-%m-%dT%H:%M:%SZ}", boot_id),
        source=f"own start of plan {plan.plan_id}",
        origin="own",
        experiment=None,
        image=option.image,
        engine="vllm",
        engine_version=log.engine_version or option.engine_version,
        gpu=(card.model or card.name or "unknown") if card else "unknown",
        gpu_count=option.gpus_used,
        tp=option.tp,
        checkpoint=option.checkpoint,
        quant=option.quant,
        kv_cache_dtype=option.kv_cache_dtype,
        spec_method=option.spec_method,
        spec_tokens=option.spec_tokens,
        prefix_cache=option.prefix_cache,
        vision=not text_only,
        gpu_memory_utilization=option.gpu_memory_utilization,
        max_model_len=option.max_model_len,
        max_num_seqs=option.max_num_seqs,
        max_num_batched_tokens=option.max_num_batched_tokens,
        capture_size=option.capture_size,
        memory_mib=memory[0] if memory else None,
        kv_tokens=log.kv_tokens,
        max_concurrency_x=log.max_concurrency,
        num_blocks=blocks,
        blocks_basis="counter" if blocks is not None else None,
        kv_gib_per_gpu=log.kv_gib,
        weights_gib_per_gpu=log.weights_gib,
        vram_gib_per_gpu=None,
        cudagraph_gib=log.graphs_gib,
        block_tokens=log.block_tokens,
        block_mib=None,
        kind="logged",
        outcome="ok",
        note=f"predicted before start: {_predicted(plan)}",
    )


def _predicted(plan: Plan) -> str:
    predictions = plan.predictions
    if predictions.kv_pool_blocks is not None:
        return _band(predictions.kv_pool_blocks, "blocks")
    if predictions.kv_pool_tokens is not None:
        return _band(predictions.kv_pool_tokens, "tokens")
    return "nothing"


def _band(figure: Figure, unit: str) -> str:
    return f"{figure.value:.0f} [{figure.low:.0f}, {figure.high:.0f}] {unit} ({figure.kind})"


def _size(blocks: int | None, tokens: int | None) -> str:
    parts = [f"{blocks:,} blocks"] if blocks is not None else []
    parts += [f"{tokens:,} tokens"] if tokens is not None else []
    return ", ".join(parts)
