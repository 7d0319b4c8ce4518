"""A load in the result format of ``vllm bench serve``, so that its readers can take it.

Keys and formulas are that tool's: duration from first send to last end, throughput over it, TPOT
(latency - TTFT)/(n - 1), ITL pooled gaps between chunks, percentiles by linear interpolation,
times of arrays in seconds. What the format has no place for is under ``qwendeploy``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from qwendeploy.documents import RunDocument
from qwendeploy.verification import statistics as st

PERCENTILES = (50, 90, 95, 99)

Rows = Sequence[Mapping[str, Any]]
"""Requests as a run keeps them."""


def bench_serve_result(run: RunDocument) -> dict[str, Any]:
    """Return the decode load of a run that kept its requests in the foreign format.

    Streams of the decode shape are stopped by the client when it has measured; they count as
    completed here with the tokens they had, which ``qwendeploy.cut`` says.
    """
    rows = [row for row in run.requests if row["ttft_ms"] is not None and not row["failure"]]
    server = run.server
    ttfts = [row["ttft_ms"] / 1e3 for row in rows]
    latencies = [row["chunk_times_s"][-1] - row["sent_s"] for row in rows]
    gaps = [[b - a for a, b in itertools.pairwise(row["chunk_times_s"])] for row in rows]
    result: dict[str, Any] = {
        "date": run.created.replace("-", "").replace(":", "").replace("T", "-").rstrip("Z"),
        "endpoint_type": "openai-chat",
        "backend": "openai-chat",
        "label": None,
        "model_id": server.model if server else None,
        "tokenizer_id": (server.root or server.model) if server else None,
        "num_prompts": len(run.requests),
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": run.operating_point.get("concurrency"),
        **_totals(run, rows),
        "input_lens": [row["prompt_tokens"] for row in rows],
        "output_lens": [row["output_tokens"] for row in rows],
        "ttfts": ttfts,
        "itls": gaps,
        "latencies": latencies,
        "start_times": [row["sent_s"] for row in rows],
        "errors": [row["failure"] or "" for row in run.requests],
        **_summary("ttft", ttfts),
        **_summary("tpot", _tpots(rows)),
        **_summary("itl", [gap for row in gaps for gap in row]),
        **_summary("e2el", latencies),
        **_speculation(run),
    }
    result["qwendeploy"] = {
        "run_id": run.run_id,
        "plan_id": run.plan_id,
        "schema_version": run.schema_version,
        "cut": True,
        "operating_point": run.operating_point,
    }
    return result


def _totals(run: RunDocument, rows: Rows) -> dict[str, Any]:
    """Return counts and throughputs from the first request sent to the last chunk."""
    begin = min((row["sent_s"] for row in run.requests), default=0.0)
    duration = max((row["chunk_times_s"][-1] for row in rows), default=begin) - begin
    inputs = sum(row["prompt_tokens"] or 0 for row in rows)
    outputs = sum(row["output_tokens"] for row in rows)

    def per_second(total: int) -> float:
        return total / duration if duration > 0 else 0.0

    return {
        "duration": duration,
        "completed": len(rows),
        "failed": len(run.requests) - len(rows),
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": per_second(len(rows)),
        "request_goodput": None,
        "output_throughput": per_second(outputs),
        "total_token_throughput": per_second(inputs + outputs),
    }


def _tpots(rows: Rows) -> list[float]:
    """Return the seconds per output token after the first, of answers longer than one."""
    return [
        (row["chunk_times_s"][-1] - row["sent_s"] - row["ttft_ms"] / 1e3)
        / (row["output_tokens"] - 1)
        for row in rows
        if row["output_tokens"] > 1
    ]


def _summary(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """Return the statistics of times in seconds, in milliseconds."""
    ordered = sorted(value * 1e3 for value in seconds) or [0.0]
    middle = st.mean(ordered)
    variance = st.mean([(value - middle) ** 2 for value in ordered])
    return {
        f"mean_{name}_ms": middle,
        f"median_{name}_ms": st.percentile(ordered, 50),
        f"std_{name}_ms": variance**0.5,
        **{f"p{q}_{name}_ms": st.percentile(ordered, q) for q in PERCENTILES},
    }


def _speculation(run: RunDocument) -> dict[str, Any]:
    step = next((step for step in run.steps if step.shape == "decode"), None)
    if step is None or not step.server.get("drafts"):
        return {}
    server = step.server
    positions = [key for key in server if key.startswith("acceptance_position_")]
    return {
        "spec_decode_acceptance_rate": (server.get("acceptance_rate") or 0.0) * 100,
        "spec_decode_acceptance_length": server.get("acceptance_length"),
        "spec_decode_num_drafts": server.get("drafts"),
        "spec_decode_draft_tokens": server.get("draft_tokens"),
        "spec_decode_accepted_tokens": server.get("accepted_tokens"),
        "spec_decode_per_position_acceptance_rates": [server[key] for key in sorted(positions)],
    }
