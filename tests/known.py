"""Starts the server of known timing for a test and reads its log; refuses vacuous truth."""

from __future__ import annotations

import bisect
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVER = Path(__file__).parent / "known_server.py"


@dataclass(frozen=True)
class Known:
    """A running server: address, process, log."""

    url: str
    port: int
    process: subprocess.Popen[str]
    log: Path

    def entries(self, at_least: int = 1, patience: float = 15.0) -> list[dict[str, Any]]:
        """Return the log's requests, once there are ``at_least`` of them."""
        end = time.monotonic() + patience
        while True:
            text = self.log.read_text() if self.log.exists() else ""
            rows = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
            if len(rows) >= at_least:
                return rows
            assert time.monotonic() < end, f"{len(rows)} of {at_least} requests in the log"
            time.sleep(0.05)

    def sent(self, at_least: int = 1) -> list[tuple[float, int]]:
        """Return (time, tokens) of every chunk that the server wrote, in order of time."""
        rows = self.entries(at_least)
        return sorted((t, n) for row in rows for t, n in row["sent"])


def tokens_between(sent: list[tuple[float, int]], start: float, end: float) -> int:
    """Return the tokens that the server wrote in (start, end]."""
    times = [t for t, _ in sent]
    low, high = bisect.bisect_right(times, start), bisect.bisect_right(times, end)
    return sum(n for _, n in sent[low:high])


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def known_server(tmp_path: Path, *settings: str) -> Iterator[Known]:
    """Run the server until the block ends."""
    log = tmp_path / f"server-{time.monotonic_ns()}.jsonl"
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(SERVER), "--port", str(port), "--log", str(log), *settings],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("serving"), line
        scheme = "https" if "--certificate" in settings else "http"
        yield Known(f"{scheme}://127.0.0.1:{port}", port, process, log)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
