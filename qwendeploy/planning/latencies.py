"""Times to the first token and end-to-end throughput of a resolved option.

Without a stated prompt length the prompt is the whole context of the point: with prefix caching off
every turn prefills all of it again. With caching on and one shared context only the tail after the
cached prefix is prefilled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from qwendeploy.evidence.memory_view import Load, Pool
from qwendeploy.evidence.prefill_rows import WARM_CARD, warm_fit
from qwendeploy.evidence.prefill_speed import prefill_ms, stall
from qwendeploy.figures import Figure, weakest
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.latency import closed_loop, cold_ttft_ms, warm_ttft_ms
from qwendeploy.models.layouts import ROUTING_LOSS
from qwendeploy.planning.candidate import Candidate
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.scene import DEFAULT_ISL, DEFAULT_OSL

LOOP_NAMES = ("output_tps_end_to_end", "ttft_end_to_end_ms", "tpot_end_to_end_ms")
LATENCY_NAMES = ("ttft_cold_ms", "ttft_warm_ms", "stall_ms", *LOOP_NAMES)


@dataclass(frozen=True)
class _Request:
    """One request of the load on one server: prompt, answer, and what of the prompt is cached."""

    prompt: int
    answer: int
    cached: int


def request_lengths(
    context: int, isl: int | None, osl: int | None, longest: int | None
) -> tuple[int, int]:
    """Return prompt and answer of a request at this context, as stated or assumed.

    What is assumed leaves room for the rest within the ``longest`` request that the server takes.
    """
    prompt, answer = isl or context or DEFAULT_ISL, osl or DEFAULT_OSL
    if longest is None or prompt + answer <= longest:
        return prompt, answer
    if isl is None:
        prompt = max(1, min(prompt, longest - answer))
    if osl is None:
        answer = max(1, min(answer, longest - prompt))
    return prompt, answer


def latencies(
    candidate: Candidate, load: Load, count: int, rates: Rates, rate: Estimate | None
) -> tuple[dict[str, Figure], dict[str, str]]:
    """Return the figures that are known with ``count`` requests running, and why others are not.

    ``rate`` is that of all of them together, ``None`` where it is not known.
    """
    option, workload, box = candidate.option, rates.scene.workload, rates.scene.box
    contexts = candidate.servers.contexts(load)
    longest = option.max_model_len
    prompt, answer = request_lengths(load.context, workload.isl, workload.osl, longest)
    request = _Request(prompt, answer, _cached(candidate, prompt, contexts, workload.prefix_hit))
    cold = prefill_ms(option, box, prompt)
    if cold is None:
        why = "the bandwidth or matrix rate of this card is unknown"
        return {}, {name: why for name in LATENCY_NAMES}
    found = {"ttft_cold_ms": cold_ttft_ms(cold).figure("ms")}
    missing: dict[str, str] = {}
    entry = cold
    if option.prefix_cache:
        together = max(1.0, count / option.replicas)
        warm, entry = _warm(candidate, request, together, rates, cold)
        found["ttft_warm_ms"] = warm.figure("ms")
    else:
        missing["ttft_warm_ms"] = "prefix caching is off: every prompt is prefilled"
    pause = stall(option, box, max(1, prompt - request.cached), option.max_num_batched_tokens or 1)
    if count > option.replicas and pause is not None:
        found["stall_ms"] = replace(pause, kind=weakest(pause.kind, box.figure_floor)).figure("ms")
    else:
        missing["stall_ms"] = "no other request is decoding"
    if rate is None:
        missing.update(dict.fromkeys(LOOP_NAMES, "no decode rate at this point"))
        return found, missing
    servers = min(option.replicas, count)
    queued = max(0, load.concurrency - count)
    found.update(_closed_loop(rate, entry, count, servers, request.answer, queued))
    return found, missing


def _cached(candidate: Candidate, prompt: int, contexts: str, hit: float | None) -> int:
    """Return the prompt tokens that the prefix cache holds: as stated, all of a shared context.

    The engine reuses whole blocks, and computes the last token in any case.
    """
    option, memory = candidate.option, candidate.memory
    if not option.prefix_cache:
        return 0
    share = hit if hit is not None else (1.0 if contexts == "shared" else 0.0)
    if share >= 1:
        return prompt - 1
    block = memory.layout.block_tokens if isinstance(memory, Pool) else 1
    return int(prompt * share) // block * block


def _warm(
    candidate: Candidate, request: _Request, together: float, rates: Rates, cold: Estimate
) -> tuple[Estimate, Estimate]:
    """Return the warm time to the first token, and what one such prompt costs the engine."""
    option, box = candidate.option, rates.scene.box
    same = box.name == WARM_CARD
    tail = None
    if 0 < request.cached < request.prompt - 1:
        tail = prefill_ms(option, box, request.prompt, request.cached)
    if tail is None:
        warm = warm_ttft_ms(warm_fit(), together, request.prompt, same_card=same)
        warm = replace(warm, kind=weakest(warm.kind, box.figure_floor))
        if not request.cached:
            return warm, cold
        alone = warm_fit().request_ms + warm_fit().token_ms * request.prompt
        return warm, replace(warm, value=alone, low=alone / 2, high=alone * 2)
    base = warm_ttft_ms(warm_fit(), 1, request.cached, same_card=same)
    turns = (together + 1) / 2
    warm = Estimate(
        base.value + tail.value * turns,
        base.low + tail.low,
        base.high + tail.high * max(1.0, together),
        weakest(base.kind, tail.kind, box.figure_floor),
        tail.n,
        f"{tail.basis}; {base.basis}",
    )
    return warm, tail


def _closed_loop(
    rate: Estimate, entry: Estimate, count: int, servers: int, answer: int, queued: int
) -> dict[str, Figure]:
    """Return throughput over all replicas, first token and pace in a closed loop with prompts.

    ``queued`` users of the loop wait for a place: the time to the first token includes that wait,
    which by Little's law is their number over the requests that are answered a second.
    """
    users = count / servers  # a mean, as in the rate; requests need not divide over replicas
    loop = closed_loop(rate.scaled(1 / servers), entry, concurrency=users, output_tokens=answer)
    total = loop.output_tps
    if servers > 1:
        total = replace(
            total.scaled(servers),
            low=total.low * servers * (1 - ROUTING_LOSS),
            basis=f"{servers} times {total.basis}",
        )
    down, up = total.value / total.low, total.high / total.value

    def time(value: float) -> Figure:
        return replace(total, value=value, low=value / up, high=value * down).figure("ms")

    wait = 1000 * queued * answer / total.value
    return {
        "output_tps_end_to_end": total.figure("tok/s"),
        "ttft_end_to_end_ms": time(loop.ttft_ms + wait),
        "tpot_end_to_end_ms": time(loop.tpot_ms),
    }
