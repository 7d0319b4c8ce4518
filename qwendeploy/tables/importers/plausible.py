"""What no server can have measured: the last look at a load before it becomes a row.

A value beside the others by a factor of a thousand is a wrong unit, whatever its key says; a load
whose numbers exclude each other is refused with the number that is out.
"""

from __future__ import annotations

from qwendeploy.errors import DataError
from qwendeploy.tables.importers.points import Point

MOST_REQUESTS = 65536
"""In flight on one server: far above the largest ``--max-num-seqs`` that anybody runs."""
LONGEST = 1_048_576
"""Tokens of a request; the model's positions end at 262,144, stretched ones at four times that."""
TTFT_MS = (1.0, 86_400_000.0)
"""A step of this model reads at least 8 GB, so the first token takes longer than the low end; the
high end is a day."""
TPOT_MS = (0.2, 600_000.0)
FASTEST_TPS = 1_000_000.0
PER_USER = 1.5
"""Most that the rate over all may be above concurrency x that of one: means of ratios differ."""
STEADY = 0.1
"""Least that it may be of that in a steady window, in which no prompt is prefilled."""
IN_FLIGHT = (0.02, 1.5)
"""Requests in flight by Little's law (rate x time of a request / tokens) over those stated: ramps
lower the former, rounding lifts it; a wrong unit is off by 1000."""
LARGEST = 1e300
"""Whole numbers of a document may be larger than a float; they are not printed."""
OWN_PACE = 20.0
"""Most that the rate of one user and 1/TPOT may differ: one may count the prompt, the other not."""


def implausible(point: Point, file: str) -> DataError | None:
    """Return why a load cannot have been measured, ``None`` if it can."""
    problem = _out_of_range(point) or _contradiction(point)
    if problem is None:
        return None
    key, what = problem
    place = "" if point.name in ("summary", "result") else f"{point.name}: "
    return DataError(what, file=file, key=f"{place}{key}")


def _out_of_range(point: Point) -> tuple[str, str] | None:
    for key, value, low, high in (
        ("concurrency", point.concurrency, 1, MOST_REQUESTS),
        ("prompt tokens", point.context, 0, LONGEST),
        ("output tokens", point.output_tokens, 1, LONGEST),
        ("output tokens/s", point.aggregate_tps, 0.01, FASTEST_TPS),
        ("tokens/s of one user", point.per_user_tps, 0.001, FASTEST_TPS),
        ("TTFT in ms", point.ttft_ms, *TTFT_MS),
        ("TTFT p99 in ms", point.ttft_p99_ms, *TTFT_MS),
        ("TPOT in ms", point.tpot_ms, *TPOT_MS),
        ("acceptance", point.accept_rate, 0, 1),
    ):
        if value is not None and not low <= value <= high:
            return (
                key,
                f"{_short(value)} is outside {low:g} to {high:g}: wrong unit or no measurement",
            )
    return None


def _contradiction(point: Point) -> tuple[str, str] | None:
    c, mean, late = point.concurrency, point.ttft_ms, point.ttft_p99_ms
    if mean and late and not mean / 2 <= late <= 100 * mean:
        # at least one request in a hundred waits the p99, so the mean is a hundredth of it or more
        return "TTFT p99 in ms", f"{late:g} does not go with a mean of {mean:g}: mixed units"
    user, pace = point.per_user_tps, point.tpot_ms
    if user and pace and not 1 / OWN_PACE <= user * pace / 1000 <= OWN_PACE:
        return (
            "tokens/s of one user",
            f"{user:g} does not go with a TPOT of {pace:g} ms: mixed units",
        )
    if c and user and point.aggregate_tps > PER_USER * c * user:
        return "output tokens/s", f"{point.aggregate_tps:g} is more than {c} users at {user:g}"
    whole = point.rate_basis == "steady" and not point.capacity_limited and point.fault is None
    if c and user and whole and point.aggregate_tps < STEADY * c * user:
        return "output tokens/s", f"{point.aggregate_tps:g} is far below {c} users at {user:g}"
    if c and mean and pace and point.output_tokens and point.fault is None:
        seconds = (mean + pace * (point.output_tokens - 1)) / 1000
        share = point.aggregate_tps * seconds / point.output_tokens / c
        if not IN_FLIGHT[0] <= share <= IN_FLIGHT[1]:
            return "output tokens/s", (
                f"{point.aggregate_tps:g} with {seconds:g} s a request means {share * c:.3g} "
                f"requests in flight, not {c}: mixed units"
            )
    return None


def _short(value: float) -> str:
    return f"{value:g}" if abs(value) < LARGEST else f"a number above {LARGEST:g}"
