"""The fill check: what the plan says fits is really put in, all at once and at full length.

A server that starts with a length has not shown that it holds it. ``concurrency`` distinct
contexts, each ending at the plan's longest typical context, must all run with nothing waiting or
preempted, hold the blocks that the arithmetic says, and one request must reach the full length.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qwendeploy.documents import Fill, FillCheck, Outcome, Step
from qwendeploy.figures import Figure, Kind, exact
from qwendeploy.verification import statistics as st
from qwendeploy.verification.loads.decode_figures import server_differences
from qwendeploy.verification.loads.prompts import PromptMaker
from qwendeploy.verification.loads.streams import Streams, Turn, count_requests
from qwendeploy.verification.loads.telemetry import Gpus
from qwendeploy.verification.loads.watch import Sample, Watch
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.records import Record
from qwendeploy.verification.wire.server import Surface

BlocksHeld = Callable[[Sequence[int]], tuple[float, float] | None]
"""From the contexts of running requests to the fewest and most blocks they hold together."""

FULL_OUTPUT = 48
"""Output tokens of the full-length request."""
PROMPT_TRIES = 3
"""Times that a prompt which the server counts longer than we did is made shorter."""
SHORTER = 0.985
COUNT_MARGIN = 0.004
"""Prompts are made to a length by a calibrated ratio; this is the margin below a hard limit."""


@dataclass(frozen=True)
class FillSettings:
    """What is to be filled."""

    concurrency: int
    context: int
    """Tokens that each context may have at its end."""
    full_length: int | None
    step_tokens: int = 8192
    """Prompt tokens of one scheduler step: while others prefill, a stream decodes one step each."""
    tokens_per_step: float = 1.0
    user_tps: float = 50.0
    hold_s: float = 5.0
    patience_s: float = 60.0
    kind: Kind = Kind.ESTIMATED
    seed: str = "fill"

    @property
    def growth(self) -> int:
        """Tokens that the first stream may generate until the check is over.

        Chunked prefill lets running streams decode one step per scheduler step of prompt tokens.
        """
        steps = self.concurrency * self.context / self.step_tokens
        seconds = self.hold_s + 5.0
        wanted = 1.5 * steps * self.tokens_per_step + seconds * self.user_tps + 64
        return int(min(wanted, self.context / 2))


class FillRun:
    """The check in progress."""

    def __init__(
        self,
        client: Client,
        surface: Surface,
        settings: FillSettings,
        *,
        gpus: Gpus,
        told: Callable[[str, float | None], None],
        blocks_held: BlocksHeld,
    ) -> None:
        self.client, self.surface, self.settings = client, surface, settings
        self.told, self.blocks_held = told, blocks_held
        growth = settings.growth
        self.output = max(1, growth)
        margin = max(8, int(settings.context * COUNT_MARGIN))
        self.prompt = max(16, settings.context - growth - margin)
        self.scale = dict.fromkeys(range(settings.concurrency), 1.0)
        self.streams = Streams(
            client,
            settings.concurrency,
            self._turn,
            stagger=0.02,
            max_failures=PROMPT_TRIES * max(4, settings.concurrency),
        )
        self.watch = Watch(
            client, gpus, self.streams.state, interval=0.5, metrics=surface.facts.metrics
        )
        self.begin = time.perf_counter()
        self.held_from: float | None = None
        self.held_to: float | None = None

    def _turn(self, stream: int, number: int) -> Turn | None:
        """Return a stream's one request; a prompt refused as too long is sent again, shorter."""
        if number > 0:
            if number >= PROMPT_TRIES or self.streams.current[stream].status != 400:
                return None
            self.scale[stream] *= SHORTER
        message = {"role": "user", "content": self._text(stream)}
        return Turn(self.surface.body([message], self.output))

    async def run(self) -> tuple[Fill, list[Step]]:
        """Return the verdict on the fill and the steps behind it."""
        try:
            self.streams.start()
            async with self.watch.sampling():
                await self._wait_for_all()
                if len(self.streams.decoding) == self.settings.concurrency:
                    self.held_from = time.perf_counter()
                    await self._hold()
                    self.held_to = time.perf_counter()
        finally:
            await self.streams.stop()
        steps = [self._step()]
        checks, held, predicted = self._judge()
        full: Record | None = None
        if self.settings.full_length is not None:
            await self._drained()
            full = await self._full_length(self.settings.full_length)
            checks.append(_full_check(full, self.settings.full_length))
            steps.append(_full_step(full, self.settings.full_length))
        running, waiting, preempted = self._seen()
        return (
            Fill(
                tested=True,
                outcome=_together(checks),
                concurrency=self.settings.concurrency,
                context=self.settings.context,
                running=running,
                waiting=waiting,
                preemptions=preempted,
                blocks_held=held,
                blocks_predicted=predicted,
                full_length_tokens=_reached(full),
                checks=tuple(checks),
            ),
            steps,
        )

    async def _wait_for_all(self) -> None:
        count = self.settings.concurrency
        last, seen = time.perf_counter(), 0
        while seen < count and not self.streams.broken.is_set():
            await asyncio.sleep(0.05)
            now = time.perf_counter()
            running = len(self.streams.decoding)
            if running > seen:
                last, seen = now, running
            self.told(f"fill: {running} of {count} contexts run", running / count)
            patience = self.settings.patience_s if seen else self.client.limits.first
            if now - last > patience or self.streams.finished.is_set():
                return

    async def _hold(self) -> None:
        end = time.perf_counter() + self.settings.hold_s
        await self.watch.look()
        while time.perf_counter() < end:
            await asyncio.sleep(0.1)
            if len(self.streams.decoding) < self.settings.concurrency:
                return
        await self.watch.look()

    async def _drained(self) -> None:
        """Wait until the server has let go of the cancelled streams."""
        for _ in range(50):
            sample = await self.watch.look()
            if sample.metrics is None or not sample.metrics.get("running"):
                return
            await asyncio.sleep(0.2)

    async def _full_length(self, length: int) -> Record:
        """Send one request that ends at the full length; a prompt counted too long is shortened."""
        output = min(FULL_OUTPUT, max(1, length // 4))
        wanted = length - output - max(8, int(length * COUNT_MARGIN))
        prompts = self._calibrated()
        record = Record(0)
        for attempt in range(PROMPT_TRIES):
            self.told(f"fill: one request at {length} tokens", None)
            text = prompts.text(wanted, f"{self.settings.seed}-full-{attempt}")
            body = self.surface.body([{"role": "user", "content": text}], output)
            record = await self.client.ask(body)
            if record.status != 400:
                break
            wanted = int(wanted * SHORTER)
        return record

    def _calibrated(self) -> PromptMaker:
        """Return the prompt maker corrected by the filled contexts, the longest texts so far."""
        prompts = self.surface.prompts
        for kind in prompts.kinds:
            characters = tokens = 0
            for stream, record in self.streams.current.items():
                if record.prompt_tokens is None or prompts.kind_of(self._seed(stream)) != kind:
                    continue
                characters += len(self._text(stream))
                tokens += record.prompt_tokens - int(prompts.overhead)
            if characters:
                prompts = prompts.calibrated(kind, characters, tokens + int(prompts.overhead))
        return prompts

    def _seed(self, stream: int) -> str:
        return f"{self.settings.seed}-{stream}"

    def _text(self, stream: int) -> str:
        tokens = int(self.prompt * self.scale[stream])
        return self.surface.prompts.text(tokens, self._seed(stream))

    def _held_samples(self) -> list[Sample]:
        if self.held_from is None or self.held_to is None:
            return []
        return self.watch.between(self.held_from, self.held_to)

    def _seen(self) -> tuple[float | None, float | None, float | None]:
        """Return fewest running, most waiting and the preemptions while all were held."""
        samples = self._held_samples() or self.watch.samples[-5:]
        offered = [s.metrics for s in samples if s.metrics is not None]
        running = [v for m in offered if (v := m.get("running")) is not None]
        waiting = [v for m in offered if (v := m.get("waiting")) is not None]
        end = self.held_to or time.perf_counter()
        pair = self.watch.around(self.begin, end)
        return (
            min(running) if running else None,
            max(waiting) if waiting else None,
            pair[1].since(pair[0], "preemptions") if pair else None,
        )

    def _judge(self) -> tuple[list[FillCheck], Figure | None, Figure | None]:
        settings = self.settings
        count = settings.concurrency
        running, waiting, preempted = self._seen()
        most = max((s.streams for s in self.watch.samples), default=0)
        # A prompt that was sent again shorter has not failed: the miscount was ours.
        counts = count_requests(list(self.streams.current.values()))
        checks: list[FillCheck] = []
        if counts.failed:
            text = f"{counts.failed} of {count} requests failed: {'; '.join(counts.examples)}"
            checks.append(FillCheck(id="requests", outcome="refuted", text=text))
        if self.held_from is None:
            ended = self.streams.finished.is_set() or counts.succeeded > 0
            text = f"at most {most} of {count} contexts of {settings.context} tokens ran at once"
            if ended:
                text += "; the first ended before the last started"
            outcome: Outcome = "inconclusive" if ended and not counts.failed else "refuted"
            checks.append(FillCheck(id="running", outcome=outcome, text=text))
        else:
            ran = count if running is None else running
            seen = "(server metrics)" if running is not None else "(client only)"
            checks.append(
                FillCheck(
                    id="running",
                    outcome="confirmed" if ran >= count else "refuted",
                    text=f"{ran:g} of {count} contexts of {settings.context} tokens ran {seen}",
                )
            )
        checks.append(_zero("waiting", waiting, "requests waited"))
        checks.append(_zero("preemptions", preempted, "requests were preempted"))
        check, held, predicted = self._blocks()
        checks.append(check)
        return checks, held, predicted

    def _blocks(self) -> tuple[FillCheck, Figure | None, Figure | None]:
        """Compare the blocks in use with the arithmetic at the contexts of that moment."""
        total = self.surface.facts.kv_pool_blocks
        best: tuple[float, float, tuple[float, float]] | None = None
        for sample in self._held_samples():
            usage = sample.metrics.get("kv_usage") if sample.metrics else None
            if usage is None or total is None:
                continue
            wanted = self.blocks_held(self._contexts(sample.at))
            if wanted is None:
                break
            engines = sample.metrics.engines if sample.metrics else 1
            held = usage * (total - 1) * engines
            off = max(wanted[0] - held, held - wanted[1], 0.0)
            if best is None or off < best[0]:
                best = (off, held, wanted)
        if best is None:
            text = "the server does not report its KV pool size or usage"
            if self.held_from is None:
                text = "not all contexts ran at once"
            elif self.blocks_held([1]) is None:
                text = "the cache layout of this option is unknown"
            return FillCheck(id="blocks", outcome="inconclusive", text=text), None, None
        off, held, (low, high) = best
        figure = exact(
            round(held, 1), "blocks", kind=Kind.MEASURED_HERE, source="kv_cache_usage_perc", n=1
        )
        predicted = Figure(
            value=(low + high) / 2,
            unit="blocks",
            low=low,
            high=high,
            kind=self.settings.kind,
            source="block arithmetic for the contexts at that time",
        )
        text = f"{held:.0f} blocks in use, {low:.0f} to {high:.0f} predicted"
        # Usage is printed with limited digits and streams move on between count and scrape.
        fits = off <= max(1.0, 0.01 * held)
        outcome: Outcome = "confirmed" if fits else "refuted"
        return FillCheck(id="blocks", outcome=outcome, text=text), figure, predicted

    def _contexts(self, at: float) -> list[int]:
        contexts = []
        for record in self.streams.records:
            if record.prompt_tokens is None:
                continue
            done = [
                n for t, n in zip(record.chunk_times, record.chunk_tokens, strict=True) if t <= at
            ]
            contexts.append(record.prompt_tokens + (done[-1] if done else 0))
        return contexts

    def _step(self) -> Step:
        prompts = [r.prompt_tokens for r in self.streams.records if r.prompt_tokens is not None]
        ttfts = [r.ttft * 1e3 for r in self.streams.records if r.ttft is not None]
        spread = st.distribution("ttft_all_at_once", "ms", ttfts)
        return Step(
            name=f"fill c={self.settings.concurrency} context={self.settings.context}",
            shape="fill",
            concurrency=self.settings.concurrency,
            context=self.settings.context,
            contexts="separate",
            status="complete" if self.held_from is not None else "failed",
            duration_s=time.perf_counter() - self.begin,
            prompt_tokens=st.mean(prompts) if prompts else None,
            requests=self.streams.counts(),
            distributions=(spread,) if spread else (),
            server=server_differences(self.watch.around(self.begin, time.perf_counter())),
        )


def _zero(name: str, value: float | None, text: str) -> FillCheck:
    if value is None:
        return FillCheck(id=name, outcome="inconclusive", text="not reported by the server")
    outcome: Outcome = "confirmed" if value == 0 else "refuted"
    return FillCheck(id=name, outcome=outcome, text=f"{value:g} {text}")


def _reached(record: Record | None) -> int | None:
    if record is None or record.failure or record.prompt_tokens is None:
        return None
    return record.prompt_tokens + record.tokens


def _full_check(record: Record, length: int) -> FillCheck:
    reached = _reached(record)
    if reached is None:
        text = f"a request of {length} tokens failed: {record.message or record.failure}"
        return FillCheck(id="full_length", outcome="refuted", text=text)
    near = reached >= length * 0.97
    text = f"one request reached {reached} of {length} tokens"
    return FillCheck(id="full_length", outcome="confirmed" if near else "inconclusive", text=text)


def _full_step(record: Record, length: int) -> Step:
    spread = st.distribution("ttft_full_length", "ms", [record.ttft * 1e3] if record.ttft else [])
    return Step(
        name=f"full length {length}",
        shape="full_length",
        concurrency=1,
        context=length,
        contexts="separate",
        status="failed" if record.failure else "complete",
        duration_s=(record.ended_at or record.sent_at) - record.sent_at,
        prompt_tokens=record.prompt_tokens,
        requests=count_requests([record]),
        distributions=(spread,) if spread else (),
    )


def _together(checks: Sequence[FillCheck]) -> Outcome:
    """Return refuted if any is, inconclusive if any of the decisive ones is, else confirmed.

    A server that tells nothing of waiting or blocks can still confirm by running everything.
    """
    if any(check.outcome == "refuted" for check in checks):
        return "refuted"
    decisive = [check for check in checks if check.id in ("running", "full_length", "requests")]
    if any(check.outcome == "inconclusive" for check in decisive):
        return "inconclusive"
    return "confirmed"
