"""What becomes of an option: a candidate with its memory and settings, or a rejection.

vLLM holds a pool of blocks (``Memory``), llama.cpp slots of equal length (``SlotMemory``); both
answer the same questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qwendeploy.documents import Option
from qwendeploy.figures import Figure, Kind, exact
from qwendeploy.models import memory as kv
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.kv_layout import KvLayout
from qwendeploy.planning.settings import Chosen
from qwendeploy.rulebook.book import Fired

if TYPE_CHECKING:
    from qwendeploy.engines.llama_cpp.memory import GgufMemory


@dataclass(frozen=True)
class Rejection:
    """Why an option is out."""

    rule: str
    reason: str
    missed_by: str | None = None
    would_return: str | None = None


def refusal_of(fired: Iterable[Fired]) -> Rejection | None:
    """Return the first rejection among fired rules, ``None`` if there is none."""
    for result in fired:
        if result.rejects:
            return Rejection(result.rule.id, result.reason, result.missed_by, result.would_return)
    return None


@dataclass(frozen=True)
class Memory:
    """The pool of one replica and what it holds."""

    layout: KvLayout
    weights: Estimate
    rest: Estimate
    blocks: Estimate
    max_model_len: int
    absent: Mapping[str, str] = field(default_factory=dict)
    """Figures of capacity that it has not, with the reason: none."""

    @property
    def pool(self) -> int:
        """Central block count."""
        return int(self.blocks.value)

    @property
    def per_request(self) -> int:
        """Blocks that one full-length request reserves."""
        return kv.blocks_reserved(self.layout, self.max_model_len)

    def running_at(self, context: int, blocks: float | None = None) -> int:
        """Return how many requests of ``context`` run at once in this replica."""
        return kv.running_at(self.layout, int(self.pool if blocks is None else blocks), context)

    def longest_for(self, concurrency: int, blocks: float | None = None) -> int:
        """Return the longest context at which ``concurrency`` requests all run."""
        pool = int(self.pool if blocks is None else blocks)
        return kv.longest_context_for(self.layout, pool, concurrency, self.max_model_len)

    @property
    def may_refuse(self) -> bool:
        """Whether one full-length request does not fit in about every fourth start, or more.

        The band of the pool is a 90 % one, so half way to its lower edge lie some 20 % of starts.
        """
        return (self.blocks.value + self.blocks.low) / 2 < self.per_request

    @property
    def short_requests(self) -> int:
        """Requests that run at once however short they are."""
        held = kv.blocks_held(self.layout, 1, crossing=True)
        return max(0, self.pool - kv.NULL_BLOCKS) // held

    @property
    def holds_one(self) -> bool:
        """Whether the pool holds one request of the full length, without which nothing starts."""
        return self.pool >= self.per_request

    def start_check(self, option: Option) -> kv.StartCheck:
        """Return whether the engine starts with this pool and the option's limits."""
        return kv.starts(
            self.layout,
            self.pool,
            max_model_len=self.max_model_len,
            max_num_seqs=option.max_num_seqs or 1,
            max_num_batched_tokens=option.max_num_batched_tokens,
        )


@dataclass(frozen=True)
class SlotMemory:
    """What one llama-server holds: slots of equal length, allocated at start."""

    slots: int
    max_model_len: int
    parts: GgufMemory
    """Of one card."""
    may_refuse: bool = False
    """Whether it does not fit by the far end of the estimate."""

    @property
    def absent(self) -> dict[str, str]:
        """Figures of capacity that llama.cpp has not, with the reason."""
        blocks = "llama.cpp allocates slots of equal length, not blocks"
        return {
            "kv_pool_blocks": blocks,
            "blocks_per_request": blocks,
            "max_typical_context_tokens": f"{self.slots} requests run at once, the rest queue",
        }

    @property
    def weights(self) -> Estimate:
        """Weights on each card, GiB."""
        size = self.parts.weights_gib
        return Estimate(size, size, size, Kind.ESTIMATED, basis="file size")

    @property
    def per_request(self) -> int:
        """Slots that a request holds."""
        return 1

    @property
    def pool(self) -> int:
        """Slots."""
        return self.slots

    def running_at(self, context: int, blocks: float | None = None) -> int:
        """Return how many requests of ``context`` run at once."""
        del blocks
        return self.slots if context <= self.max_model_len else 0

    def longest_for(self, concurrency: int, blocks: float | None = None) -> int:
        """Return the longest context at which ``concurrency`` requests all run."""
        del blocks
        return self.max_model_len if concurrency <= self.slots else 0

    def figures(self, seats: int, replicas: int, share: int) -> dict[str, Figure]:
        """Return the figures of capacity: exact, because the cache is allocated as asked."""
        source = "slots of --ctx-size, allocated at start"
        kind = Kind.ESTIMATED
        found = {
            "kv_pool_tokens": exact(
                self.slots * self.max_model_len, "tokens", kind=kind, source=source
            ),
            "max_full_length_requests": exact(
                self.slots * replicas, "requests", kind=kind, source=source
            ),
            "max_running_requests": exact(
                min(seats, self.slots * replicas), "requests", kind=kind, source=source
            ),
        }
        if share <= self.slots:
            found["max_typical_context_tokens"] = exact(
                self.max_model_len, "tokens", kind=kind, source=source
            )
        return found


@dataclass(frozen=True)
class Candidate:
    """An option with its settings, memory and the rules that shaped it."""

    option: Option
    memory: Memory | SlotMemory
    flags: tuple[Chosen, ...]
    env: tuple[Chosen, ...]
    fired: tuple[Fired, ...]
