"""What ``status`` and the read back take from a server's metrics page."""

from __future__ import annotations

import pytest

from qwendeploy.engines.metrics import parse_metrics

TWO_ENGINES = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:num_requests_running{engine="1",model_name="a b"} 5.0
vllm:kv_cache_usage_perc{engine="0"} 0.9
vllm:kv_cache_usage_perc{engine="1"} 0.7
vllm:cache_config_info{engine="0",num_gpu_blocks="2416",cache_dtype="fp8",note="a \\"b\\""} 1.0
"""


def test_requests_are_summed_over_engines_and_shares_are_averaged() -> None:
    page = parse_metrics(TWO_ENGINES)
    assert page.get("running") == 8
    assert page.get("kv_usage") == pytest.approx(0.8)


def test_any_engines_name_is_read() -> None:
    assert parse_metrics("llamacpp:requests_processing 2\n").get("running") == 2
    assert parse_metrics("").get("running") is None
    assert parse_metrics("vllm:num_requests_running many\n").get("running") is None


def test_cache_configuration_is_read_with_quotes() -> None:
    found = parse_metrics(TWO_ENGINES).cache_config
    assert (found["num_gpu_blocks"], found["cache_dtype"]) == ("2416", "fp8")
