"""What a KV pool holds: requests, tokens, concurrency, and what stops a server from starting.

Everything is counted in pool blocks (``kv_layout``). A request *reserves* blocks for its longest
possible length when the engine prints its concurrency, and *holds* fewer while it runs. One block
of the pool is a placeholder that no request gets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.figures import weakest
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.kv_layout import KvLayout
from qwendeploy.units import GIB, MIB

NATIVE = QWEN_27B.native_context

NULL_BLOCKS = 1
"""The engine keeps one block as a placeholder: usage counts against num_blocks − 1."""


def blocks_reserved(layout: KvLayout, length: int) -> int:
    """Return the blocks that one request of ``length`` tokens reserves (R of the log lines)."""
    return layout.attention_blocks(length) + layout.state_blocks_reserved


def blocks_held(layout: KvLayout, context: int, crossing: bool = False) -> int:
    """Return the blocks that one running request of ``context`` tokens holds.

    ``crossing``: while it passes a block edge with prefix caching the engine keeps the previous
    state one step longer, one block more a state group.
    """
    states = layout.state_blocks_reserved if crossing else layout.state_blocks_held
    return layout.attention_blocks(context) + states


def pool_tokens(layout: KvLayout, blocks: int, max_model_len: int) -> tuple[int, float]:
    """Return the two numbers that the engine logs: pool size in tokens and concurrency X.

    The size is X times ``max_model_len`` (vLLM 0.20 and later): it is no property of the pool
    alone.
    """
    concurrency = blocks / blocks_reserved(layout, max_model_len)
    return int(concurrency * max_model_len), concurrency


def blocks_from_tokens(layout: KvLayout, tokens: int, max_model_len: int) -> int | None:
    """Return the block count whose logged size is ``tokens``; ``None`` if no whole count is."""
    guess = round(tokens / max_model_len * blocks_reserved(layout, max_model_len))
    for blocks in (guess, guess + 1, guess - 1):
        if blocks > 0 and pool_tokens(layout, blocks, max_model_len)[0] == tokens:
            return blocks
    return None


def blocks_from_bytes(layout: KvLayout, kv_bytes: float) -> int:
    """Return the whole blocks that ``kv_bytes`` on each rank hold; 0 if there is no room."""
    return max(0, math.floor(kv_bytes / layout.bytes_per_block))


def blocks_from_logged_gib(layout: KvLayout, gib: float, decimals: int = 2) -> Estimate:
    """Return the blocks behind ``Available KV cache memory: x GiB``, within its rounding."""
    half = 0.5 * 10**-decimals
    return Estimate(
        value=blocks_from_bytes(layout, gib * GIB),
        low=blocks_from_bytes(layout, (gib - half) * GIB),
        high=blocks_from_bytes(layout, (gib + half) * GIB),
        kind=layout.kind,
        n=1,
        basis="available KV cache memory from the engine log",
        level=1.0,
    )


def requested_bytes(memory_mib: float, utilization: float) -> int:
    """Return the bytes that the engine may use on a card: a share of its *total* memory."""
    return math.ceil(memory_mib * MIB * utilization)


def pool_blocks(
    layout: KvLayout, *, memory_mib: float, utilization: float, weights: Estimate, rest: Estimate
) -> Estimate:
    """Return the blocks of the pool before start; weights and rest in GiB on each rank.

    0 means that nothing is left for the cache: the server does not start. The band carries the
    bands of weights and rest (added in quadrature: they come from different sources).
    """
    budget = requested_bytes(memory_mib, utilization) / GIB
    kv_gib = budget - weights.value - rest.value
    up = math.hypot(weights.value - weights.low, rest.value - rest.low)
    down = math.hypot(weights.high - weights.value, rest.high - rest.value)
    return Estimate(
        value=blocks_from_bytes(layout, kv_gib * GIB),
        low=blocks_from_bytes(layout, (kv_gib - down) * GIB),
        high=blocks_from_bytes(layout, (kv_gib + up) * GIB),
        kind=weakest(layout.kind, weights.kind, rest.kind),
        n=rest.n,
        basis=f"{layout.basis}; {rest.basis}",
    )


def running_at(layout: KvLayout, blocks: int, context: int) -> int:
    """Return how many requests of ``context`` tokens run at once in a pool of ``blocks``."""
    return max(0, blocks - NULL_BLOCKS) // blocks_held(layout, context, crossing=True)


def full_length_requests(layout: KvLayout, blocks: int, max_model_len: int) -> int:
    """Return how many requests of the full length run at once: the floor of X."""
    return blocks // blocks_reserved(layout, max_model_len)


def longest_context_for(
    layout: KvLayout, blocks: int, concurrency: int, max_model_len: int = NATIVE
) -> int:
    """Return the longest context in tokens at which ``concurrency`` requests all run; 0 if none.

    The answer is a block edge: one token more takes another block of every request.
    """
    share = max(0, blocks - NULL_BLOCKS) // concurrency
    edges = _edges_within(layout, share - layout.state_blocks_reserved, max_model_len)
    return min(edges * layout.block_tokens, max_model_len)


def _edges_within(layout: KvLayout, budget: int, ceiling: int) -> int:
    """Return the most blocks of tokens whose attention blocks stay in ``budget``; 0 if none do."""
    most = -(-ceiling // layout.block_tokens)
    edges = min(most, max(0, budget) // layout.attention_groups)
    while edges and layout.attention_blocks(edges * layout.block_tokens) > budget:
        edges -= 1  # a sliding group holds a few blocks besides
    return edges


def largest_max_model_len(layout: KvLayout, blocks: int, ceiling: int = NATIVE) -> int:
    """Return the largest ``--max-model-len`` with which one request still fits; 0 if none does."""
    edges = _edges_within(layout, blocks - layout.state_blocks_reserved, ceiling)
    return min(edges * layout.block_tokens, ceiling)


def short_step(layout: KvLayout, batched_tokens: int) -> bool:
    """Say whether a scheduler step is too short: with prefix caching it holds one block."""
    return layout.states_reserved > layout.states_held and batched_tokens < layout.block_tokens


class Limit(StrEnum):
    """What binds: the reason why a server does not start, or what caps it when it does."""

    NO_ROOM = "weights"
    """Weights and working memory leave no cache."""
    LENGTH = "max_model_len"
    SEATS = "max_num_seqs"
    STEP = "max_num_batched_tokens"
    NOTHING = "nothing"


@dataclass(frozen=True)
class StartCheck:
    """Whether the memory of a server suffices to start, and what it lacks."""

    starts: bool
    binds: Limit
    blocks: int
    needed: int
    """Blocks (or tokens of a step) that the binding limit asks for."""
    largest_length: int
    """Largest ``--max-model-len`` that this pool takes."""


def starts(
    layout: KvLayout,
    blocks: int,
    *,
    max_model_len: int,
    max_num_seqs: int,
    full_graphs: bool = True,
    max_num_batched_tokens: int | None = None,
) -> StartCheck:
    """Return whether the pool lets the engine start.

    It refuses when no cache is left, when one full-length request does not fit, when graphs of
    full decode steps are captured for more seats than there are state blocks, and when a step is
    too short.
    """
    needed = blocks_reserved(layout, max_model_len)
    longest = largest_max_model_len(layout, blocks, ceiling=max(max_model_len, NATIVE))
    if blocks <= NULL_BLOCKS:
        return StartCheck(False, Limit.NO_ROOM, blocks, needed, longest)
    if needed > blocks:
        return StartCheck(False, Limit.LENGTH, blocks, needed, longest)
    if full_graphs and max_num_seqs > blocks:
        return StartCheck(False, Limit.SEATS, blocks, max_num_seqs, longest)
    if max_num_batched_tokens and short_step(layout, max_num_batched_tokens):
        return StartCheck(False, Limit.STEP, blocks, layout.block_tokens, longest)
    return StartCheck(True, Limit.NOTHING, blocks, needed, longest)
