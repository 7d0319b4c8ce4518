"""Every token of a load with the time of its arrival, and what windows over it say.

A decode step of a batched engine reaches all streams in one burst. A window's edges therefore lie
on arrivals of one reference stream: between two of them lies a whole number of steps, so that the
rate is free of the edge error of half a burst.
"""

from __future__ import annotations

import bisect
import itertools
from array import array
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A stretch between two arrivals and what came in it: (start, end]."""

    start: float
    end: float
    tokens: int
    streams: int
    """Streams with at least one token inside."""
    tpots: tuple[float, ...]
    """Per stream: seconds per token from its first to its last arrival inside."""

    @property
    def seconds(self) -> float:
        """Length of the stretch."""
        return self.end - self.start

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.end > self.start else 0.0


class Arrivals:
    """Append-only log of (time, stream, tokens), in the order of arrival."""

    def __init__(self) -> None:
        self.times = array("d")
        self.streams = array("L")
        self.counts = array("L")
        self.total = 0

    def add(self, time: float, stream: int, tokens: int) -> None:
        """Note tokens of one stream; times must not fall."""
        self.times.append(time)
        self.streams.append(stream)
        self.counts.append(tokens)
        self.total += tokens

    def reference_after(self, time: float) -> tuple[float, int] | None:
        """Return time and stream of the first arrival at or after ``time``."""
        index = bisect.bisect_left(self.times, time)
        return (self.times[index], self.streams[index]) if index < len(self.times) else None

    def next_of(self, stream: int, time: float) -> float | None:
        """Return the first arrival of ``stream`` at or after ``time``."""
        for index in range(bisect.bisect_left(self.times, time), len(self.times)):
            if self.streams[index] == stream:
                return self.times[index]
        return None

    def span(self, start: float, end: float) -> Span:
        """Return what arrived in (start, end]."""
        low, high = bisect.bisect_right(self.times, start), bisect.bisect_right(self.times, end)
        tokens = 0
        first: dict[int, tuple[float, int]] = {}
        last: dict[int, float] = {}
        seen: dict[int, int] = {}
        for index in range(low, high):
            stream, count, time = self.streams[index], self.counts[index], self.times[index]
            tokens += count
            seen[stream] = seen.get(stream, 0) + count
            if stream not in first:
                first[stream] = (time, count)
            last[stream] = time
        tpots = tuple(
            (last[stream] - time) / (seen[stream] - count)
            for stream, (time, count) in first.items()
            if seen[stream] > count
        )
        return Span(start, end, tokens, len(first), tpots)

    def bins(self, start: float, end: float, width: float) -> list[float]:
        """Return tokens per second in whole bins of ``width`` that end at ``end``."""
        count = int((end - start) / width)
        edges = [end - width * (count - i) for i in range(count + 1)]
        places = [bisect.bisect_right(self.times, edge) for edge in edges]
        return [sum(self.counts[low:high]) / width for low, high in itertools.pairwise(places)]

    def chunks_between(self, start: float, end: float) -> int:
        """Return the number of chunks in (start, end]."""
        return bisect.bisect_right(self.times, end) - bisect.bisect_right(self.times, start)


STEADY_BINS = 6
"""Bins looked at: the last three against the three before."""


def is_steady(rates: list[float], tolerance: float) -> bool:
    """Whether the last six bins show no trend beyond ``tolerance`` and none is far off.

    The mean of the newer half may differ from the older by the tolerance, single bins by four
    times as much; a bin without tokens is never steady.
    """
    if len(rates) < STEADY_BINS:
        return False
    recent = rates[-STEADY_BINS:]
    centre = sum(recent) / STEADY_BINS
    if min(recent) <= 0:
        return False
    half = STEADY_BINS // 2
    old, new = sum(recent[:half]) / half, sum(recent[half:]) / half
    return abs(new - old) <= tolerance * centre and all(
        abs(rate - centre) <= 4 * tolerance * centre for rate in recent
    )
