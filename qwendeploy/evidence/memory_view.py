"""What a described server holds, told once for plans and for audited launches.

A vLLM server has a pool of blocks (``Pool``), a llama-server slots allocated at start (``Slots``);
both answer the same questions. ``Servers`` are the replicas of one with their seats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qwendeploy.engines.llama_cpp.memory import GgufMemory
from qwendeploy.figures import Figure, Kind, exact, weakest
from qwendeploy.models import memory as kv
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.kv_layout import KvLayout
from qwendeploy.rulebook.fields import FactValue

ARITHMETIC = "the engine's block arithmetic"
ALLOCATED = "slots of --ctx-size, allocated at start"


@dataclass(frozen=True)
class Load:
    """A point to predict: requests in flight, their context, and whether they share it."""

    concurrency: int
    context: int
    contexts: str


@dataclass(frozen=True)
class Pool:
    """The pool of one server and what its budget is spent on, GiB on each rank."""

    layout: KvLayout
    blocks: Estimate
    budget_gib: float
    weights: Estimate
    rest: Estimate
    max_model_len: int

    @property
    def count(self) -> int:
        """Central block count; 0 if nothing is left."""
        return int(self.blocks.value)

    @property
    def per_request(self) -> int:
        """Blocks that one full-length request reserves."""
        return kv.blocks_reserved(self.layout, self.max_model_len)

    @property
    def safe_blocks(self) -> float:
        """Blocks half way to the band's lower edge.

        The band is a 90 % one, so some 20 % of the starts have fewer.
        """
        return (self.blocks.value + self.blocks.low) / 2

    @property
    def may_refuse(self) -> bool:
        """Whether one full-length request does not fit in about every fourth start, or more."""
        return self.safe_blocks < self.per_request

    @property
    def short_requests(self) -> int:
        """Requests that run at once however short they are."""
        return self.running_at(1)

    @property
    def holds_one(self) -> bool:
        """Whether the pool holds one request of the full length, without which nothing starts."""
        return self.count >= self.per_request

    def largest_length(self, blocks: float | None = None) -> int:
        """Return the largest ``--max-model-len``, up to its own, that so many blocks take."""
        pool = int(self.count if blocks is None else blocks)
        return kv.largest_max_model_len(self.layout, pool, ceiling=max(self.max_model_len, 1))

    def running_at(self, context: int, blocks: float | None = None) -> int:
        """Return how many requests of ``context`` tokens run at once, each with its own."""
        return kv.running_at(self.layout, int(self.count if blocks is None else blocks), context)

    def sharing_at(self, context: int, blocks: float | None = None) -> int:
        """Return how many requests run at once that share a warm context.

        They hold its blocks once and their states each.
        """
        layout = self.layout
        pool = int(self.count if blocks is None else blocks)
        shared = layout.attention_groups * (context // layout.block_tokens)
        own = layout.attention_groups * 2 + layout.state_blocks_reserved
        return (pool - kv.NULL_BLOCKS - shared) // own

    def longest_for(self, concurrency: int, blocks: float | None = None) -> int:
        """Return the longest context at which ``concurrency`` requests all run."""
        pool = int(self.count if blocks is None else blocks)
        return kv.longest_context_for(self.layout, pool, concurrency, self.max_model_len)

    def start_check(self, seats: int, batched_tokens: int | None) -> kv.StartCheck:
        """Return whether the engine starts with this pool, so many seats and such a step."""
        return kv.starts(
            self.layout,
            self.count,
            max_model_len=self.max_model_len,
            max_num_seqs=seats,
            max_num_batched_tokens=batched_tokens,
        )

    def facts(self, *, starts: bool) -> dict[str, FactValue]:
        """Return ``memory.*``; ``starts`` says whether the engine starts with this pool."""
        return {
            "memory.pool_blocks": self.count,
            "memory.blocks_per_request": self.per_request,
            "memory.full_length_requests": self.count / self.per_request,
            "memory.starts": starts,
            "memory.short_requests": self.short_requests,
            "memory.weights_gib": self.weights.value,
            "memory.budget_gib": self.budget_gib,
        }


@dataclass(frozen=True)
class Slots:
    """What one llama-server holds, allocated at start: slots of equal length, or one cache."""

    slots: int
    max_model_len: int
    """Tokens of one request: a slot's, or the whole cache where all slots share it."""
    parts: GgufMemory
    """Of one card."""
    may_refuse: bool = False
    """Whether it does not fit by the far end of the estimate."""
    unified: bool = False
    """The slots take of one cache what each needs."""

    @property
    def tokens(self) -> int:
        """Tokens of the whole cache."""
        return self.max_model_len * (1 if self.unified else self.slots)

    def running_at(self, context: int) -> int:
        """Return how many requests of ``context`` tokens run at once."""
        if context > self.max_model_len:
            return 0
        return min(self.slots, self.tokens // max(1, context))

    def longest_for(self, concurrency: int) -> int:
        """Return the longest context at which ``concurrency`` requests all run."""
        if concurrency > self.slots:
            return 0
        return min(self.max_model_len, self.tokens // concurrency)


@dataclass(frozen=True)
class Servers:
    """Alike servers that share a load, each with its own pool or slots and its own seats."""

    memory: Pool | Slots
    seats: int
    """Of each server."""
    replicas: int
    prefix_cache: bool

    @property
    def all_seats(self) -> int:
        """Seats over all servers."""
        return self.seats * self.replicas

    def contexts(self, load: Load) -> str:
        """Return how contexts are held: sharing needs the prefix cache."""
        return load.contexts if self.prefix_cache else "separate"

    def fitting(self, load: Load, blocks: float | None = None) -> int:
        """Return how many requests of the load's context the memory holds at once.

        Requests that fit with contexts of their own fit in any case where they share one, the
        blocks kept for reuse giving way.
        """
        memory = self.memory
        if isinstance(memory, Slots):
            return memory.running_at(load.context) * self.replicas
        most = memory.running_at(load.context, blocks)
        if self.contexts(load) == "shared":
            most = max(most, memory.sharing_at(load.context, blocks))
        return most * self.replicas

    def running(self, load: Load, blocks: float | None = None) -> int:
        """Return how many of the load's requests run at once: seats and memory decide."""
        return min(load.concurrency, self.all_seats, self.fitting(load, blocks))

    def running_band(self, load: Load) -> tuple[int, int]:
        """Return the fewest and the most requests that run at once over the pool's band."""
        if isinstance(self.memory, Slots):
            count = self.running(load)
            return count, count
        blocks = self.memory.blocks
        return self.running(load, blocks.low), self.running(load, blocks.high)

    def capacity(self, load: Load) -> tuple[dict[str, Figure], dict[str, str]]:
        """Return the figures of memory, and of those that there are not, the reasons.

        Pool, tokens and blocks of a request are of one server; requests are of all together.
        """
        if isinstance(self.memory, Slots):
            return self._of_slots(self.memory, load)
        return self._of_pool(self.memory, load), {}

    def _of_pool(self, pool: Pool, load: Load) -> dict[str, Figure]:
        """Return pool, requests and contexts; the band is that of the pool before start."""
        blocks, needed, length = pool.blocks, pool.per_request, pool.max_model_len
        share = -(-load.concurrency // self.replicas)
        enough = self.all_seats >= load.concurrency
        ends = {"value": blocks.value, "low": blocks.low, "high": blocks.high}
        basis = f"{ARITHMETIC}; {blocks.basis}"
        kind = weakest(blocks.kind)

        def over(unit: str, at: Mapping[str, float], source: str = basis) -> Figure:
            return Figure(unit=unit, kind=kind, source=source, n=blocks.n, level=blocks.level, **at)

        tokens = {name: int(value / needed * length) for name, value in ends.items()}
        full = {name: int(value) // needed * self.replicas for name, value in ends.items()}
        most = {
            name: min(self.all_seats, self.fitting(load, value)) for name, value in ends.items()
        }
        longest = {
            name: pool.longest_for(share, value) if enough else 0 for name, value in ends.items()
        }
        return {
            "kv_pool_blocks": over("blocks", ends, blocks.basis),
            "kv_pool_tokens": over("tokens", tokens),
            "blocks_per_request": Figure(
                value=needed,
                unit="blocks",
                low=needed,
                high=needed,
                level=1.0,
                kind=pool.layout.kind,
                source=pool.layout.basis,
            ),
            "max_full_length_requests": over("requests", full),
            "max_running_requests": over("requests", most),
            "max_typical_context_tokens": over("tokens", longest),
        }

    def _of_slots(self, memory: Slots, load: Load) -> tuple[dict[str, Figure], dict[str, str]]:
        """Return the figures of slots: exact, because the cache is allocated as asked."""
        share = -(-load.concurrency // self.replicas)
        blocks = "llama.cpp allocates slots of equal length, not blocks"
        absent = {"kv_pool_blocks": blocks, "blocks_per_request": blocks}
        counts = {
            "kv_pool_tokens": (memory.tokens, "tokens"),
            "max_full_length_requests": (
                memory.running_at(memory.max_model_len) * self.replicas,
                "requests",
            ),
            "max_running_requests": (min(self.all_seats, self.fitting(load)), "requests"),
        }
        if share <= memory.slots:
            counts["max_typical_context_tokens"] = (memory.longest_for(share), "tokens")
        else:
            waiting = f"{memory.slots} requests run at once, the rest wait"
            absent["max_typical_context_tokens"] = waiting
        found = {
            name: exact(value, unit, kind=Kind.ESTIMATED, source=ALLOCATED)
            for name, (value, unit) in counts.items()
        }
        return found, absent
