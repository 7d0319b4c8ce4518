"""A closed loop of streams: so many requests in flight, each replaced when it ends.

Starts are staggered, so that a burst of connections does not decide the first seconds. Failures
are counted and bounded: a server that fails every request ends the load instead of being hammered.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from qwendeploy.documents import RequestCounts
from qwendeploy.verification.loads.arrivals import Arrivals
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.records import Record

BACKOFF_S = 0.5
"""Pause of a stream after a failure."""


@dataclass(frozen=True)
class Turn:
    """One request of a stream: its body, and whether answers are kept."""

    body: dict[str, Any]
    keep: bool = False


class Streams:
    """``concurrency`` streams that take their requests from ``turn(stream, round)``."""

    def __init__(
        self,
        client: Client,
        concurrency: int,
        turn: Callable[[int, int], Turn | None],
        *,
        stagger: float = 0.01,
        max_failures: int | None = None,
    ) -> None:
        self._client = client
        self._turn = turn
        self._stagger = stagger
        self._max_failures = max_failures if max_failures is not None else max(4, concurrency)
        self._tasks: list[asyncio.Task[None]] = []
        self.concurrency = concurrency
        self.arrivals = Arrivals()
        self.records: list[Record] = []
        self.current: dict[int, Record] = {}
        self.decoding: set[int] = set()
        self.changes: list[float] = []
        """Times at which a stream began or stopped decoding."""
        self.ends: list[float] = []
        """Times at which a request of ours was over, however it ended."""
        self.failures = 0
        self.broken = asyncio.Event()
        """Set when the server fails too often to go on."""
        self.finished = asyncio.Event()
        """Set when no stream has anything left to do."""

    def state(self) -> tuple[int, int]:
        """Return the number of decoding streams and the tokens so far."""
        return len(self.decoding), self.arrivals.total

    def start(self) -> None:
        """Begin all streams."""
        self._tasks = [asyncio.create_task(self._run(index)) for index in range(self.concurrency)]

    async def _run(self, index: int) -> None:
        await asyncio.sleep(index * self._stagger)
        number = 0
        while not self.broken.is_set():
            turn = self._turn(index, number)
            if turn is None:
                break
            await self._one(index, turn)
            number += 1
        if all(task.done() or task is asyncio.current_task() for task in self._tasks):
            self.finished.set()

    async def _one(self, index: int, turn: Turn) -> None:
        record = Record(len(self.records))
        self.records.append(record)
        self.current[index] = record

        def arrival(now: float, tokens: int) -> None:
            if index not in self.decoding:
                self.decoding.add(index)
                self.changes.append(now)
            self.arrivals.add(now, index, tokens)

        try:
            await self._client.stream(turn.body, arrival=arrival, keep=turn.keep, record=record)
        finally:
            self.ends.append(time.perf_counter())
            if index in self.decoding:
                self.decoding.discard(index)
                self.changes.append(time.perf_counter())
        if record.failure is not None:
            self.failures += 1
            if self.failures >= self._max_failures:
                self.broken.set()
            await asyncio.sleep(BACKOFF_S)

    async def stop(self) -> None:
        """Cancel what still runs; the server sees the connections close."""
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def counts(self) -> RequestCounts:
        """Return how the requests ended."""
        return count_requests(self.records)

    def mean_context(self, at: float) -> float | None:
        """Return the mean context of the streams at a moment: prompt and output so far."""
        lengths = [
            record.prompt_tokens + _tokens_at(record, at)
            for record in self.records
            if record.prompt_tokens is not None
            and record.first_at is not None
            and record.first_at <= at
            and (record.ended_at is None or record.ended_at >= at)
        ]
        return sum(lengths) / len(lengths) if lengths else None


def _tokens_at(record: Record, at: float) -> int:
    import bisect

    index = bisect.bisect_right(record.chunk_times, at)
    return record.chunk_tokens[index - 1] if index else 0


def count_requests(records: Sequence[Record]) -> RequestCounts:
    """Return how requests ended, failures by kind with some messages."""
    failed = [record for record in records if record.failure is not None]
    kinds = Counter(
        f"status {record.status}" if record.failure == "status" else str(record.failure)
        for record in failed
    )
    messages = dict.fromkeys(f"{record.failure}: {record.message}" for record in failed)
    return RequestCounts(
        sent=len(records),
        succeeded=sum(record.ok for record in records),
        cancelled=sum(record.cancelled and record.failure is None for record in records),
        failed=len(failed),
        failures=dict(kinds),
        examples=tuple(list(messages)[:5]),
    )
