"""Lifecycle summaries of inference-perf: ``load_summary``, ``successes``, ``failures``.

All times are seconds. ``time_per_output_token`` is our TPOT, ``inter_token_latency`` are chunk gaps
and are not read. The file does not say how many requests were in flight unless the load was a
closed loop: the importer then needs ``--concurrency``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from qwendeploy.errors import DataError
from qwendeploy.tables.importers.points import Fields, Point, check_latency, check_requests

NAME = "inference-perf"
TITLE = "inference-perf summary"


def matches(documents: Sequence[Any]) -> bool:
    """Return whether this is a lifecycle summary of inference-perf."""
    first = documents[0]
    return isinstance(first, dict) and "load_summary" in first and "successes" in first


def read(documents: Sequence[Any], file: str) -> Iterator[Point]:
    """Return the point of the summary. Raises ``DataError`` naming the key of a bad value."""
    document = documents[0]
    if not isinstance(document["load_summary"], dict):
        raise DataError("is not an object", file=file, key="load_summary")
    fields = Fields(document, file)
    load, good = fields.child("load_summary"), fields.child("successes")
    completed = good.count("count")
    check_requests(fields, completed, fields.child("failures").count("count", 0))
    latency, rate = good.child("latency"), good.child("throughput")
    ttft = latency.child("time_to_first_token")
    mean_ttft = ttft.milliseconds("mean", "s")
    tpot = latency.child("time_per_output_token").milliseconds("mean", "s")
    output = _mean_length(good, "output_len", "output_tokens", completed)
    prompt = _mean_length(good, "prompt_len", "prompt_tokens", completed)
    check_latency(
        latency,
        "request_latency.mean",
        e2e_ms=latency.child("request_latency").milliseconds("mean", "s"),
        ttft_ms=mean_ttft,
        tpot_ms=tpot,
        tokens=output,
    )
    yield Point(
        name="summary",
        concurrency=load.count("concurrency", 0) or None,
        context=None if prompt is None else round(prompt),
        output_tokens=None if output is None else round(output),
        aggregate_tps=rate.above_zero("output_tokens_per_sec"),
        rate_basis="wall",
        completed=completed,
        per_user_tps=1000 / tpot if tpot else None,
        ttft_ms=mean_ttft,
        ttft_p99_ms=ttft.milliseconds("p99", "s"),
        tpot_ms=tpot,
        note=f"inference-perf, {completed} requests",
        fault=_open_loop(load),
    )


def _open_loop(load: Fields) -> str | None:
    """Return why no concurrency was held: the load was paced by a rate of requests."""
    rate = load.maybe("requested_rate")
    if rate is None or load.maybe("concurrency"):
        return None
    return f"open loop at {rate:g} requests/s: no concurrency was held"


def _mean_length(good: Fields, name: str, totals: str, completed: int) -> float | None:
    mean = good.child(name).maybe("mean")
    if mean is not None:
        return mean
    total = good.child(totals).maybe("total")
    return None if total is None else total / completed
