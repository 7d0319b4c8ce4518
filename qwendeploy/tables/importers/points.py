"""What one load of a foreign benchmark measured, in our units, and how numbers are read.

The unit decides what a number means, not its key: "ITL" and "TPOT" change places between tools. A
number that is missing, not finite or of an unknown unit is refused with its place in the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qwendeploy.errors import DataError
from qwendeploy.tables.decode import RateBasis

_TO_MS = {
    "ms": 1.0,
    "millisecond": 1.0,
    "milliseconds": 1.0,
    "s": 1000.0,
    "sec": 1000.0,
    "second": 1000.0,
    "seconds": 1000.0,
    "us": 0.001,
    "microseconds": 0.001,
    "ns": 1e-6,
    "nanoseconds": 1e-6,
}
_TO_PER_SECOND = {
    unit: 1.0 for unit in ("tokens/s", "tokens/sec", "tokens/second", "tok/s", "tok/sec", "token/s")
}
LARGEST_COUNT = 1e15
SAME_RATE = 0.05
"""Most relative difference between a printed rate and tokens / duration of the same file; whole
runs agree to rounding, other windows do not."""
SAME_LATENCY = 0.35
"""Most relative difference between the printed mean end-to-end latency and TTFT + TPOT x (n - 1)
of mean values; a wrong unit is off by 1000."""


@dataclass(frozen=True, slots=True)
class Point:
    """One load: how many requests were in flight, how long they were, what came out.

    ``aggregate_tps`` output tokens/s over all requests, of a steady window or of the whole run
    (``rate_basis``), ``std_tps`` its spread within the load; ``tpot_ms`` time per output token
    after the first; ``concurrency`` ``None`` if the file does not state it; ``fault`` says why the
    load is no cell, for instance because requests arrived on a schedule; ``engine``,
    ``spec_method`` and ``kv_cache_dtype`` are set where the program itself decides them.
    """

    name: str
    concurrency: int | None
    context: int | None
    output_tokens: int | None
    aggregate_tps: float
    rate_basis: RateBasis
    completed: int
    failed: int = 0
    per_user_tps: float | None = None
    ttft_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_ms: float | None = None
    accept_rate: float | None = None
    acceptance_length: float | None = None
    kv_usage: float | None = None
    running: int | None = None
    std_tps: float | None = None
    contexts_shared: bool | None = None
    model: str | None = None
    engine: str | None = None
    spec_method: str | None = None
    kv_cache_dtype: str | None = None
    engine_version: str | None = None
    date: str | None = None
    note: str | None = None
    capacity_limited: bool = False
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object of a foreign file with its place, for numbers that are named when bad."""

    data: Mapping[str, Any]
    file: str
    place: str = ""

    def child(self, key: str) -> Fields:
        """Return the object under ``key``; an absent one is empty."""
        value = self.data.get(key)
        if value is None:
            return Fields({}, self.file, self._at(key))
        if not isinstance(value, Mapping):
            raise self.refusal(key, "is not an object")
        return Fields(value, self.file, self._at(key))

    def refusal(self, key: str, problem: str) -> DataError:
        """Return the error that names this file and the full path of ``key``."""
        return DataError(problem, file=self.file, key=self._at(key))

    def number(self, key: str) -> float:
        """Return a finite number that must be there."""
        value = self.maybe(key)
        if value is None:
            raise self.refusal(key, "is missing")
        return value

    def maybe(self, key: str) -> float | None:
        """Return a finite number, ``None`` if it is absent or null."""
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refusal(key, f"{value!r} is not a number")
        try:
            number = float(value)
        except OverflowError:
            raise self.refusal(key, "is larger than any measurement") from None
        if not math.isfinite(number):
            raise self.refusal(key, f"{value} is not a finite number")
        return number

    def above_zero(self, key: str) -> float:
        """Return a number that must be there and above 0."""
        value = self.number(key)
        if value <= 0:
            raise self.refusal(key, f"{value:g} is not above 0")
        return value

    def maybe_above_zero(self, key: str) -> float | None:
        """Return a number above 0, ``None`` if it is absent, null or 0 (not measured)."""
        value = self.maybe(key)
        if value is not None and value < 0:
            raise self.refusal(key, f"{value:g} is below 0")
        return value or None

    def count(self, key: str, default: int | None = None) -> int:
        """Return a whole number of at least 0."""
        value = self.maybe(key)
        if value is None:
            if default is None:
                raise self.refusal(key, "is missing")
            return default
        if value < 0 or value != int(value):
            raise self.refusal(key, f"{value:g} is not a count")
        if value > LARGEST_COUNT:
            raise self.refusal(key, "is larger than any measurement")
        return int(value)

    def text(self, key: str) -> str | None:
        """Return a text, ``None`` if there is none."""
        value = self.data.get(key)
        return value if isinstance(value, str) and value else None

    def milliseconds(self, key: str, unit: str) -> float | None:
        """Return a time in ms from a number in ``unit``."""
        value = self.maybe_above_zero(key)
        factor = _TO_MS.get(unit.lower())
        if factor is None:
            raise self.refusal(key, f"unit {unit!r} is no time")
        return None if value is None else value * factor

    def per_second(self, key: str, unit: str) -> float:
        """Return a token rate per second from a number in ``unit``."""
        factor = _TO_PER_SECOND.get(unit.lower())
        if factor is None:
            raise self.refusal(key, f"unit {unit!r} is no token rate")
        return self.above_zero(key) * factor

    def _at(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key


def each_load(
    entries: Sequence[Any], file: str, place: str, read: Callable[[Fields], Point | None]
) -> Iterator[Point | DataError]:
    """Yield what ``read`` makes of every load of a file, or why it refuses that one.

    ``place`` is where ``entries`` stands in the file; nulls, and loads that ``read`` has nothing
    to say of, are left out.
    """
    for index, entry in enumerate(entries):
        fields = Fields(entry, file, f"{place}[{index}]")
        try:
            if entry is not None and not isinstance(entry, dict):
                raise DataError("is not an object", file=file, key=fields.place)
            point = None if entry is None else read(fields)
        except DataError as problem:
            yield problem
        else:
            if point is not None:
                yield point


def check_requests(fields: Fields, completed: int, failed: int) -> None:
    """Refuse a load without a completed request or with failed ones."""
    if completed == 0:
        raise fields.refusal("completed", "no request completed: there is nothing to import")
    if failed:
        raise fields.refusal(
            "failed", f"{failed} of {completed + failed} requests failed: the rate is not a cell"
        )


def check_rate(fields: Fields, key: str, rate: float, tokens: float, seconds: float) -> None:
    """Refuse a rate that is not ``tokens`` over ``seconds``: units or windows are mixed."""
    if abs(rate * seconds / tokens - 1) > SAME_RATE:
        raise fields.refusal(
            key,
            f"{rate:g} tok/s over {seconds:g} s is not the {tokens:g} tokens of this file: "
            "mixed units or windows",
        )


def check_latency(
    fields: Fields,
    key: str,
    *,
    e2e_ms: float | None,
    ttft_ms: float | None,
    tpot_ms: float | None,
    tokens: float | None,
) -> None:
    """Refuse a mean end-to-end latency that its parts do not add up to: units are mixed."""
    if e2e_ms is None or ttft_ms is None or tpot_ms is None or tokens is None or tokens < 2:
        return
    parts = ttft_ms + tpot_ms * (tokens - 1)
    if abs(parts / e2e_ms - 1) > SAME_LATENCY:
        raise fields.refusal(
            key,
            f"{e2e_ms:g} ms end to end is not TTFT {ttft_ms:g} ms + TPOT {tpot_ms:g} ms x "
            f"{tokens - 1:g}: mixed units",
        )
