"""``verify --self-test``: what the client adds to every time it reports, on this host, now.

A reference server in a process of its own streams on a fixed schedule and logs when it really
sent; the difference is the client's error, with connecting and parsing in it. The ceiling is the
highest concurrency at which rate and TPOT stay within 1 %.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from qwendeploy.verification import statistics as st
from qwendeploy.verification.loads.watch import Lateness
from qwendeploy.verification.verifying import loop_factory
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.records import Record
from qwendeploy.verification.wire.target import Target

LADDER = (1, 8, 32, 64, 128, 256)
TTFT_MS, STEP_MS, TOKENS = 100.0, 20.0, 100
"""A stream of two seconds at 50 chunks a second, near what one user of a fast server sees."""
ALLOWED = 0.01


@dataclass(frozen=True)
class Rung:
    """The client's own error at one concurrency."""

    concurrency: int
    ttft_error_ms: float
    tpot_error: float
    """Relative."""
    rate_error: float
    """Relative, of tokens per second over all streams."""
    cpu_share: float
    lag_p99_ms: float
    failed: int

    @property
    def within(self) -> bool:
        """Rate and time per token are right within 1 %."""
        return not self.failed and max(abs(self.tpot_error), abs(self.rate_error)) <= ALLOWED


@dataclass(frozen=True)
class SelfTest:
    """All rungs, and the highest concurrency that is measured right."""

    rungs: tuple[Rung, ...]
    load_average: float
    loop: str

    @property
    def ceiling(self) -> int | None:
        """Highest concurrency up to which every rung is within 1 %; ``None`` if none is."""
        ceiling = None
        for rung in self.rungs:
            if not rung.within:
                break
            ceiling = rung.concurrency
        return ceiling


def self_test(ladder: Sequence[int] = LADDER) -> SelfTest:
    """Return the client's error at each concurrency of the ladder."""
    factory = loop_factory()
    rungs = []
    for concurrency in ladder:
        with asyncio.Runner(loop_factory=factory) as runner:
            rungs.append(runner.run(_rung(concurrency)))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return SelfTest(tuple(rungs), load, "uvloop" if factory else "asyncio")


async def _rung(concurrency: int) -> Rung:
    server = subprocess.Popen(
        [sys.executable, "-m", "qwendeploy.verification.reference_server",
         str(TTFT_MS), str(STEP_MS), str(TOKENS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert server.stdout is not None and server.stdin is not None
    try:
        port = int(server.stdout.readline())
        records, lateness = await _load(port, concurrency)
        server.stdout.readline()  # the warm-up's
        truth = [json.loads(server.stdout.readline()) for record in records if record.ok]
    finally:
        server.stdin.close()
        server.wait()
        server.stdout.close()
    return _judge(records, truth, lateness)


async def _load(port: int, concurrency: int) -> tuple[list[Record], Lateness]:
    body = {"model": "reference", "max_tokens": TOKENS, "stream": True, "messages": []}
    async with Client(Target(f"http://127.0.0.1:{port}")) as client:
        await client.stream(dict(body))  # imports and name look-up are paid once a process
        lateness = Lateness()
        watching = asyncio.create_task(lateness.run())

        async def one(index: int) -> Record:
            await asyncio.sleep(index * STEP_MS / 1e3 / concurrency)
            return await client.stream(dict(body))

        records = await asyncio.gather(*(one(index) for index in range(concurrency)))
        watching.cancel()
    return list(records), lateness


def _judge(records: list[Record], truth: list[dict[str, float]], lateness: Lateness) -> Rung:
    facts = lateness.facts("", proxy=False)
    done = [record for record in records if record.ok]
    failed = len(records) - len(done)
    if not done:
        return Rung(len(records), 0.0, 0.0, 0.0, facts.cpu_share or 0.0, 0.0, failed)
    ttft = st.mean([record.ttft or 0.0 for record in done])
    true_ttft = st.mean([row["first"] - row["arrived"] for row in truth])
    tpot = st.mean([record.tpot or 0.0 for record in done])
    true_tpot = st.mean([(row["last"] - row["first"]) / (TOKENS - 1) for row in truth])
    tokens = sum(record.tokens for record in done)
    span = max(r.last_at or 0.0 for r in done) - min(r.first_at or 0.0 for r in done)
    true_span = max(row["last"] for row in truth) - min(row["first"] for row in truth)
    return Rung(
        concurrency=len(records),
        ttft_error_ms=(ttft - true_ttft) * 1e3,
        tpot_error=tpot / true_tpot - 1,
        rate_error=(tokens / span) / (TOKENS * len(truth) / true_span) - 1,
        cpu_share=facts.cpu_share or 0.0,
        lag_p99_ms=facts.lag_p99_ms or 0.0,
        failed=failed,
    )
