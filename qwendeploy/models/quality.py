"""Which checkpoints a quality class admits, with the measured divergence beside it.

A class belongs to a checkpoint, never to the name of a quant: a checkpoint that nobody measured is
unknown and admitted by ``any`` alone. Divergence (mean KL of next-token distributions against the
BF16 model) is evidence beside the class and means something only against the self-noise of its own
protocol; a restart of the same model moves it by as much as the gap between the 4-bit formats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

ORDER = ("reference", "near", "relaxed", "any")
"""Classes from the strictest; a workload's class admits its own and every stricter one."""
DEFAULT = "near"


class ClassEntry(Protocol):
    """A row of the class table, as far as this module reads it."""

    @property
    def checkpoint(self) -> str: ...
    @property
    def quant(self) -> str: ...
    @property
    def kv_cache_dtype(self) -> str | None: ...
    @property
    def quality_class(self) -> str: ...


def class_of(
    table: Iterable[ClassEntry], checkpoint: str, quant: str, kv_cache_dtype: str | None
) -> str:
    """Return the class of a checkpoint with a KV type; ``any`` for what nobody measured.

    The row of exactly this KV type wins over one that holds for either.
    """
    rows = [row for row in table if row.checkpoint == checkpoint and row.quant == quant]
    for wanted in dict.fromkeys((kv_cache_dtype, None)):
        for row in rows:
            if row.kv_cache_dtype == wanted and row.quality_class in ORDER:
                return row.quality_class
    return "any"


def allowed(checkpoint_class: str, workload_class: str) -> bool:
    """Return whether a workload of this class may run a checkpoint of that class.

    Raises:
        ValueError: the workload's class is not one of ``ORDER``.
    """
    if workload_class not in ORDER:
        raise ValueError(f"quality {workload_class!r} is not one of {', '.join(ORDER)}")
    own = checkpoint_class if checkpoint_class in ORDER else "any"
    return ORDER.index(own) <= ORDER.index(workload_class)


def next_class(workload_class: str) -> str | None:
    """Return the class to try when the default leaves nothing, ``None`` after the last."""
    place = ORDER.index(workload_class) + 1
    return ORDER[place] if place < len(ORDER) else None


@dataclass(frozen=True, slots=True)
class Divergence:
    """Mean KL in bits a position, with the self-noise and restart noise of the same protocol."""

    bits: float
    floor_bits: float | None
    restart_bits: float | None = None

    @property
    def over_floor(self) -> float | None:
        """Times the BF16 model's divergence from itself; ``None`` where that was not measured."""
        return self.bits / self.floor_bits if self.floor_bits else None

    @property
    def below_restart_noise(self) -> bool | None:
        """Whether restarting one model moves more than this; ``None`` if that was not measured."""
        return None if self.restart_bits is None else self.bits <= self.restart_bits


def tied(one: Divergence, other: Divergence) -> bool:
    """Return whether two divergences differ by less than a restart of one model moves them.

    Two values are compared by the root of the sum of squares of the protocol's noises; without a
    restart the self-noise stands in, without either no two values are told apart.
    """
    noise = [d.restart_bits or d.floor_bits for d in (one, other)]
    if None in noise:
        return True
    return abs(one.bits - other.bits) <= math.hypot(*(value or 0.0 for value in noise))


@dataclass(frozen=True, slots=True)
class Score:
    """A task score as a share of ``n`` items."""

    share: float
    n: int

    @property
    def deviation(self) -> float:
        """Binomial standard deviation with half an item added on either side (Agresti)."""
        smoothed = (self.share * self.n + 0.5) / (self.n + 1)
        return math.sqrt(smoothed * (1 - smoothed) / (self.n + 1))


def scores_tie(one: Score, other: Score, run_spread: float = 0.0) -> bool:
    """Return whether two scores are a tie: within two deviations, or within run-to-run spread.

    ``run_spread`` is the largest difference seen between identical runs, as a share.
    """
    gap = abs(one.share - other.share)
    return gap <= max(2 * math.hypot(one.deviation, other.deviation), run_spread)


def ties(scores: Mapping[str, Score], run_spread: float = 0.0) -> Sequence[tuple[str, str]]:
    """Return the pairs of names whose scores cannot be told apart."""
    names = sorted(scores)
    return [
        (a, b)
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if scores_tie(scores[a], scores[b], run_spread)
    ]
