"""Reports of guidellm: ``benchmarks`` with metrics split into successful, errored, incomplete.

Its ``inter_token_latency_ms`` is our TPOT; its ``time_per_output_token_ms`` includes the first
token and is not read. ``request_latency`` is in seconds beside milliseconds for the rest. Only
``successful`` is read; requests that the time limit cut off (incomplete) are normal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from qwendeploy.errors import DataError
from qwendeploy.tables.importers.points import (
    Fields,
    Point,
    check_latency,
    check_requests,
    each_load,
)

NAME = "guidellm"
TITLE = "guidellm report"


def matches(documents: Sequence[Any]) -> bool:
    """Return whether this is a guidellm report."""
    first = documents[0]
    return (
        isinstance(first, dict)
        and isinstance(first.get("benchmarks"), list)
        and any(
            isinstance(entry, dict) and isinstance(entry.get("metrics"), dict)
            for entry in first["benchmarks"]
        )
    )


def read(documents: Sequence[Any], file: str) -> Iterator[Point | DataError]:
    """Return one point per benchmark, or the error that names the key of its bad value."""
    document = documents[0]
    version = Fields(document, file).child("metadata").data.get("version")
    if version not in (None, 1, 2, "1", "2"):
        raise DataError(
            f"report version {version!r} is not known; 1 and 2 are",
            file=file,
            key="metadata.version",
        )
    read_load = partial(_point, document=document)
    return each_load(document["benchmarks"], file, "benchmarks", read_load)


def _point(fields: Fields, document: Mapping[str, Any]) -> Point:
    metrics = fields.child("metrics")
    completed, failed = _requests(fields, metrics)
    check_requests(fields, completed, failed)
    ttft = _successful(metrics, "time_to_first_token_ms")
    tpot = _successful(metrics, "inter_token_latency_ms").milliseconds("mean", "ms")
    prompt = _successful(metrics, "prompt_token_count").maybe("mean")
    output = _successful(metrics, "output_token_count").maybe("mean")
    mean_ttft = ttft.milliseconds("mean", "ms")
    latency = _successful(metrics, "request_latency")
    check_latency(
        latency,
        "mean",
        e2e_ms=latency.milliseconds("mean", "s"),
        ttft_ms=mean_ttft,
        tpot_ms=tpot,
        tokens=output,
    )
    streams, fault = _streams(fields)
    return Point(
        name=fields.place,
        concurrency=streams,
        context=None if prompt is None else round(prompt),
        output_tokens=None if output is None else round(output),
        aggregate_tps=_successful(metrics, "output_tokens_per_second").above_zero("mean"),
        rate_basis="wall",
        completed=completed,
        per_user_tps=1000 / tpot if tpot else None,
        ttft_ms=mean_ttft,
        ttft_p99_ms=ttft.child("percentiles").milliseconds("p99", "ms"),
        tpot_ms=tpot,
        model=_model(document, fields),
        note=f"guidellm, {completed} requests",
        fault=fault,
    )


def _successful(metrics: Fields, name: str) -> Fields:
    return metrics.child(name).child("successful")


def _requests(fields: Fields, metrics: Fields) -> tuple[int, int]:
    """Return completed and errored requests, wherever this version keeps the totals."""
    for holder, name in (
        (metrics, "request_totals"),
        (fields, "request_totals"),
        (fields.child("run_stats"), "requests_made"),
        (fields.child("scheduler_metrics"), "requests_made"),
    ):
        if name in holder.data:
            totals = holder.child(name)
            return totals.count("successful"), totals.count("errored", 0)
    raise metrics.refusal("request_totals", "is missing: failed requests cannot be told")


def _streams(fields: Fields) -> tuple[int | None, str | None]:
    """Return the streams of a concurrent or synchronous load, else why it is no cell."""
    strategy = _strategy(fields)
    kind = strategy.text("type_") or strategy.text("kind") or strategy.text("type") or "unknown"
    if kind == "synchronous":
        return 1, None
    if kind != "concurrent":
        return None, f"strategy {kind}: no concurrency was held"
    return strategy.count("streams"), None


def _strategy(fields: Fields) -> Fields:
    """Return what paced this load: its strategy, or a profile that has only one."""
    for holder in ("config", "args", "scheduler"):
        strategy = fields.child(holder).child("strategy")
        if strategy.data:
            return strategy
    profile = fields.child("config").child("profile")
    streams = profile.data.get("streams")
    if isinstance(streams, list) and len(streams) == 1:
        return Fields({**profile.data, "streams": streams[0]}, profile.file, profile.place)
    raise fields.refusal("config.strategy", "is missing: the concurrency cannot be told")


def _model(document: Mapping[str, Any], entry: Fields) -> str | None:
    """Return the model that the report or the load's backend names."""
    holders = [Fields(document, entry.file).child("args"), entry.child("config").child("backend")]
    return next((name for holder in holders if (name := holder.text("model"))), None)
