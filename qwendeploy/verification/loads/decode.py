"""The decode shape: the rate of ``concurrency`` streams that all decode, and nothing else.

Streams start one after another and run longer than the measurement. Windows open only once every
stream decodes and the rate of the last seconds is steady; a window in which a stream started,
ended or waited is marked. The load ends early when the caller says that the interval decides.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

from qwendeploy.documents import Step
from qwendeploy.verification import statistics as st
from qwendeploy.verification.loads.arrivals import STEADY_BINS, is_steady
from qwendeploy.verification.loads.decode_figures import decode_step, judged_windows
from qwendeploy.verification.loads.decode_load import DecodeLoad, DecodeSettings
from qwendeploy.verification.loads.streams import Streams, Turn
from qwendeploy.verification.loads.telemetry import Gpus
from qwendeploy.verification.loads.watch import Watch
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.server import Surface

BROKEN = "too many requests failed; the load was stopped"
BEFORE_WINDOWS_S = 10.0
"""Seconds that streams decode before the windows open, as prompts are planned for."""
IDLE_LOOKS = 25
"""Looks, five a second, that a server gets to drop the requests of the load before."""
OUTPUT_CAP = 65536
"""Longest output asked for; streams are cancelled when the measurement is over."""


def prompt_length(settings: DecodeSettings, longest: int | None = None) -> int:
    """Return the prompt tokens that put the middle of the windows at the wanted context.

    Contexts grow while they are measured: near ``longest``, the longest request that the server
    takes, prompts are short enough for every stream to outlive the windows. A prompt is never
    shortened below half, so that a short context stays what it is called.
    """
    tps, measured = settings.expected_user_tps or 0.0, settings.window_s * settings.windows
    wanted = settings.context - int(tps * (BEFORE_WINDOWS_S + measured / 2))
    if longest is not None:
        wanted = min(wanted, longest - int(tps * (BEFORE_WINDOWS_S + measured)))
    return max(wanted, settings.context // 2, 48)


class Decode:
    """One decode measurement in progress."""

    def __init__(
        self,
        client: Client,
        surface: Surface,
        settings: DecodeSettings,
        *,
        gpus: Gpus,
        told: Callable[[str, float | None], None],
        decided: Callable[[list[float]], bool],
    ) -> None:
        self.client, self.surface, self.settings = client, surface, settings
        self.told, self.decided = told, decided
        self.streams = Streams(client, settings.concurrency, self._turn, stagger=settings.stagger_s)
        self.watch = Watch(client, gpus, self.streams.state, metrics=surface.facts.metrics)
        self.load = DecodeLoad(settings, surface, self.streams, self.watch, time.perf_counter())
        self.prompt = prompt_length(settings, surface.facts.max_model_len)
        self.limit = self._output_limit()
        self.load.prompt = self.prompt
        self.texts = self._texts()

    def _output_limit(self) -> int:
        length = self.surface.facts.max_model_len
        if length is None:
            length = self.prompt + 8192
        margin = self.surface.prompts.margin
        room = length - self.prompt - margin(self.prompt)
        if room < 64:
            self.prompt = max(16, length - 64 - margin(length))
            room = length - self.prompt - margin(self.prompt)
            self.load.notes.append(f"prompt cut to {self.prompt} tokens: server limit {length}")
        if self.settings.ceiling is not None:
            room = min(room, max(64, self.settings.ceiling - self.prompt))
        return max(1, min(OUTPUT_CAP, room))

    def _texts(self) -> list[str]:
        make, seed = self.surface.prompts, self.settings.seed
        share = 1.0 if self.settings.contexts == "shared" else 0.0
        return [
            make.shared(self.prompt, share, f"{seed}-shared", f"{seed}-{i}", make.kind_at(i))
            for i in range(self.settings.concurrency)
        ]

    def _turn(self, stream: int, _: int) -> Turn:
        message = {"role": "user", "content": self.texts[stream]}
        return Turn(self.surface.body([message], self.limit))

    async def run(self) -> Step:
        """Measure; a load that breaks returns what it has, with the reason."""
        try:
            if self.settings.contexts == "shared":
                await self._warm()
            await self._alone()
            self.streams.start()
            async with self.watch.sampling(self.watch.interval):
                if await self._all_decode():
                    await self._settle()
                    await self._measure()
            if self.streams.broken.is_set():
                self.load.notes.append(BROKEN)
        finally:
            await self.streams.stop()
        return decode_step(self.load)

    async def _alone(self) -> None:
        """Wait a while for the server to end what it runs; what goes on is somebody else's."""
        for _ in range(IDLE_LOOKS):
            sample = await self.watch.look()
            running = sample.metrics.get("running") if sample.metrics else None
            if not running:
                return
            await asyncio.sleep(0.2)
        self.load.notes.append(f"{running:g} other requests ran when the load started")

    async def _warm(self) -> None:
        self.told("caching the shared context", None)
        message = {"role": "user", "content": self.texts[0]}
        await self.client.stream(self.surface.body([message], 1))

    async def _all_decode(self) -> bool:
        """Wait until every stream decodes; false if none ever will."""
        count = self.settings.concurrency
        begin = time.perf_counter()
        while len(self.streams.decoding) < count and not self.streams.broken.is_set():
            await asyncio.sleep(0.02)
            now = time.perf_counter()
            running = len(self.streams.decoding)
            self.told(f"{running} of {count} requests decode", running / count)
            last = self.streams.changes[-1] if self.streams.changes else begin
            gaps = [b - a for a, b in itertools.pairwise(self.streams.changes)]
            patience = max(self.settings.patience_s, 4 * max(gaps, default=0.0))
            if running and now - last > patience:
                self.load.notes.append(f"at most {running} of {count} requests decoded at once")
                return True
            if not running and now - begin > self.client.limits.first + 1:
                break
        return bool(self.streams.decoding) and not self.streams.broken.is_set()

    async def _settle(self) -> None:
        """Wait until the rate is steady, at most ``settle_s``."""
        begin = time.perf_counter()
        arrivals = self.streams.arrivals
        while time.perf_counter() - begin < self.settings.settle_s:
            await asyncio.sleep(0.1)
            if self.streams.broken.is_set():
                return
            now = time.perf_counter()
            chunks = arrivals.chunks_between(begin, now)
            per_second = chunks / (now - begin)
            if per_second <= 0:
                continue
            per_stream = per_second / max(1, len(self.streams.decoding))
            width = max(0.25, 10 / per_stream, 40 / per_second)
            width = min(width, self.settings.settle_s / (2 * STEADY_BINS))
            rates = arrivals.bins(begin, now, width)
            noise = self._chunk_noise(now - STEADY_BINS * width) / (per_second * width) ** 0.5
            self.told(f"settling: {rates[-1] if rates else 0:.0f} tok/s", None)
            if is_steady(rates, 0.02 + 2 * noise):
                self.load.steady = True
                return
        self.load.steady = False
        self.load.notes.append(f"the rate was not steady after {self.settings.settle_s:g} s")

    def _chunk_noise(self, since: float) -> float:
        """Return the coefficient of variation of tokens per chunk: drafts are taken by chance."""
        arrivals = self.streams.arrivals
        low = len(arrivals.times) - arrivals.chunks_between(since, time.perf_counter())
        counts = list(arrivals.counts[low:])
        return st.cv(counts) if len(counts) > 1 else 0.0

    async def _measure(self) -> None:
        """Measure windows one after another, each from arrival to arrival."""
        settings, windows = self.settings, self.load.windows
        edge = await self._edge_after(time.perf_counter(), None)
        while edge is not None and len(windows) < settings.windows:
            start, reference = edge
            await self.watch.look()
            while (now := time.perf_counter()) < start + settings.window_s:
                share = (len(windows) + (now - start) / settings.window_s) / settings.windows
                rate = windows[-1].aggregate_tps if windows else None
                text = f"{rate:.1f} tok/s" if rate else "first window"
                self.told(f"window {len(windows) + 1} of {settings.windows}: {text}", share)
                await asyncio.sleep(min(0.25, max(0.001, start + settings.window_s - now)))
                if self.streams.broken.is_set():
                    return
            edge = await self._edge_after(start + settings.window_s, reference)
            if edge is None:
                self.load.notes.append("the requests ended before the window did")
                return
            await self.watch.look()
            self.load.close(self.streams.arrivals.span(start, edge[0]))
            rates = [window.aggregate_tps for window in judged_windows(windows)]
            if len(rates) >= settings.min_windows and self.decided(rates):
                break
        self.load.whole = bool(windows)

    async def _edge_after(self, time_: float, reference: int | None) -> tuple[float, int] | None:
        """Return the first arrival after a moment, of the reference stream while it lives."""
        arrivals = self.streams.arrivals
        limit = time.perf_counter() + min(self.client.limits.gap, 10.0)
        while time.perf_counter() < limit and not self.streams.broken.is_set():
            if reference is not None and reference in self.streams.decoding:
                at = arrivals.next_of(reference, time_)
                if at is not None:
                    return at, reference
            else:
                found = arrivals.reference_after(time_)
                if found is not None:
                    return found
            await asyncio.sleep(0.002)
        return None
