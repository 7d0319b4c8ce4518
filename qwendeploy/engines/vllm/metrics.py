"""Names on vLLM's ``/metrics`` page (0.19 to 0.33)."""

from __future__ import annotations

from qwendeploy.engines.interface import MetricNames

METRICS = MetricNames(
    counters={
        "preemptions": ("vllm:num_preemptions_total",),
        "prompt_tokens": ("vllm:prompt_tokens_total",),
        "generation_tokens": ("vllm:generation_tokens_total",),
        "cached_tokens": ("vllm:prompt_tokens_cached_total",),
        "prefix_queries": (
            "vllm:prefix_cache_queries_total",
            "vllm:gpu_prefix_cache_queries_total",
        ),
        "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        "drafts": ("vllm:spec_decode_num_drafts_total",),
        "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
        "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
        "requests_finished": ("vllm:request_success_total",),
        "ttft_sum": ("vllm:time_to_first_token_seconds_sum",),
        "ttft_count": ("vllm:time_to_first_token_seconds_count",),
        "itl_sum": (
            "vllm:inter_token_latency_seconds_sum",
            "vllm:time_per_output_token_seconds_sum",
        ),
        "itl_count": (
            "vllm:inter_token_latency_seconds_count",
            "vllm:time_per_output_token_seconds_count",
        ),
        "tpot_sum": ("vllm:request_time_per_output_token_seconds_sum",),
        "tpot_count": ("vllm:request_time_per_output_token_seconds_count",),
        "queue_sum": ("vllm:request_queue_time_seconds_sum",),
        "queue_count": ("vllm:request_queue_time_seconds_count",),
        "admission_rejections": ("vllm:admission_rejections_total",),
    },
    gauges={
        "running": ("vllm:num_requests_running",),
        "waiting": ("vllm:num_requests_waiting",),
        "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    },
)

LIVE = "vllm:generation_tokens_total"
"""The one counter of tokens that moves while requests run; others move when one ends."""
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
"""Accepted drafts by their place in the draft, in the label ``position``."""
CONFIG = "vllm:cache_config_info"
"""The pool, in its labels."""
