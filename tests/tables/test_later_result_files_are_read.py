"""Forms of result files that later versions of the benchmarks write, with published figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qwendeploy.errors import DataError, UserError
from qwendeploy.tables.decode import DecodeRow
from qwendeploy.tables.importers import read_points
from qwendeploy.tables.importers.rows import Statement, make_rows

STATED = Statement(gpu="RTX 5090", quant="nvfp4")
WARMUP = {"name": "warmup", "type": "concurrency", "concurrency": 1, "exclude_from_results": True}


def _row(tmp_path: Path, document: Any, stated: Statement = STATED) -> DecodeRow:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    (row,) = make_rows(read_points(path).points, stated, import_id="import-test", origin="import")
    return row


def _block(unit: str, avg: float, **more: float) -> dict[str, Any]:
    return {"unit": unit, "avg": avg, **more}


def aiperf(*phases: dict[str, Any]) -> dict[str, Any]:
    """Agent load with 16 in flight on an RTX 5090, as anud18/qwen36-vllm-aiperf-benchmark has it.

    The file of that version says its load in ``phases``.
    """
    return {
        "schema_version": "1.3",
        "request_count": _block("requests", 96.0),
        "time_to_first_token": _block("ms", 230.137, p99=687.62),
        "inter_token_latency": _block("ms", 11.8473),
        "request_latency": _block("ms", 6726.66),
        "output_token_throughput": _block("tokens/sec", 1172.146),
        "output_sequence_length": _block("tokens", 543.61),
        "input_sequence_length": _block("tokens", 3761.31),
        "was_cancelled": False,
        "start_time": "2026-07-03T05:21:36.1",
        "input_config": {
            "models": {"items": [{"name": "Qwen/Qwen3.6-27B-FP8"}]},
            "phases": [WARMUP, *phases],
        },
    }


HELD = {"name": "profiling", "type": "concurrency", "concurrency": 16, "requests": 96}


def test_load_in_phases_is_the_one_that_was_measured(tmp_path: Path) -> None:
    row = _row(tmp_path, aiperf(HELD))
    assert (row.status, row.concurrency, row.context, row.output_tokens) == ("ok", 16, 3761, 544)
    assert (row.aggregate_tps, row.ttft_ms, row.itl_ms) == (1172.146, 230.137, 11.8473)
    assert (row.checkpoint, row.date) == ("Qwen/Qwen3.6-27B-FP8", "2026-07-03")


@pytest.mark.parametrize(
    ("phases", "reason"),
    [
        ([{"name": "profiling", "type": "poisson", "rate": 0.8}], "poisson at 0.8 requests/s"),
        ([{"name": "profiling", "type": "fixed_schedule"}], "open loop, fixed_schedule"),
        ([HELD, HELD | {"concurrency": 32}], "2 measured phases"),
        ([], "0 measured phases"),
    ],
    ids=["poisson", "schedule", "two", "none"],
)
def test_phases_that_hold_no_one_concurrency_are_flagged(
    phases: list[dict[str, Any]], reason: str, tmp_path: Path
) -> None:
    row = _row(tmp_path, aiperf(*phases))
    assert row.status == "excluded"
    assert row.reason is not None and reason in row.reason


@pytest.mark.parametrize(
    ("config", "status", "concurrency"),
    [
        ({"perf_analyzer": {"stimulus": {"concurrency": 16}}}, "ok", 16),
        ({"concurrency": 16, "request_rate": None}, "ok", 16),
        ({"perf_analyzer": {"stimulus": {"request_rate": 2.0}}}, "excluded", None),
        ({"request_rate": 2.0, "concurrency": None}, "excluded", None),
    ],
    ids=["stimulus", "flat", "stimulus-rate", "flat-rate"],
)
def test_genai_perf_says_its_load_elsewhere(
    config: dict[str, Any], status: str, concurrency: int | None, tmp_path: Path
) -> None:
    document = aiperf(HELD)
    del document["schema_version"], document["was_cancelled"], document["start_time"]
    document["input_config"] = {"model_names": ["Qwen/Qwen3.6-27B-FP8"], **config}
    row = _row(tmp_path, document)
    assert (row.status, row.concurrency) == (status, concurrency)
    assert row.checkpoint == "Qwen/Qwen3.6-27B-FP8"


@pytest.mark.parametrize(
    "odd",
    [
        *(None, "x", 3, {}, [3], [None], [{"concurrency": "x"}], [{"type": 3}]),
        [{"type": "concurrency", "concurrency": -1}],
    ],
    ids=str,
)
def test_phases_may_be_odd(odd: Any, tmp_path: Path) -> None:
    document = aiperf()
    document["input_config"]["phases"] = odd
    try:
        row = _row(tmp_path, document)
    except (DataError, UserError):
        return
    assert row.status == "excluded"


def guidellm(**config: Any) -> dict[str, Any]:
    """4 streams of 99 in and 1,024 out, as danielkorat/guidellm-bench has it (version 0.5)."""

    def successful(**statistics: Any) -> dict[str, Any]:
        return {"successful": statistics}

    return {
        "metadata": {"version": 1, "guidellm_version": "0.5.0.dev0"},
        "benchmarks": [
            {
                "config": {"backend": {"model": "Qwen/Qwen3.6-27B-FP8"}, **config},
                "metrics": {
                    "request_totals": {"successful": 4, "errored": 0, "incomplete": 0},
                    "output_tokens_per_second": successful(mean=165.595, median=84.9),
                    "inter_token_latency_ms": successful(mean=24.1788),
                    "request_latency": successful(mean=24.9087),
                    "prompt_token_count": successful(mean=99.0),
                    "output_token_count": successful(mean=1024.0),
                },
            }
        ],
    }


@pytest.mark.parametrize(
    "config",
    [
        {"strategy": {"type_": "concurrent", "streams": 4}},
        {"profile": {"kind": "concurrent", "streams": [4]}},
    ],
    ids=["strategy", "profile"],
)
def test_guidellm_states_streams_and_model_in_the_load(
    config: dict[str, Any], tmp_path: Path
) -> None:
    row = _row(tmp_path, guidellm(**config))
    assert (row.status, row.concurrency, row.context, row.output_tokens) == ("ok", 4, 99, 1024)
    assert (row.aggregate_tps, row.itl_ms) == (165.595, 24.1788)
    assert row.checkpoint == "Qwen/Qwen3.6-27B-FP8"


def test_profile_of_several_loads_does_not_tell_which_this_was(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be told"):
        _row(tmp_path, guidellm(profile={"kind": "concurrent", "streams": [4, 8]}))


def test_rate_of_requests_is_an_open_loop_in_inference_perf(tmp_path: Path) -> None:
    document = {
        "load_summary": {"count": 8, "requested_rate": 2.0, "achieved_rate": 1.9},
        "successes": {
            "count": 8,
            "latency": {"time_per_output_token": {"mean": 0.01}},
            "throughput": {"output_tokens_per_sec": 386.4},
        },
        "failures": {"count": 0},
    }
    row = _row(tmp_path, document)
    assert (row.status, row.concurrency) == ("excluded", None)
    assert row.reason is not None and "2 requests/s" in row.reason


def test_matrix_cell_of_a_duration_has_no_count_of_finished_requests(tmp_path: Path) -> None:
    cell = {
        "concurrency": 1,
        "context_tokens": 0,
        "aggregate_tps": 187.2037,
        "per_request_avg_tps": 187.2037,
        "inter_token_latency_p50": 0.00530082,
        "ttft_avg": 0.0486277,
        "completed_request_count": 0,
        "num_errors": 0,
        "server_spec_draft_tokens": 7347,
        "server_spec_accepted_tokens": 3166,
    }
    document = {"metadata": {"version": "0.6.2", "engine": "vLLM"}, "results": [cell]}
    row = _row(tmp_path, document)
    assert (row.status, row.concurrency, row.aggregate_tps) == ("ok", 1, 187.2037)
    assert (row.ttft_ms, row.itl_ms) == pytest.approx((48.6277, 5.30082))
    assert row.accept_rate == pytest.approx(3166 / 7347)


def test_rate_below_zero_marks_a_cell_that_the_harness_threw_away(tmp_path: Path) -> None:
    cell = {"concurrency": 1, "context_tokens": 0, "aggregate_tps": -3.0, "loop_detected": True}
    with pytest.raises(DataError, match="above 0"):
        _row(tmp_path, {"metadata": {"version": "0.6.2"}, "results": [cell]})
