"""Findings about GPU memory: what prevents the start, what limits concurrent requests."""

from __future__ import annotations

from collections.abc import Iterator

from qwendeploy.auditing.judging.findings import Finding, Outcome, Severity, stated_flag
from qwendeploy.auditing.understanding.memory import PoolView
from qwendeploy.auditing.understanding.understand import Understood
from qwendeploy.models.memory import blocks_held


def memory_findings(understood: Understood, view: PoolView | None) -> Iterator[Finding]:
    """Yield what the pool says: what stops the start, what caps the number that runs."""
    if view is None:
        return
    pool = view.pool
    weights, budget = pool.weights.value, pool.budget_gib
    rest = pool.rest.value
    if view.lacks_length and not pool.blocks.basis.startswith("bytes"):
        yield _no_length(understood, view, weights, budget, rest)
        return
    if view.may_lack_length:
        yield Finding(
            "kv-too-small-for-max-model-len",
            "warning",
            f"--max-model-len {pool.max_model_len}",
            understood.place_of("max_model_len"),
            f"one request needs {pool.per_request} KV blocks; the pool has about {pool.count} "
            f"({pool.blocks.low:.0f} to {pool.blocks.high:.0f})",
            f"--max-model-len {view.safe_length} is safe",
        )
    if view.lacks_seats:
        yield _seats(
            "max-num-seqs-above-blocks",
            understood,
            "error",
            f"--max-num-seqs {view.max_num_seqs} exceeds the {pool.count} or so state blocks: "
            "full CUDA graph capture fails; more memory rarely helps",
            pool.short_requests,
            "fails_at_start",
        )
    elif view.may_lack_seats:
        yield _seats_in_doubt(understood, view)
    elif view.max_num_seqs and pool.short_requests < view.max_num_seqs:
        yield _seats(
            "short-context-limit",
            understood,
            "info",
            f"each request holds at least {blocks_held(pool.layout, 1)} KV blocks, so about "
            f"{pool.short_requests} of {view.max_num_seqs} sequences run at once; the rest wait",
            pool.short_requests,
        )
    if view.lacks_step:
        yield Finding(
            "block-above-batched-tokens",
            "error",
            stated_flag(understood, "max_num_batched_tokens", "--max-num-batched-tokens"),
            understood.place_of("max_num_batched_tokens"),
            f"with prefix caching, a scheduler step must hold a full block of "
            f"{pool.layout.block_tokens} tokens",
            f"--max-num-batched-tokens {-(-pool.layout.block_tokens // 1024) * 1024}",
            "fails_at_start",
        )


def _no_length(
    understood: Understood, view: PoolView, weights: float, budget: float, rest: float
) -> Finding:
    pool = view.pool
    length = view.safe_length or pool.largest_length()
    spent = (
        f"weights {weights:.1f} GiB and working memory {rest:.1f} GiB of {budget:.1f} GiB per GPU"
    )
    if weights >= budget or length < pool.layout.block_tokens * 2:
        fits = weights < budget
        return Finding(
            "weights-leave-no-cache" if fits else "weights-do-not-fit",
            "error",
            understood.checkpoint.name if understood.checkpoint else "checkpoint",
            understood.arguments.model.place
            if understood.arguments.model
            else (understood.launch.place),
            f"{spent}: no room for the {pool.per_request} KV blocks of one request"
            if fits
            else f"weights need {weights:.1f} GiB per GPU, the memory budget is {budget:.1f} GiB",
            f"use a smaller checkpoint ({_smaller(understood)}) or more GPUs with tensor"
            " parallelism",
            "fails_at_start",
        )
    return Finding(
        "kv-too-small-for-max-model-len",
        "error",
        f"--max-model-len {pool.max_model_len}",
        understood.place_of("max_model_len"),
        f"one request needs {pool.per_request} KV blocks, the pool has about {pool.count} "
        f"({spent})",
        f"--max-model-len {length}",
        "fails_at_start",
    )


def _smaller(understood: Understood) -> str:
    """Return the weight formats that are smaller than the launch's."""
    sixteen = understood.checkpoint is None or understood.checkpoint.quant == "bf16"
    return "FP8, int4" if sixteen else "int4"


def _seats_in_doubt(understood: Understood, view: PoolView) -> Finding:
    """Return what may stop the start: a max-num-seqs within the band of the pool's blocks.

    The default of a large card failed in every known start: 939, 1,011 and 556 blocks at
    max-num-seqs 1,024 (RTX PRO 6000 with FP8, NVFP4 and BF16 weights of this shape,
    https://github.com/vllm-project/recipes/pull/831), so for the default it is an error.
    """
    known = understood.values.get("max_num_seqs")
    left = known is None or not known.stated
    pool = view.pool.blocks
    return _seats(
        "max-num-seqs-above-blocks",
        understood,
        "error" if left else "warning",
        f"--max-num-seqs {view.max_num_seqs} exceeds or nearly exceeds the {pool.low:.0f} to "
        f"{pool.high:.0f} state blocks: full CUDA graph capture can fail"
        + ("; with this default it failed on such GPUs" if left else ""),
        min(view.pool.short_requests, int(pool.low)),
        "fails_at_start" if left else None,
    )


def _seats(
    name: str,
    understood: Understood,
    severity: Severity,
    text: str,
    requests: int,
    outcome: Outcome | None = None,
) -> Finding:
    """Return a finding about ``--max-num-seqs``; the fix lowers it to ``requests``."""
    return Finding(
        name,
        severity,
        stated_flag(understood, "max_num_seqs", "--max-num-seqs"),
        understood.place_of("max_num_seqs"),
        text,
        f"--max-num-seqs {_round_down(requests)}",
        outcome,
    )


def _round_down(count: int) -> int:
    step = 8 if count >= 16 else 1
    return max(1, count // step * step)
