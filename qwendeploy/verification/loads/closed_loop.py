"""Whole requests in a closed loop: ``mixed`` (lengths in and out) and ``chat`` (growing turns).

Unlike the decode shape, prompts are part of the load: a request is sent when the one before it has
ended. What is reported is the plateau, from the moment every stream has finished one request to the
moment the load is stopped; requests that were still running then are in no latency.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from qwendeploy.documents import Step, Window
from qwendeploy.figures import Figure
from qwendeploy.verification import statistics as st
from qwendeploy.verification.loads.decode_figures import measured, server_differences
from qwendeploy.verification.loads.pauses import longest_pauses
from qwendeploy.verification.loads.streams import Streams, Turn
from qwendeploy.verification.loads.telemetry import Gpus
from qwendeploy.verification.loads.watch import Watch
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.records import Record
from qwendeploy.verification.wire.server import Surface

PLATEAU_WINDOWS = 5
LOOP_FIGURES = (
    "output_tps_end_to_end", "goodput_rps", "ttft_end_to_end_ms", "tpot_end_to_end_ms", "stall_ms",
)  # fmt: skip


@dataclass(frozen=True)
class LoopLimits:
    """Latency limits of a good request; ``None`` is no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def __bool__(self) -> bool:
        return any(v is not None for v in (self.ttft_ms, self.tpot_ms, self.e2e_ms))

    def met(self, record: Record) -> bool:
        """Whether a finished request is at or under every limit; one-token outputs have no TPOT."""
        values = (
            (self.ttft_ms, record.ttft),
            (self.tpot_ms, record.tpot),
            (self.e2e_ms, e2e(record)),
        )
        return all(limit is None or (v or 0.0) * 1e3 <= limit for limit, v in values)


@dataclass(frozen=True)
class LoopSettings:
    """A closed loop: lengths in tokens, spread relative to them, and how long."""

    shape: Literal["mixed", "chat"]
    concurrency: int
    isl: int
    osl: int
    spread: float = 0.0
    """Half width of a uniform distribution of both lengths, relative; 0 keeps them fixed."""
    cached: float = 0.0
    """Share of a prompt in the mixed shape that all requests have in common."""
    turns: int = 6
    """Turns of a conversation in the chat shape."""
    seconds: float = 120.0
    """Length of the plateau."""
    warm_up_s: float = 900.0
    """Longest wait for every stream's first request."""
    limits: LoopLimits = field(default_factory=LoopLimits)
    seed: str = "loop"


def e2e(record: Record) -> float | None:
    """Return seconds from sending to the last token."""
    return None if record.last_at is None else record.last_at - record.sent_at


