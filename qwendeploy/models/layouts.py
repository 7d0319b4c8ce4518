"""Tensor parallelism against replicas: what one host of several GPUs can be cut into.

The model has four KV heads and 48 GDN heads: tp 1, 2 and 4 divide everything; 8 still divides
weights and state but keeps a copy of every KV head on two ranks, so its cache is twice as large a
card as it need be; 3, 5, 6 and 7 do not start. Replicas of a measured tp series are its sum, each
with its own pool, seats and queue; the low end loses five per cent to routing and the shared host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.models.estimate import Estimate

ROUTING_LOSS = 0.05
"""Share by which the low end of replicas stays under their sum: routing and the shared host."""


@dataclass(frozen=True, slots=True)
class Layout:
    """``replicas`` servers of ``tp`` GPUs each; ``wasteful`` if KV heads are replicated."""

    tp: int
    replicas: int

    @property
    def gpus(self) -> int:
        """GPUs that the layout uses."""
        return self.tp * self.replicas

    @property
    def wasteful(self) -> bool:
        """Whether ranks hold copies of KV heads."""
        return self.tp > QWEN_27B.kv_heads


def layouts(gpus: int) -> tuple[Layout, ...]:
    """Return every way to cut up to ``gpus`` cards into equal servers, most cards used first."""
    if gpus < 1:
        raise ValueError(f"{gpus} GPUs hold no server")
    found = [
        Layout(tp, replicas)
        for tp in QWEN_27B.tensor_parallel_sizes
        if tp <= gpus
        for replicas in range(1, gpus // tp + 1)
    ]
    return tuple(sorted(found, key=lambda layout: (-layout.gpus, layout.tp)))


def why_not(tp: int) -> str | None:
    """Return why a tensor-parallel size cannot start, ``None`` if it can."""
    if tp in QWEN_27B.tensor_parallel_sizes:
        return None
    return (
        f"tp {tp} does not divide the {QWEN_27B.kv_heads} KV heads; 1, 2, 4 (and 8, wastefully) do"
    )


def replicas(one: Estimate, count: int) -> Estimate:
    """Return ``count`` equal servers from one server's rate at its share of the requests.

    The kind stays: a sum of measured servers is measured, not transferred.
    """
    if count < 1:
        raise ValueError("at least one replica runs")
    if count == 1:
        return one
    return replace(
        one.scaled(count),
        low=one.low * count * (1 - ROUTING_LOSS),
        basis=f"{count} times {one.basis}",
    )


def shares(concurrency: int, count: int) -> tuple[int, ...]:
    """Return the requests of each replica under least-connections routing."""
    return tuple(concurrency // count + (1 if i < concurrency % count else 0) for i in range(count))


def gain(
    rate: Callable[[int, int], Estimate], gpus: int, tp: int, other: int, concurrency: int
) -> float:
    """Return the relative gain of replicas of ``tp`` over ``other``, all on ``gpus`` cards.

    ``rate(tp, c)`` is the aggregate of one server of that size with ``c`` running requests; a
    replica without a request counts nothing.
    """

    def total(size: int) -> float:
        running = shares(concurrency, gpus // size)
        return math.fsum(rate(size, c).value for c in running if c)

    return total(tp) / total(other) - 1


@dataclass(frozen=True, slots=True)
class LayoutCrossover:
    """First compared concurrency from which more replicas win for good; ``None`` if they never do.

    ``gains`` is concurrency -> relative gain of the smaller tp.
    """

    wins_from: int | None
    gains: Mapping[int, float]


def layout_crossover(
    rate: Callable[[int, int], Estimate],
    gpus: int,
    tp: int,
    other: int,
    concurrencies: Sequence[int],
) -> LayoutCrossover:
    """Compare replicas of ``tp`` with replicas of ``other`` on the same cards."""
    gains = {c: gain(rate, gpus, tp, other, c) for c in sorted(concurrencies)}
    wins_from: int | None = None
    for c, value in gains.items():
        wins_from = (wins_from or c) if value >= 0 else None
    return LayoutCrossover(wins_from, gains)
