"""Waiting when the server asks for it: ``Retry-After`` of a refusal, within bounds and told.

A refusal stays a failed request. What is respected is the next one: no request of the client is
sent before the moment that the server named, as long as it names a reasonable one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

REFUSALS = (429, 503)
"""Answers with which a server may say when to come back (RFC 9110 §10.2.3, RFC 6585 §4)."""
LONGEST_S, IN_ALL_S = 30.0, 120.0
"""Longest single wait and all waits of a run together: a server that asks for more is not one that
can be measured now, and its refusals are counted as such."""


def retry_after(status: int, headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a refused client may come back, ``None`` if not told.

    A date counts from the server's own clock where it tells that.
    """
    text = headers.get("Retry-After", "").strip()
    if status not in REFUSALS or not text:
        return None
    if text.replace(".", "", 1).isascii() and text.replace(".", "", 1).isdigit():
        return float(text)
    then, now = _date(text), _date(headers.get("Date", "")) or datetime.now(UTC)
    return None if then is None else max(0.0, (then - now).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


class BackingOff:
    """When the client may send again, and what waiting cost."""

    def __init__(self) -> None:
        self.until = 0.0
        self.asked = 0
        """Refusals that named a time."""
        self.longest_asked_s = 0.0
        self.waited_s = 0.0
        """Seconds that the client held its requests back, overlapping ones counted once."""

    def told(self, seconds: float) -> None:
        """Take what a refusal asks for, bounded by what is left of the run's patience."""
        now = time.monotonic()
        self.asked += 1
        self.longest_asked_s = max(self.longest_asked_s, seconds)
        begin = max(self.until, now)
        end = now + min(seconds, LONGEST_S)
        more = min(end - begin, IN_ALL_S - self.waited_s)
        if more > 0:
            self.waited_s += more
            self.until = begin + more

    async def wait(self) -> None:
        """Return when a request may be sent."""
        while (left := self.until - time.monotonic()) > 0:
            await asyncio.sleep(left)

    def __str__(self) -> str:
        times = "once" if self.asked == 1 else f"{self.asked} times"
        return (
            f"the server sent Retry-After {times} (at most"
            f" {self.longest_asked_s:g} s); the client waited {self.waited_s:.1f} s"
        )
