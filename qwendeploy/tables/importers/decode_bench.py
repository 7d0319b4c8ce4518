"""Results of llm-inference-bench (``llm_decode_bench.py``): a matrix of steady decode cells.

Times are seconds, rates tokens/s of a window in which every stream decodes. A cell that the harness
itself marks as not running at its stated concurrency keeps its real running count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from qwendeploy.errors import DataError
from qwendeploy.tables.importers.points import Fields, Point, each_load

NAME = "llm-decode-bench"
TITLE = "llm-inference-bench matrix"


def matches(documents: Sequence[Any]) -> bool:
    """Return whether this is a result matrix of llm_decode_bench."""
    first = documents[0]
    return (
        isinstance(first, dict)
        and isinstance(first.get("results"), list)
        and any(isinstance(cell, dict) and "aggregate_tps" in cell for cell in first["results"])
    )


def read(documents: Sequence[Any], file: str) -> Iterator[Point | DataError]:
    """Return one point per cell, or the error that names the key of its bad value."""
    document = documents[0]
    metadata = Fields(document, file).child("metadata")
    return each_load(document["results"], file, "results", partial(_point, metadata=metadata))


def _point(fields: Fields, metadata: Fields) -> Point:
    concurrency = fields.count("concurrency")
    failed = fields.count("num_errors", 0)
    if failed:
        raise fields.refusal("num_errors", f"{failed} requests failed: the rate is not a cell")
    running = fields.maybe("avg_running_reqs") or fields.maybe("effective_concurrency")
    limited = bool(fields.data.get("capacity_limited"))
    tpot = fields.milliseconds("inter_token_latency_p50", "s")
    ttft = fields.milliseconds("ttft_avg", "s") or fields.milliseconds("ttft_p50", "s")
    drafted = fields.maybe("server_spec_draft_tokens")
    accepted = fields.maybe("server_spec_accepted_tokens")
    fault = None
    if fields.data.get("loop_detected"):
        fault = "the harness detected text in a loop"
    elif fields.data.get("underfilled") or fields.data.get("warmup_timed_out"):
        fault = "the window opened before every stream decoded"
    return Point(
        name=fields.place,
        concurrency=concurrency or None,
        context=fields.count("context_tokens"),
        output_tokens=None,
        aggregate_tps=fields.above_zero("aggregate_tps"),
        rate_basis="steady",
        completed=fields.count("completed_request_count", 1) or 1,
        per_user_tps=fields.maybe_above_zero("per_request_avg_tps"),
        ttft_ms=ttft,
        ttft_p99_ms=fields.milliseconds("ttft_p99", "s"),
        tpot_ms=tpot,
        accept_rate=accepted / drafted if drafted and accepted is not None else None,
        running=min(round(running), concurrency) if running and limited else None,
        contexts_shared=_shared(metadata),
        model=metadata.text("model"),
        note=f"llm_decode_bench {metadata.text('version') or ''}".strip(),
        capacity_limited=limited,
        fault=fault,
    )


def _shared(metadata: Fields) -> bool | None:
    share = metadata.maybe("unique_context_percent")
    return {100.0: False, 0.0: True}.get(share) if share is not None else None
