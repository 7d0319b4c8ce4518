"""Time to first token: cold prompts one at a time, cached ones as many at once as planned.

A cold prompt is one that no earlier request of any run shares. A warm one begins as an earlier
one did, and only counts as warm if the server says that its cache served it. Warm prompts arrive
together, as the prediction has it and as the tables' warm cells were measured. The first prompt
of a length is not counted: on a fresh server it compiles and tunes kernels for its shape (959 ms
against 185 ms for 1,024 tokens on an H200, vLLM 0.20.1).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from qwendeploy.documents import Step
from qwendeploy.figures import Figure
from qwendeploy.verification import statistics as st
from qwendeploy.verification.loads.decode_figures import measured, server_differences
from qwendeploy.verification.loads.streams import count_requests
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.records import Record
from qwendeploy.verification.wire.replicas import scrape
from qwendeploy.verification.wire.server import Surface

OUTPUT_TOKENS = 4
SERVED = 0.7
"""Time of a repeated prompt over that of a new one from which no cache was at work, where the
server does not tell."""


@dataclass(frozen=True)
class LatencySettings:
    """Prompt length and repeats."""

    context: int
    """Context of the operating point that this is part of."""
    prompt: int | None = None
    """Prompt tokens, without them as many as the context."""
    repeats: int = 3
    warm: bool = True
    together: int = 1
    """Warm requests that arrive at once."""
    cached: float = 1.0
    """Share of a warm prompt that earlier ones have in common with it."""
    seed: str = "latency"


async def measure_latency(
    client: Client,
    surface: Surface,
    settings: LatencySettings,
    told: Callable[[str, float | None], None],
) -> Step:
    """Return cold and warm TTFT at one context, one request in flight."""
    begin = time.perf_counter()
    length = surface.facts.max_model_len
    context = settings.prompt or settings.context
    if length is not None:
        context = min(context, length - OUTPUT_TOKENS - surface.prompts.margin(length))
    before = await scrape(client) if surface.facts.metrics else None
    cold: list[Record] = []
    warm: list[list[Record]] = []
    notes: list[str] = []
    told("first prompt of this length", None)
    first = await _one(client, surface, surface.prompts.text(context, f"{settings.seed}-first"))
    if first.ttft is not None and first.failure is None:
        notes.append(f"first prompt of this length, not counted: {first.ttft * 1e3:.0f} ms")
    begun = await scrape(client) if before else None
    for repeat in range(settings.repeats):
        text = surface.prompts.text(context, f"{settings.seed}-{repeat}")
        told(f"cold prompt {repeat + 1} of {settings.repeats}", repeat / settings.repeats)
        cold.append(await _one(client, surface, text))
        if cold[-1].failure and cold[-1].retry_after is None:
            break
    ended = await scrape(client) if before else None
    unserved = ""
    if settings.warm and (times := _times(cold)):
        warm, unserved = await _rounds(client, surface, context, settings, told, st.mean(times))
    after = await scrape(client) if before else None
    server = server_differences((before, after) if before and after else None)
    own = server_differences((begun, ended) if begun and ended else None)
    server["ttft_cold_mean_ms"] = own.get("ttft_mean_ms")
    figures, reasons = _figures(cold, warm, unserved, settings)
    prompts = [record.prompt_tokens for record in cold if record.prompt_tokens is not None]
    found = (
        st.distribution("ttft_cold", "ms", _times(cold)),
        st.distribution("ttft_warm", "ms", [t for one in warm for t in _times(one)]),
    )
    return Step(
        name=f"first token, prompt={context}"
        + (f", warm {settings.together} together" if settings.warm else ""),
        shape="prompt",
        concurrency=1,
        context=settings.context,
        contexts="separate",
        status="complete" if _times(cold) else "failed",
        duration_s=time.perf_counter() - begin,
        prompt_tokens=st.mean(prompts) if prompts else None,
        requests=count_requests(
            [*([first] if first.failure else []), *cold, *(r for one in warm for r in one)]
        ),
        figures=figures,
        reasons=reasons,
        distributions=tuple(one for one in found if one is not None),
        server=server,
        notes=tuple(notes),
    )


async def _rounds(
    client: Client,
    surface: Surface,
    prompt: int,
    settings: LatencySettings,
    told: Callable[[str, float | None], None],
    cold_ms: float,
) -> tuple[list[list[Record]], str]:
    """Return warm requests by round, or why there are none: one request tells first.

    A round that is not returned fills the cache of every replica.
    """
    make, rounds = surface.prompts, []
    begin = f"{settings.seed}-warm"

    def text(name: str, index: int = 0) -> str:
        own, kind = f"{begin}-{name}-{index}", make.kind_at(index)
        return make.shared(prompt, settings.cached, begin, own, kind)

    await _one(client, surface, text("fill"))
    before = await scrape(client) if surface.facts.metrics else None
    trial = await _one(client, surface, text("trial"))
    after = await scrape(client) if before else None
    hits = after.since(before, "prefix_hits") if before and after else None
    hits = trial.cached_tokens if trial.cached_tokens is not None else hits
    if hits == 0:
        return [], "the repeated prompts had no prefix cache hits"
    if hits is None and trial.ttft is not None and trial.ttft * 1e3 > SERVED * cold_ms:
        return [], "a repeated prompt took as long as a new one: the prefix cache has no effect"
    for number in range(settings.repeats + 1):
        told(f"warm prompts, round {number} of {settings.repeats}", number / settings.repeats)
        texts = [text(str(number), index) for index in range(settings.together)]
        rounds.append(list(await asyncio.gather(*(_one(client, surface, t) for t in texts))))
    return rounds[1:], ""


async def _one(client: Client, surface: Surface, text: str) -> Record:
    body = surface.body([{"role": "user", "content": text}], OUTPUT_TOKENS)
    return await client.stream(body)


def _times(records: list[Record]) -> list[float]:
    """Return the TTFT in ms of the requests that did not fail."""
    return [r.ttft * 1e3 for r in records if r.ttft is not None and r.failure is None]


def _figures(
    cold: list[Record], warm: list[list[Record]], unserved: str, settings: LatencySettings
) -> tuple[dict[str, Figure | None], dict[str, str]]:
    figures: dict[str, Figure | None] = {"ttft_cold_ms": None, "ttft_warm_ms": None}
    reasons: dict[str, str] = {}
    times = _times(cold)
    if times:
        figures["ttft_cold_ms"] = measured(st.t_interval(times), "ms")
    else:
        reasons["ttft_cold_ms"] = cold[-1].message if cold else "not measured"
    means = [st.mean(found) for one in warm if (found := _times(one))]
    if not settings.warm:
        reasons["ttft_warm_ms"] = "not measured: prefix caching is off"
    elif unserved:
        reasons["ttft_warm_ms"] = unserved
    elif means:
        figures["ttft_warm_ms"] = measured(st.t_interval(means), "ms")
    else:
        records = [record for one in warm for record in one]
        reasons["ttft_warm_ms"] = records[-1].message if records else "not measured"
    return figures, reasons
