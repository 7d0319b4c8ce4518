"""Findings about the card's memory: what stops the start, what caps the number that runs."""

from __future__ import annotations

from collections.abc import Iterator

from qwendeploy.auditing.judging.findings import Finding, Outcome, Severity, told_flag
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
            f"one request needs {pool.per_request} blocks; about {pool.count} "
            f"({pool.blocks.low:.0f} to {pool.blocks.high:.0f}) are there",
            f"--max-model-len {view.safe_length} is safe",
        )
    if view.lacks_seats:
        yield _seats(
            "max-num-seqs-above-blocks",
            understood,
            "error",
            f"{view.max_num_seqs} seats against about {pool.count} blocks: graph capture of full "
            "decode steps refuses more seats than state blocks; more memory rarely cures it",
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
            f"a request holds at least {blocks_held(pool.layout, 1)} blocks, so about "
            f"{pool.short_requests} of {view.max_num_seqs} run at once; the rest waits",
            pool.short_requests,
        )
    if view.lacks_step:
        yield Finding(
            "block-above-batched-tokens",
            "error",
            told_flag(understood, "max_num_batched_tokens", "--max-num-batched-tokens"),
            understood.place_of("max_num_batched_tokens"),
            f"with prefix caching a step must hold one block of {pool.layout.block_tokens} tokens",
            f"--max-num-batched-tokens {-(-pool.layout.block_tokens // 1024) * 1024}",
            "fails_at_start",
        )


def _no_length(
    understood: Understood, view: PoolView, weights: float, budget: float, rest: float
) -> Finding:
    pool = view.pool
    length = view.safe_length or pool.largest_length()
    spent = (
        f"weights {weights:.1f} GiB and working memory {rest:.1f} GiB of {budget:.1f} GiB a card"
    )
    if weights >= budget or length < pool.layout.block_tokens * 2:
        fits = weights < budget
        return Finding(
            "weights-leave-no-cache" if fits else "weights-do-not-fit",
            "error",
            f"{understood.checkpoint.name if understood.checkpoint else 'checkpoint'} in memory",
            understood.arguments.model.place
            if understood.arguments.model
            else (understood.launch.place),
            f"{spent}: no room for the {pool.per_request} blocks of one request"
            if fits
            else f"{weights:.1f} GiB of weights a card against a budget of {budget:.1f} GiB",
            f"a smaller checkpoint ({_smaller(understood)}), more cards under one"
            " tensor-parallel size",
            "fails_at_start",
        )
    return Finding(
        "kv-too-small-for-max-model-len",
        "error",
        f"--max-model-len {pool.max_model_len}",
        understood.place_of("max_model_len"),
        f"one request reserves {pool.per_request} blocks, about {pool.count} are there ({spent})",
        f"--max-model-len {length}",
        "fails_at_start",
    )


def _smaller(understood: Understood) -> str:
    """Return the formats that are smaller than the launch's own."""
    sixteen = understood.checkpoint is None or understood.checkpoint.quant == "bf16"
    return "FP8, int4" if sixteen else "int4"


def _seats_in_doubt(understood: Understood, view: PoolView) -> Finding:
    """Return what may stop the start: seats within the pool's band.

    Left at the default of a large card the server was refused each time it was seen: 939, 1,011 and
    556 blocks against 1,024 seats (RTX PRO 6000 with FP8, NVFP4 and BF16 weights of this shape,
    https://github.com/vllm-project/recipes/pull/831), so there it is taken to be refused.
    """
    known = understood.values.get("max_num_seqs")
    left = known is None or not known.stated
    pool = view.pool.blocks
    return _seats(
        "max-num-seqs-above-blocks",
        understood,
        "error" if left else "warning",
        f"{view.max_num_seqs} seats against {pool.low:.0f} to {pool.high:.0f} blocks: graph "
        "capture of full decode steps refuses more seats than state blocks"
        + ("; at this default it was refused on such cards" if left else ""),
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
    """Return a finding about the seats; what mends it are as many as ``requests``."""
    return Finding(
        name,
        severity,
        told_flag(understood, "max_num_seqs", "--max-num-seqs"),
        understood.place_of("max_num_seqs"),
        text,
        f"--max-num-seqs {_round_down(requests)}",
        outcome,
    )


def _round_down(count: int) -> int:
    step = 8 if count >= 16 else 1
    return max(1, count // step * step)
