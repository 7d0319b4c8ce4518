"""Names on SGLang's ``/metrics`` page."""

from __future__ import annotations

from qwendeploy.engines.interface import MetricNames

METRICS = MetricNames(
    counters={
        "prompt_tokens": ("sglang:prompt_tokens_total",),
        "generation_tokens": ("sglang:generation_tokens_total",),
    },
    gauges={
        "running": ("sglang:num_running_reqs",),
        "waiting": ("sglang:num_queue_reqs",),
        "kv_usage": ("sglang:token_usage",),
    },
)
