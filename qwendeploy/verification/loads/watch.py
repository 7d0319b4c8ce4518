"""Monitoring during a load: the server's gauges, the client's own delays, the GPUs.

The sampler is also the timeline of the report. Scrapes cost the server and the client a few
milliseconds, so they are a second apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from qwendeploy.documents import ClientFacts, TimelinePoint
from qwendeploy.engines.metrics import Metrics
from qwendeploy.verification.loads.telemetry import Gpus
from qwendeploy.verification.statistics import percentile
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.replicas import scrape

LAG_STEP = 0.01
LITTLE, LITTLE_PROMPT = 0.03, 0.3
"""Tokens of others over ours, generated and in prompts, that hardly cost anything: a prompt's token
takes a tenth of the time of one that is generated, or less."""
OWN_END_S = 2.0
"""A request of ours may be counted as ended so long after we saw it end."""
CPU_LIMIT = 0.85
"""Above this share of one core the single-threaded client may be what is measured."""
LAG_LIMIT_MS = 25.0
"""A loop that wakes this late (99th percentile) shifts arrivals by as much."""


@dataclass
class Sample:
    """One look at the server."""

    at: float
    metrics: Metrics | None
    streams: int
    tokens: int
    gpu: tuple[dict[str, float | str | None], ...] = ()


@dataclass
class Lateness:
    """How late the event loop woke from short sleeps, and the CPU it used."""

    lags: list[float] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=lambda: _cpu())

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            due = time.perf_counter() + LAG_STEP
            await asyncio.sleep(LAG_STEP)
            self.lags.append(max(0.0, time.perf_counter() - due) * 1e3)

    def reset(self) -> None:
        """Begin anew: what came before (set-up, prompt making) is not part of the measurement."""
        self.lags.clear()
        self.started, self.cpu = time.perf_counter(), _cpu()

    def facts(self, loop: str, *, proxy: bool) -> ClientFacts:
        """Return what the client was able to do since the last reset."""
        wall = time.perf_counter() - self.started
        share = (_cpu() - self.cpu) / wall if wall > 0 else 0.0
        ordered = sorted(self.lags)
        p99 = percentile(ordered, 99) if ordered else None
        reasons = []
        if share > CPU_LIMIT:
            reasons.append(f"the client used {share:.0%} of a core")
        if p99 is not None and p99 > LAG_LIMIT_MS:
            reasons.append(f"the client's event loop was {p99:.0f} ms late (p99)")
        return ClientFacts(
            loop=loop,
            cpu_share=round(share, 4),
            lag_p99_ms=None if p99 is None else round(p99, 3),
            lag_max_ms=round(ordered[-1], 3) if ordered else None,
            limited=bool(reasons),
            limited_reason="; ".join(reasons),
            load_average=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            proxy=proxy,
        )


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Watch:
    """Samples of the server at a fixed pace while a load runs."""

    def __init__(
        self,
        client: Client,
        gpus: Gpus,
        state: Callable[[], tuple[int, int]],
        *,
        interval: float = 1.0,
        metrics: bool = True,
    ) -> None:
        self._client = client
        self._gpus = gpus
        self._state = state
        self.interval = interval
        self._metrics = metrics
        self.samples: list[Sample] = []

    async def look(self) -> Sample:
        """Take one sample now."""
        metrics = await scrape(self._client) if self._metrics else None
        streams, tokens = self._state()
        sample = Sample(time.perf_counter(), metrics, streams, tokens, self._gpus.read())
        self.samples.append(sample)
        return sample

    @contextlib.asynccontextmanager
    async def sampling(self, delay: float = 0.0) -> AsyncIterator[None]:
        """Sample beside what the block does, first after ``delay`` seconds."""
        task = asyncio.create_task(self._sample(delay))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _sample(self, delay: float) -> None:
        await asyncio.sleep(delay)
        while True:
            due = time.perf_counter() + self.interval
            await self.look()
            await asyncio.sleep(max(0.05, due - time.perf_counter()))

    def between(self, start: float, end: float) -> list[Sample]:
        """Return the samples of a stretch."""
        return [sample for sample in self.samples if start <= sample.at <= end]

    def around(self, start: float, end: float) -> tuple[Metrics, Metrics] | None:
        """Return the metrics nearest to the ends of a stretch, for differences of counters."""
        pair = self._nearest(start, end)
        return None if pair is None else (pair[0][1], pair[1][1])

    def _nearest(
        self, start: float, end: float
    ) -> tuple[tuple[Sample, Metrics], tuple[Sample, Metrics]] | None:
        """Return the two samples with metrics nearest to the ends of a stretch."""
        offered = [
            (sample, sample.metrics) for sample in self.samples if sample.metrics is not None
        ]
        if len(offered) < 2:
            return None
        first = min(offered, key=lambda one: abs(one[0].at - start))
        last = min(offered, key=lambda one: abs(one[0].at - end))
        return (first, last) if first[0].at < last[0].at else None

    def counted(self, start: float, end: float) -> tuple[float, int] | None:
        """Return the tokens by the server's live counter and the units that we counted."""
        pair = self._nearest(start, end)
        if pair is None:
            return None
        (first, before), (last, after) = pair
        if not after.live or last.tokens <= first.tokens:
            return None
        grown = after.since(before, "generation_tokens")
        return None if grown is None else (grown, last.tokens - first.tokens)

    def ended_of_others(self, start: float, end: float, own: Sequence[float]) -> bool:
        """Whether requests ended in a stretch while none of ours did; ``own`` are our ends."""
        pair = self._nearest(start, end)
        if pair is None:
            return False
        (first, before), (last, after) = pair
        if any(first.at - OWN_END_S < ended <= last.at for ended in own):
            return False
        return bool(after.since(before, "requests_finished"))

    def little_of_others(self, start: float, end: float) -> bool:
        """Whether the server's counters show that what it did for others hardly cost anything.

        Prompt tokens are counted when a request ends or begins, and none of ours does.
        """
        pair, counted = self.around(start, end), self.counted(start, end)
        prompts = pair[1].since(pair[0], "prompt_tokens") if pair else None
        if counted is None or prompts is None:
            return False
        generated, ours = counted
        return generated <= (1 + LITTLE) * ours and prompts <= LITTLE_PROMPT * ours

    def timeline(self, origin: float) -> tuple[TimelinePoint, ...]:
        """Return the samples in the form of the document."""
        points = []
        before: Metrics | None = None
        for sample in self.samples:
            metrics = sample.metrics
            length = metrics.acceptance_length(before) if metrics and before else None
            points.append(
                TimelinePoint(
                    t_s=round(sample.at - origin, 3),
                    streams=sample.streams,
                    tokens=sample.tokens,
                    running=metrics.get("running") if metrics else None,
                    waiting=metrics.get("waiting") if metrics else None,
                    kv_usage=metrics.get("kv_usage") if metrics else None,
                    preemptions=metrics.get("preemptions") if metrics else None,
                    acceptance_length=length,
                    gpu=sample.gpu,
                )
            )
            before = metrics or before
        return tuple(points)
