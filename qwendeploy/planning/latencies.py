"""Times to the first token and end-to-end throughput of a resolved option.

Without a stated prompt length the prompt is the whole context of the point: with prefix caching off
every turn prefills all of it again. With caching on and one shared context only the tail after the
cached prefix is prefilled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from qwendeploy.figures import Figure, weakest
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.latency import closed_loop, cold_ttft_ms, warm_ttft_ms
from qwendeploy.models.layouts import ROUTING_LOSS
from qwendeploy.models.prefill import PrefillPoint
from qwendeploy.planning.prefill_rows import WARM_CARD, prefill_fit, warm_fit
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.resolve import Candidate

DEFAULT_ISL, DEFAULT_OSL = 1024, 512
"""Prompt and answer of a request where neither they nor a context is stated."""


class Loaded(Protocol):
    """A point to predict."""

    @property
    def concurrency(self) -> int: ...
    @property
    def context(self) -> int: ...
    def shared_by(self, candidate: Candidate) -> str:
        """Return how contexts are held."""
        ...


@dataclass(frozen=True)
class _Request:
    """One request of the load on one server: prompt, answer, and what of the prompt is cached."""

    prompt: int
    answer: int
    warm: bool


def request_lengths(context: int, isl: int | None, osl: int | None) -> tuple[int, int]:
    """Return prompt and answer of a request at this context, as stated or assumed."""
    return isl or context or DEFAULT_ISL, osl or DEFAULT_OSL


def latencies(
    candidate: Candidate, load: Loaded, count: int, rates: Rates
) -> tuple[dict[str, Figure], dict[str, str]]:
    """Return the figures that are known with ``count`` requests running, and why others are not."""
    option, workload = candidate.option, rates.scene.workload
    contexts = load.shared_by(candidate)
    features = rates.features(option, 1, load.context, contexts)
    names = ("ttft_cold_ms", "ttft_warm_ms", "output_tps_end_to_end")
    if features is None:
        why = "bandwidth or matrix rate of this card is not known"
        return {}, {name: why for name in names}
    prompt, answer = request_lengths(load.context, workload.isl, workload.osl)
    request = _Request(prompt, answer, warm=option.prefix_cache and contexts == "shared")
    floor = rates.scene.box.figure_floor
    point = PrefillPoint(features, request.prompt, option.max_num_batched_tokens)
    prefill = prefill_fit().predict(point)
    prefill = replace(prefill, kind=weakest(prefill.kind, floor))
    rate = rates.aggregate(option, count, load.context, contexts) if count else None
    found = {"ttft_cold_ms": cold_ttft_ms(prefill).figure("ms")}
    missing: dict[str, str] = {}
    together = max(1.0, count / option.replicas)
    warm = warm_ttft_ms(warm_fit(), together, load.context, same_card=features.gpu == WARM_CARD)
    warm = replace(warm, kind=weakest(warm.kind, floor))
    if option.prefix_cache:
        found["ttft_warm_ms"] = warm.figure("ms")
    else:
        missing["ttft_warm_ms"] = "prefix caching is off: every prompt is prefilled"
    if rate is None:
        missing["output_tps_end_to_end"] = "no decode rate at this point"
        return found, missing
    alone = warm_fit().request_ms + warm_fit().token_ms * load.context
    entry = replace(warm, value=alone, low=alone / 2, high=alone * 2) if request.warm else prefill
    servers = min(option.replicas, count)
    total = _end_to_end(rate, entry, count, servers, request.answer)
    found["output_tps_end_to_end"] = total.figure("tok/s")
    return found, missing


def _end_to_end(rate: Estimate, entry: Estimate, count: int, servers: int, answer: int) -> Estimate:
    """Return output tokens/s over all replicas in a closed loop, prompts counted."""
    users = max(1, round(count / servers))
    one = rate.scaled(1 / servers)
    loop = closed_loop(one, entry, concurrency=users, output_tokens=answer).output_tps
    if servers == 1:
        return loop
    return replace(
        loop.scaled(servers),
        low=loop.low * servers * (1 - ROUTING_LOSS),
        basis=f"{servers} times {loop.basis}",
    )
