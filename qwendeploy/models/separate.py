"""From a rate with one shared context to what other contexts, KV types and layouts do.

The study's streams share one warm context per cell, so its cache reads hit the same blocks and
cost 0.2 to 0.8 of what separate ones would. With separate contexts every step reads the keys and
values of all ``c`` of them:

    bound [s] = c · context · KV bytes per token / (memory bandwidth · tp)

per step, that is per ``acceptance length`` tokens of each stream. Measured side by side on an
H200 (2026, vLLM 0.20.1, BF16, no draft): 16 × 32k took 1.1 times the bound beyond the
short-context step, 8 × 32k 1.15 times. Draft passes read their own layer's keys and values again;
they are launch-bound (about 3 ms each), so between none and all of that read shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qwendeploy.figures import Kind, weakest
from qwendeploy.models.estimate import Estimate

OVER_BOUND = (1.0, 1.1, 1.2)
"""Low, middle and high of KV time over its bandwidth bound, 16-bit KV (H200, 2026)."""
OVER_BOUND_FP8 = (1.0, 1.4, 2.2)
"""The same for fp8 KV, whose kernels also convert: no pair of runs on one machine is known, so
the range reaches from a perfect halving to no gain at all."""
FP8_SHORT = (0.95, 1.0)
"""fp8 KV against 16-bit KV where the cache is empty: conversion costs, nothing is gained."""
EAGER_STEP_S = (0.045, 0.093, 0.120)
"""Seconds of a step that replays no CUDA graph, MTP with 3 drafts: 128 streams ran at 3,508
(two H200, TP=2) and about 3,810 tok/s (one) with capture size 256, 0.100 and 0.092 s at acceptance
length 2.73. Launch-bound, so it hardly depends on the GPU; the range allows for other hosts."""
ROUTING_LOSS = 0.05
"""Low end of replicas against their sum: routing and the shared host."""
BYTES_PER_GB = 1e9


@dataclass(frozen=True)
class KvRead:
    """What one step reads of the cache.

    ``bytes_per_token`` are keys and values of all layers and heads of one token, over all ranks;
    ``bandwidth_gbps`` is of one GPU in 10⁹ bytes/s; ``draft_reads`` the fraction of these bytes
    that a step's draft passes read once more (MTP: draft tokens / 16; DFlash: up to 5/16).
    """

    bytes_per_token: float
    bandwidth_gbps: float
    tp: int = 1
    draft_reads: float = 0.0
    fp8: bool = False

    def __post_init__(self) -> None:
        if not (self.bytes_per_token > 0 and self.bandwidth_gbps > 0 and self.tp >= 1):
            raise ValueError("KV bytes, bandwidth and TP must be positive")
        if self.draft_reads < 0:
            raise ValueError("draft reads cannot be negative")

    def bound_seconds(self, concurrency: float, context: float) -> float:
        """Return the least seconds a step needs to read ``concurrency`` separate contexts."""
        bandwidth = self.bandwidth_gbps * BYTES_PER_GB * self.tp
        return concurrency * context * self.bytes_per_token / bandwidth

    @property
    def over_bound(self) -> tuple[float, float, float]:
        """Low, middle and high of the real KV time over the bound."""
        low, middle, high = OVER_BOUND_FP8 if self.fp8 else OVER_BOUND
        return low, middle * (1 + self.draft_reads / 2), high * (1 + self.draft_reads)


def separate_rate(
    shared: Estimate,
    empty: Estimate,
    *,
    concurrency: float,
    context: float,
    acceptance_length: float,
    read: KvRead,
    acceptance_spread: float = 0.0,
) -> Estimate:
    """Return the aggregate rate with separate contexts from the shared rate and the empty one.

    ``shared`` is the rate at (concurrency, context) with one shared context, ``empty`` the one at
    the same concurrency and no context, both in tokens/s; ``acceptance_spread`` is the relative
    deviation of the acceptance length. The result is never above the shared rate nor above what
    the bandwidth allows.

    Raises:
        ValueError: a rate or the acceptance length is not positive.
    """
    if not (shared.value > 0 and empty.value > 0 and acceptance_length > 0):
        raise ValueError("rates and acceptance length must be positive")
    bound = read.bound_seconds(concurrency, context) / acceptance_length
    if bound == 0:
        return shared
    bare = concurrency / empty.value
    warm = concurrency / shared.value
    least, middle, most = (max(warm, bare + factor * bound) for factor in read.over_bound)
    share = middle - bare
    spread = max(share, 0.0) / middle * acceptance_spread
    base = max(_reach(shared), _reach(empty))
    value = min(concurrency / middle, shared.value)
    ceiling = min(concurrency / bound, shared.high)
    low = value * math.exp(-math.hypot(base, math.log(most / middle), spread))
    high = value * math.exp(math.hypot(base, math.log(middle / least), spread))
    kind = Kind.ESTIMATED if read.fp8 else Kind.TRANSFERRED
    return Estimate(
        value,
        min(low, shared.low),
        max(value, min(high, ceiling)),
        weakest(shared.kind, empty.kind, kind),
        shared.n,
        f"{shared.basis}; separate contexts by KV bandwidth",
        shared.level,
    )


def _reach(estimate: Estimate) -> float:
    """Return the half-width of a band in log units."""
    return math.log(estimate.high / estimate.low) / 2


def fp8_shared_rate(shared: Estimate) -> Estimate:
    """Return the rate with fp8 KV where contexts are shared or short, from the 16-bit rate.

    A shared context is read below its bound already, so halving it is worth little; the low end
    allows for the conversion. Always ``estimated``: no row measures the pair.
    """
    return replace(
        shared,
        low=shared.low * FP8_SHORT[0],
        kind=weakest(shared.kind, Kind.ESTIMATED),
        basis=f"{shared.basis}; fp8 KV not measured here",
    )


def beyond_capture(
    rate: Estimate,
    *,
    concurrency: float,
    spec_tokens: int,
    capture_size: int | None,
    acceptance_length: float,
) -> Estimate:
    """Return the rate with steps above the CUDA-graph capture size launched kernel by kernel.

    A step holds ``concurrency · (1 + spec_tokens)`` tokens. Within the capture size (or if it is
    unknown) the rate stands; above, the step takes at least ``EAGER_STEP_S``, which stops two
    GPUs (captured step 33 ms at 64 streams) and hardly slows one (78 ms at 128).
    """
    if capture_size is None or concurrency * (1 + spec_tokens) <= capture_size:
        return rate
    tokens = concurrency * acceptance_length
    best, middle, worst = (tokens / seconds for seconds in EAGER_STEP_S)
    if rate.high <= worst:
        return rate
    value = min(rate.value, middle)
    return replace(
        rate,
        value=value,
        low=min(rate.low, worst, value),
        high=max(value, min(rate.high, best)),
        kind=weakest(rate.kind, Kind.TRANSFERRED),
        basis=f"{rate.basis}; steps above capture size {capture_size}",
    )


def replicas_rate(rates: Sequence[Estimate]) -> Estimate:
    """Return the rate of replicas side by side: the sum, with the low end 5 % lower.

    Bands add: replicas of one series err together.

    Raises:
        ValueError: no replica.
    """
    if not rates:
        raise ValueError("no replica")
    if len(rates) == 1:
        return rates[0]
    return Estimate(
        sum(rate.value for rate in rates),
        sum(rate.low for rate in rates) * (1 - ROUTING_LOSS),
        sum(rate.high for rate in rates),
        weakest(*(rate.kind for rate in rates)),
        min(rate.n for rate in rates),
        f"{len(rates)} × {rates[0].basis}",
        rates[0].level,
    )
