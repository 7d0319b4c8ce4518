"""Metrics pages in every form: several models, no numbers, OpenMetrics, resets, not ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from known import known_server
from measuring import POOL, small_plan, verified
from odd_proxy import Odd, odd_proxy

from qwendeploy.engines.metrics import Metrics, parse_metrics

TWO_MODELS = """\
process_start_time_seconds 1.7e9
vllm:num_requests_running{engine="0",model_name="qwen"} 3.0
vllm:num_requests_running{engine="0",model_name="other"} 40.0
vllm:kv_cache_usage_perc{engine="0",model_name="qwen"} 0.25
vllm:kv_cache_usage_perc{engine="0",model_name="other"} 0.75
vllm:generation_tokens_total{engine="0",model_name="qwen"} 100.0
vllm:generation_tokens_total{engine="0",model_name="other"} 9000.0
vllm:cache_config_info{engine="0",model_name="other",num_gpu_blocks="7"} 1.0
vllm:cache_config_info{engine="0",model_name="qwen",num_gpu_blocks="900"} 1.0
"""


@pytest.mark.parametrize(
    ("ours", "running", "usage", "blocks"),
    [
        pytest.param(("qwen",), 3, 0.25, 900, id="by-name"),
        pytest.param(("alias", "qwen"), 3, 0.25, 900, id="by-another-name"),
        pytest.param(("elsewhere",), None, None, None, id="neither-is-ours"),
    ],
)
def test_only_the_measured_model_counts(
    ours: tuple[str, ...], running: float | None, usage: float | None, blocks: int | None
) -> None:
    metrics = parse_metrics(TWO_MODELS, ours)
    assert (metrics.get("running"), metrics.get("kv_usage"), metrics.blocks()) == (
        running, usage, blocks,
    )  # fmt: skip
    assert metrics.boot_id == "1700000000.00"
    assert metrics.engines == 1


def test_a_page_of_one_model_counts_whatever_its_name() -> None:
    text = 'vllm:num_requests_running{model_name="base"} 2\n'
    assert parse_metrics(text, ("an-adapter",)).get("running") == 2


@pytest.mark.parametrize("value", ["NaN", "nan", "+Inf", "-Inf", "many", ""])
def test_what_is_no_number_is_not_offered(value: str) -> None:
    text = f"vllm:kv_cache_usage_perc {value}\nvllm:num_requests_running 2\n"
    metrics = parse_metrics(text)
    assert metrics.get("kv_usage") is None
    assert metrics.get("running") == 2


def test_of_several_engines_those_that_tell_are_averaged() -> None:
    text = 'vllm:kv_cache_usage_perc{engine="0"} NaN\nvllm:kv_cache_usage_perc{engine="1"} 0.5\n'
    assert parse_metrics(text).get("kv_usage") == 0.5


OPEN_METRICS = """\
# TYPE vllm:generation_tokens counter
# UNIT vllm:time_to_first_token_seconds seconds
vllm:generation_tokens_total{model_name="q"} 120.0 # {trace_id="a"} 1.0 1796000000.5
vllm:generation_tokens_created{model_name="q"} 1796000000.5
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="q"} 4.0 1796000000.5
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.1"} 3 # {trace_id="b"} 0.05
vllm:time_to_first_token_seconds_count 3
vllm:time_to_first_token_seconds_sum 0.3
vllm:kv_cache_usage_perc{model_name="q"}\t0.5
# EOF
"""


def test_open_metrics_are_read() -> None:
    metrics = parse_metrics(OPEN_METRICS)
    found = {name: metrics.get(name) for name in ("generation_tokens", "running", "ttft_count",
                                                  "kv_usage")}  # fmt: skip
    assert found == {"generation_tokens": 120, "running": 4, "ttft_count": 3, "kv_usage": 0.5}
    assert metrics.live


@pytest.mark.parametrize(
    ("then", "now", "restarted"),
    [
        pytest.param({"generation_tokens": 5.0}, {"generation_tokens": 6.0}, False, id="grew"),
        pytest.param({"generation_tokens": 5.0}, {"generation_tokens": 4.0}, True, id="fell"),
        pytest.param({"running": 5.0}, {"running": 1.0}, False, id="gauges-fall"),
        pytest.param({"generation_tokens": 5.0}, {}, False, id="not-offered"),
    ],
)
def test_a_counter_that_falls_is_of_another_process(
    then: dict[str, float], now: dict[str, float], restarted: bool
) -> None:
    assert Metrics(values=now).restarted_since(Metrics(values=then)) is restarted
    assert Metrics(started=(2.0,)).restarted_since(Metrics(started=(1.0,)))
    assert not Metrics(started=(2.0,)).restarted_since(Metrics())


def test_a_restart_without_start_time_is_seen_by_its_counters(tmp_path: Path) -> None:
    """From the 15th look on the counters begin anew, and no start time tells of it."""
    looks: list[int] = []

    def reset(text: str) -> str:
        looks.append(1)
        lines = [line for line in text.splitlines() if "process_start_time" not in line]
        if len(looks) < 15:
            return "\n".join([*lines, 'vllm:num_preemptions_total{engine="1"} 9']) + "\n"
        return "\n".join(lines) + "\n"

    odd = Odd(pages={"/metrics": reset})
    with known_server(tmp_path, *POOL) as known, odd_proxy(known.url, odd) as url:
        run, report = verified(url, small_plan(), rate_only=True)
    assert run.server is not None and run.server.boot_id is None
    assert "counters were reset" in " ".join(run.warnings)
    assert report.outcome == "inconclusive", report.statement


def test_the_page_of_another_server_is_noticed_and_left_out(tmp_path: Path) -> None:
    """A scrape target that points elsewhere: nothing that we send is counted there."""
    frozen: list[str] = []

    def elsewhere(text: str) -> str:
        frozen.append(text)
        return frozen[0].replace('num_requests_running{engine="0",model_name="known"} 0', "x 0")

    odd = Odd(pages={"/metrics": elsewhere})
    with known_server(tmp_path, *POOL, "--tokens", "3") as known, odd_proxy(known.url, odd) as url:
        run, report = verified(url, small_plan(450), rate_only=True, calm=True)
    assert run.server is not None
    assert "/metrics" in run.server.not_offered and not run.server.metrics
    assert run.server.kv_pool_blocks is None and run.server.boot_id is None
    assert any("it belongs to another server" in text for text in run.warnings)
    rate = run.figures["aggregate_decode_tps"]
    assert rate is not None and rate.value == pytest.approx(450, rel=0.05)
    assert [cause.id for cause in report.causes if cause.id == "not-drafting"] == []


def test_other_models_behind_one_page_are_not_taken_for_ours(tmp_path: Path) -> None:
    busy = (
        'vllm:num_requests_running{engine="0",model_name="big"} 60.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="big"} 9.0\n'
        'vllm:generation_tokens_total{engine="0",model_name="big"} 1e9\n'
    )
    odd = Odd(pages={"/metrics": lambda text: busy + text})
    with known_server(tmp_path, *POOL) as known, odd_proxy(known.url, odd) as url:
        run, report = verified(url, small_plan(), rate_only=True, calm=True)
    step = next(step for step in run.steps if step.shape == "decode")
    assert {window.server_running_high for window in step.windows} == {3}
    assert {window.waiting_high for window in step.windows} == {0}
    assert report.exit_code == 0, report.statement
