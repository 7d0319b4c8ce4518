"""Result files of ``vllm bench serve``: one object, or several after ``--append-result``.

TPOT there is (end-to-end - TTFT) / (n - 1), ours too; ``itl`` are gaps between stream chunks, which
hold several tokens under speculation, and are not read. ``output_throughput`` covers the whole run
with its ramps. The acceptance rate is printed in per cent; the counters decide. Older files spell
``request_goodput:`` with the colon, which nothing here reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from qwendeploy.errors import DataError
from qwendeploy.tables.importers.points import (
    Fields,
    Point,
    check_latency,
    check_rate,
    check_requests,
    each_load,
)

NAME = "vllm-bench"
TITLE = "vllm bench serve"


def matches(documents: Sequence[Any]) -> bool:
    """Return whether this is a result of ``vllm bench serve``."""
    first = documents[0]
    return (
        isinstance(first, dict)
        and ("output_throughput" in first or "request_throughput" in first)
        and ("mean_ttft_ms" in first or "num_prompts" in first or "total_output_tokens" in first)
    )


def read(documents: Sequence[Any], file: str) -> Iterator[Point | DataError]:
    """Return one point per result, or the error that names the key of its bad value."""
    if len(documents) == 1:
        return iter([_point(Fields(documents[0], file))])
    return each_load(documents, file, "", _point)


def _point(fields: Fields) -> Point:
    completed = fields.count("completed")
    prompts = fields.count("num_prompts", completed)
    if completed > prompts:
        raise fields.refusal("completed", f"{completed} are more than the {prompts} sent")
    failed = max(fields.count("failed", 0), prompts - completed)
    check_requests(fields, completed, failed)
    seconds = fields.above_zero("duration")
    output = fields.above_zero("total_output_tokens")
    prompt = fields.number("total_input_tokens")
    rate = fields.above_zero("output_throughput")
    check_rate(fields, "output_throughput", rate, output, seconds)
    ttft = fields.milliseconds("mean_ttft_ms", "ms")
    tpot = fields.milliseconds("mean_tpot_ms", "ms")
    check_latency(
        fields,
        "mean_e2el_ms",
        e2e_ms=fields.milliseconds("mean_e2el_ms", "ms"),
        ttft_ms=ttft,
        tpot_ms=tpot,
        tokens=output / completed,
    )
    concurrency = fields.count("max_concurrency", 0) or None
    drafted = fields.maybe("spec_decode_draft_tokens")
    accepted = fields.maybe("spec_decode_accepted_tokens")
    return Point(
        name=fields.place or "result",
        concurrency=concurrency,
        context=round(prompt / completed),
        output_tokens=round(output / completed),
        aggregate_tps=rate,
        rate_basis="wall",
        completed=completed,
        per_user_tps=1000 / tpot if tpot else None,
        ttft_ms=ttft,
        ttft_p99_ms=fields.milliseconds("p99_ttft_ms", "ms"),
        tpot_ms=tpot,
        accept_rate=accepted / drafted if drafted and accepted is not None else None,
        model=fields.text("model_id"),
        date=_date(fields.text("date")),
        note=f"vllm bench serve, {completed} requests",
        fault=_open_loop(fields, concurrency),
    )


def _open_loop(fields: Fields, concurrency: int | None) -> str | None:
    rate = fields.data.get("request_rate")
    if rate not in (None, "inf"):
        return f"open loop at {rate} requests/s: no concurrency was held"
    return None if concurrency else "all requests were sent at once: no concurrency was held"


def _date(text: str | None) -> str | None:
    """Return ``20261130-090100`` as an ISO date."""
    if text is None or not text[:8].isdigit():
        return None
    return f"{text[:4]}-{text[4:6]}-{text[6:8]}"
