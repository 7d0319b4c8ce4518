"""Time to first token of one request at a time: cold, and again with its prompt in the cache.

A cold prompt is one that no earlier request of any run shares; a warm one is the same prompt sent
again, which only counts as warm if the server says that its cache served it. The first prompt of a
length is not counted: on a fresh server it compiles and tunes kernels for its shape (959 ms against
185 ms for 1,024 tokens on an H200, vLLM 0.20.1).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from qwendeploy.documents import Step
from qwendeploy.figures import Figure
from qwendeploy.verification import statistics as st
from qwendeploy.verification.client import Client
from qwendeploy.verification.decode_figures import measured, server_differences
from qwendeploy.verification.records import Record
from qwendeploy.verification.server import Surface, scrape
from qwendeploy.verification.streams import count_requests

OUTPUT_TOKENS = 4


@dataclass(frozen=True)
class LatencySettings:
    """Prompt length and repeats."""

    context: int
    repeats: int = 3
    warm: bool = True
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
    context = settings.context
    if length is not None:
        context = min(context, length - OUTPUT_TOKENS - surface.prompts.margin(length))
    before = await scrape(client) if surface.facts.metrics else None
    cold: list[Record] = []
    warm: list[Record] = []
    notes: list[str] = []
    told("first prompt of this length", None)
    first = await _one(client, surface, surface.prompts.text(context, f"{settings.seed}-first"))
    if first.ttft is not None and first.failure is None:
        notes.append(f"first prompt of this length, not counted: {first.ttft * 1e3:.0f} ms")
    for repeat in range(settings.repeats):
        text = surface.prompts.text(context, f"{settings.seed}-{repeat}")
        told(f"cold prompt {repeat + 1} of {settings.repeats}", repeat / settings.repeats)
        cold.append(await _one(client, surface, text))
        if cold[-1].failure:
            break
        if settings.warm:
            told(f"warm prompt {repeat + 1} of {settings.repeats}", None)
            warm.append(await _one(client, surface, text))
    after = await scrape(client) if before else None
    server = server_differences((before, after) if before and after else None)
    figures, reasons = _figures(surface, cold, warm, server, settings)
    prompts = [record.prompt_tokens for record in cold if record.prompt_tokens is not None]
    found = (
        st.distribution("ttft_cold", "ms", _times(cold)),
        st.distribution("ttft_warm", "ms", _times(warm)),
    )
    return Step(
        name=f"first token, context={context}",
        shape="prompt",
        concurrency=1,
        context=settings.context,
        contexts="separate",
        status="complete" if _times(cold) else "failed",
        duration_s=time.perf_counter() - begin,
        prompt_tokens=st.mean(prompts) if prompts else None,
        requests=count_requests([*([first] if first.failure else []), *cold, *warm]),
        figures=figures,
        reasons=reasons,
        distributions=tuple(one for one in found if one is not None),
        server=server,
        notes=tuple(notes),
    )


async def _one(client: Client, surface: Surface, text: str) -> Record:
    body = surface.body([{"role": "user", "content": text}], OUTPUT_TOKENS)
    return await client.stream(body)


def _times(records: list[Record]) -> list[float]:
    """Return the TTFT in ms of the requests that did not fail."""
    return [r.ttft * 1e3 for r in records if r.ttft is not None and r.failure is None]


def _figures(
    surface: Surface,
    cold: list[Record],
    warm: list[Record],
    server: dict[str, float | None],
    settings: LatencySettings,
) -> tuple[dict[str, Figure | None], dict[str, str]]:
    figures: dict[str, Figure | None] = {"ttft_cold_ms": None, "ttft_warm_ms": None}
    reasons: dict[str, str] = {}
    times = _times(cold)
    if times:
        figures["ttft_cold_ms"] = measured(st.t_interval(times), "ms")
    else:
        reasons["ttft_cold_ms"] = cold[-1].message if cold else "not measured"
    if not settings.warm:
        reasons["ttft_warm_ms"] = "not measured: prefix caching is off, no prompt is ever warm"
        return figures, reasons
    times = _times(warm)
    cached = [record.cached_tokens for record in warm if record.cached_tokens is not None]
    hits = server.get("prefix_hits")
    if cached and not any(cached):
        hits = 0.0
    if hits == 0:
        reasons["ttft_warm_ms"] = "the prefix cache served no token of the repeated prompts"
    elif times:
        source = "this run" if hits or any(cached) else "this run, cache use not shown by server"
        figures["ttft_warm_ms"] = measured(st.t_interval(times), "ms", source)
    else:
        reasons["ttft_warm_ms"] = warm[-1].message if warm else "not measured"
    if surface.facts.cache_config.get("enable_prefix_caching") == "False" and not times:
        reasons["ttft_warm_ms"] = "prefix caching is off"
    return figures, reasons