def _by_batches(seconds: Sequence[float | None]) -> Figure | None:
    """Return the mean in ms with its interval over batches of requests in order.

    Requests of a closed loop hold each other up, so neighbours are not independent.
    """
    values = [value * 1e3 for value in seconds if value is not None]
    if len(values) < 2:
        return None
    batches = PLATEAU_WINDOWS if len(values) >= 2 * PLATEAU_WINDOWS else len(values)
    edges = [len(values) * i // batches for i in range(batches + 1)]
    means = [st.mean(values[low:high]) for low, high in itertools.pairwise(edges)]
    return measured(st.t_interval(means), "ms")


class ClosedLoop:
    """One closed loop in progress."""

    def __init__(
        self,
        client: Client,
        surface: Surface,
        settings: LoopSettings,
        *,
        gpus: Gpus,
        told: Callable[[str, float | None], None],
    ) -> None:
        self.client, self.surface, self.settings, self.told = client, surface, settings, told
        self.talks: dict[int, list[dict[str, Any]]] = {}
        self.turn_of: dict[int, int] = {}
        self.rounds: dict[int, int] = {}
        self.streams = Streams(
            client, settings.concurrency, self._turn, stagger=0.02, max_failures=None
        )
        self.watch = Watch(client, gpus, self.streams.state, metrics=surface.facts.metrics)
        self.begin = time.perf_counter()
        self.from_: float | None = None
        self.to: float | None = None
        self.whole = False
        """The plateau was as long as wanted, or ended by the server."""

    def _length(self, chooser: random.Random, length: int) -> int:
        spread = self.settings.spread
        return max(1, round(length * (1 + chooser.uniform(-spread, spread))))

    def _turn(self, stream: int, number: int) -> Turn:
        self.rounds[stream] = number
        chooser = random.Random(f"{self.settings.seed}-{stream}-{number}")
        inputs = self._length(chooser, self.settings.isl)
        output = self._length(chooser, self.settings.osl)
        room = self.surface.facts.max_model_len
        if self.settings.shape == "chat":
            messages = self._conversation(stream, number, inputs, output, room)
        else:
            text = self._prompt(stream, number, inputs)
            messages = [{"role": "user", "content": text}]
        body = self.surface.body(messages, output)
        return Turn(body, keep=self.settings.shape == "chat")

    def _prompt(self, stream: int, number: int, tokens: int) -> str:
        """Return a prompt of the mixed shape, with its part that others share."""
        make, seed = self.surface.prompts, self.settings.seed
        own, kind = f"{seed}-{stream}-{number}", make.kind_at(stream + number)
        return make.shared(tokens, self.settings.cached, f"{seed}-common", own, kind)

    def _conversation(
        self, stream: int, number: int, inputs: int, output: int, room: int | None
    ) -> list[dict[str, Any]]:
        """Return the next turn of a stream's conversation: what was said, and a new message."""
        last = self.streams.current.get(stream)
        talk = self.talks.get(stream)
        used = (last.prompt_tokens or 0) + last.tokens if last is not None else 0
        full = room is not None and used + inputs + output + 64 > room
        over = len(talk or ()) >= 2 * self.settings.turns - 1
        if talk is None or last is None or last.failure is not None or full or over:
            talk = []
        else:
            talk = [*talk, {"role": "assistant", "content": last.text or last.reasoning or "-"}]
        text = self.surface.prompts.text(inputs, f"{self.settings.seed}-{stream}-{number}")
        talk = [*talk, {"role": "user", "content": text}]
        self.talks[stream] = talk
        self.turn_of[len(self.streams.records)] = (len(talk) + 1) // 2
        return talk

    async def run(self) -> None:
        """Run until the plateau is over; ``step`` tells what it showed, also if it was cut."""
        try:
            await self.watch.look()
            self.streams.start()
            async with self.watch.sampling(self.watch.interval):
                await self._plateau()
        finally:
            await self.streams.stop()

    async def _plateau(self) -> None:
        settings = self.settings
        limit = time.perf_counter() + settings.warm_up_s
        while time.perf_counter() < limit and not self.streams.broken.is_set():
            ready = sum(number >= 1 for number in self.rounds.values())
            if ready >= settings.concurrency:
                break
            self.told(f"{settings.shape}: {ready} of {settings.concurrency} clients ready", None)
            await asyncio.sleep(0.05)
        else:
            return
        await self.watch.look()
        self.from_ = time.perf_counter()
        while (now := time.perf_counter()) < self.from_ + settings.seconds:
            if self.streams.broken.is_set():
                break
            self.to = now
            done = sum(record.ok for record in self.streams.records)
            share = (now - self.from_) / settings.seconds
            self.told(f"{settings.shape}: {done} requests done", share)
            await asyncio.sleep(min(0.25, max(0.005, self.from_ + settings.seconds - now)))
        self.to = time.perf_counter()
        self.whole = True
        await self.watch.look()

    def _inside(self) -> list[Record]:
        """Return the finished requests that ended in the plateau."""
        if self.from_ is None or self.to is None:
            return []
        return [
            record
            for record in self.streams.records
            if record.ok and record.last_at and self.from_ < record.last_at <= self.to
        ]

    def _windows(self) -> list[Window]:
        if self.from_ is None or self.to is None or self.to <= self.from_:
            return []
        factor = self._factor()
        size = (self.to - self.from_) / PLATEAU_WINDOWS
        windows = []
        for number in range(PLATEAU_WINDOWS):
            start = self.from_ + number * size
            span = self.streams.arrivals.span(start, start + size)
            windows.append(
                Window(
                    start_s=start - self.begin,
                    duration_s=size,
                    tokens=span.tokens * factor,
                    aggregate_tps=span.rate * factor,
                    tpot_ms=None,
                    running_low=span.streams,
                )
            )
        return windows

    def _factor(self) -> float:
        """Return tokens per counted unit, from the requests that finished."""
        if self.surface.facts.continuous_usage:
            return 1.0
        done = [r for r in self.streams.records if r.ok and r.output_tokens and r.chunk_times]
        chunks = sum(len(record.chunk_times) for record in done)
        return sum(r.output_tokens or 0 for r in done) / chunks if chunks else 1.0

    def step(self) -> Step:
        """Return the load as a document."""
        settings, inside, windows = self.settings, self._inside(), self._windows()
        figures, reasons = self._figures(inside, windows)
        prompts = [r.prompt_tokens for r in inside if r.prompt_tokens is not None]
        pair = self.watch.around(self.from_, self.to) if self.from_ and self.to else None
        server = server_differences(pair)
        hits, queries = server.get("prefix_hits"), server.get("prefix_queries")
        server["prefix_hit_rate"] = hits / queries if hits is not None and queries else None
        return Step(
            name=f"{settings.shape} c={settings.concurrency} {settings.isl} in {settings.osl} out",
            shape=settings.shape,
            concurrency=settings.concurrency,
            context=settings.isl + settings.osl,
            contexts="separate",
            status="failed" if not inside else "complete" if self.whole else "incomplete",
            duration_s=time.perf_counter() - self.begin,
            prompt_tokens=st.mean(prompts) if prompts else None,
            counted="continuous" if self.surface.facts.continuous_usage else "final",
            cv=st.cv([w.aggregate_tps for w in windows]) if windows else None,
            requests=self.streams.counts(),
            windows=tuple(windows),
            figures=figures,
            reasons=reasons,
            distributions=tuple(self._distributions(inside)),
            server=server,
            notes=tuple(self._notes(inside)),
        )

    def _notes(self, inside: list[Record]) -> Iterator[str]:
        """Yield why a plateau ended early or showed nothing."""
        if self.streams.broken.is_set():
            yield "too many requests failed; the load was stopped"
        elif not inside and self.from_ is None:
            yield f"not every client finished a request within {self.settings.warm_up_s:g} s"
        elif not inside:
            yield "no request finished during the measurement: increase --seconds"

    def _figures(
        self, inside: list[Record], windows: list[Window]
    ) -> tuple[dict[str, Figure | None], dict[str, str]]:
        figures: dict[str, Figure | None] = dict.fromkeys(LOOP_FIGURES)
        if not inside or self.from_ is None or self.to is None:
            counts = self.streams.counts()
            why = "; ".join(counts.examples) or "no request finished during the measurement"
            return figures, dict.fromkeys(figures, why)
        rates = [window.aggregate_tps for window in windows]
        figures["output_tps_end_to_end"] = measured(st.t_interval(rates), "tok/s")
        seconds = self.to - self.from_
        rate = measured(st.t_interval([len(inside) / seconds]), "requests/s")
        figures["requests_rps"] = rate
        figures["ttft_end_to_end_ms"] = _by_batches([r.ttft for r in inside])
        figures["tpot_end_to_end_ms"] = _by_batches([r.tpot for r in inside])
        pauses = self._pauses(inside)
        figures["stall_ms"] = _by_batches(pauses)
        reasons = {
            name: "too few requests finished" for name in LOOP_FIGURES[2:] if figures[name] is None
        }
        if not pauses:
            reasons["stall_ms"] = "no request decoded while another's prompt was processed"
        if self.settings.limits:
            good = sum(self.settings.limits.met(record) for record in inside)
            figures["goodput_rps"] = measured(st.t_interval([good / seconds]), "requests/s")
        else:
            reasons["goodput_rps"] = "no latency limit is set"
        return figures, reasons

    def _pauses(self, inside: list[Record]) -> list[float]:
        """Return the longest gap of the other streams for each prompt that met any."""
        prompts = [(r.sent_at, r.first_at) for r in inside if r.first_at is not None]
        pauses = longest_pauses(prompts, [record.chunk_times for record in self.streams.records])
        return [pause for pause in pauses if pause is not None]

    def _distributions(self, inside: list[Record]) -> list[Any]:
        found = [
            st.distribution("ttft_in_load", "ms", [r.ttft * 1e3 for r in inside if r.ttft]),
            st.distribution("tpot_in_load", "ms", [r.tpot * 1e3 for r in inside if r.tpot]),
            st.distribution("e2e", "ms", [t * 1e3 for r in inside if (t := e2e(r))]),
        ]
        if self.settings.shape == "chat":
            for name, first in (("ttft_first_turn", True), ("ttft_later_turns", False)):
                times = [
                    record.ttft * 1e3
                    for record in inside
                    if record.ttft and (self.turn_of.get(record.number, 1) == 1) is first
                ]
                found.append(st.distribution(name, "ms", times))
        return [one for one in found if one is not None]
