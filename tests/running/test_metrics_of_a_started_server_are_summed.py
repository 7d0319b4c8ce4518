"""What ``status`` and the read back take from a server's metrics page."""

from __future__ import annotations

import pytest

from qwendeploy.running import http

TWO_ENGINES = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:num_requests_running{engine="1",model_name="a b"} 5.0
vllm:kv_cache_usage_perc{engine="0"} 0.9
vllm:kv_cache_usage_perc{engine="1"} 0.7
vllm:cache_config_info{engine="0",num_gpu_blocks="2416",cache_dtype="fp8",note="a \\"b\\""} 1.0
"""


def test_requests_are_summed_over_engines_and_shares_are_not() -> None:
    assert http.gauge(TWO_ENGINES, "vllm:num_requests_running") == 8
    assert http.gauge(TWO_ENGINES, "vllm:kv_cache_usage_perc", mean=True) == pytest.approx(0.8)


def test_first_name_that_is_there_counts() -> None:
    names = ("vllm:num_requests_running", "llamacpp:requests_processing")

    assert http.gauge("llamacpp:requests_processing 2\n", *names) == 2
    assert http.gauge("", *names) is None
    assert http.gauge("vllm:num_requests_running many\n", *names) is None


def test_cache_configuration_is_read_with_quotes() -> None:
    found = http.cache_config(TWO_ENGINES)

    assert (found["num_gpu_blocks"], found["cache_dtype"]) == ("2416", "fp8")
