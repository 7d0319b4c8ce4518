"""Result files of other benchmarks become rows in our units, or are refused with the reason."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qwendeploy.cli import data_import
from qwendeploy.errors import DataError, UserError
from qwendeploy.tables.decode import DecodeRow
from qwendeploy.tables.importers import FORMATS, read_points
from qwendeploy.tables.importers.rows import Statement, make_rows

STATED = Statement(gpu="RTX PRO 6000", quant="fp8", spec_method="mtp", spec_tokens=3)
Document = dict[str, Any]


def vllm_bench() -> Document:
    """8 requests, 4 in flight, 512 in, 256 out: TPOT 10 ms, TTFT 100 ms."""
    return {
        "date": "20261130-101500",
        "backend": "openai",
        "model_id": "Qwen/Qwen3.6-27B-FP8",
        "num_prompts": 8,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 4,
        "duration": 5.3,
        "completed": 8,
        "failed": 0,
        "total_input_tokens": 8 * 512,
        "total_output_tokens": 8 * 256,
        "request_throughput": 8 / 5.3,
        "request_goodput:": None,
        "output_throughput": 8 * 256 / 5.3,
        "mean_ttft_ms": 100.0,
        "p99_ttft_ms": 140.0,
        "mean_tpot_ms": 10.0,
        "mean_itl_ms": 28.0,
        "mean_e2el_ms": 2650.0,
        "spec_decode_acceptance_rate": 57.7,
        "spec_decode_draft_tokens": 3000,
        "spec_decode_accepted_tokens": 1731,
    }


def guidellm() -> Document:
    def successful(**statistics: Any) -> Document:
        return {"successful": statistics, "errored": {"mean": 9.9}, "total": {"mean": 1.1}}

    return {
        "metadata": {"version": 2},
        "args": {"model": "Qwen/Qwen3.6-27B-FP8"},
        "benchmarks": [
            {
                "config": {"strategy": {"type_": "concurrent", "streams": 4}},
                "metrics": {
                    "request_totals": {"successful": 8, "errored": 0, "incomplete": 4},
                    "output_tokens_per_second": successful(mean=386.4),
                    "time_to_first_token_ms": successful(mean=100.0, percentiles={"p99": 140.0}),
                    "inter_token_latency_ms": successful(mean=10.0),
                    "time_per_output_token_ms": successful(mean=10.35),
                    "request_latency": successful(mean=2.65),
                    "prompt_token_count": successful(mean=512),
                    "output_token_count": successful(mean=256),
                },
            }
        ],
    }


def aiperf() -> Document:
    return {
        "schema_version": "1.3",
        "output_token_throughput": {"unit": "tokens/sec", "avg": 386.4},
        "time_to_first_token": {"unit": "ms", "avg": 100.0, "p99": 140.0},
        "inter_token_latency": {"unit": "ms", "avg": 10.0},
        "request_latency": {"unit": "ms", "avg": 2650.0},
        "request_count": {"unit": "requests", "avg": 8.0},
        "input_sequence_length": {"unit": "tokens", "avg": 512.0},
        "output_sequence_length": {"unit": "tokens", "avg": 256.0},
        "draft_acceptance_rate": {"unit": "%", "avg": 57.7},
        "start_time": "2026-11-30T10:15:00.5",
        "was_cancelled": False,
        "input_config": {
            "loadgen": {"concurrency": 4},
            "endpoint": {"model_names": ["Qwen/Qwen3.6-27B-FP8"], "urls": ["http://10.0.0.7:8000"]},
        },
    }


def inference_perf() -> Document:
    return {
        "load_summary": {"count": 8, "concurrency": 4},
        "successes": {
            "count": 8,
            "latency": {
                "request_latency": {"mean": 2.65},
                "time_to_first_token": {"mean": 0.1, "p99": 0.14},
                "time_per_output_token": {"mean": 0.01},
                "inter_token_latency": {"mean": 0.028},
            },
            "throughput": {"output_tokens_per_sec": 386.4},
            "prompt_len": {"mean": 512},
            "output_len": {"mean": 256},
        },
        "failures": {"count": 0},
    }


def decode_bench() -> Document:
    return {
        "metadata": {"version": "0.4.24", "model": "Qwen/Qwen3.6-27B-FP8"},
        "results": [
            {
                "concurrency": 4,
                "context_tokens": 512,
                "aggregate_tps": 386.4,
                "per_request_avg_tps": 100.0,
                "ttft_avg": 0.1,
                "ttft_p99": 0.14,
                "inter_token_latency_p50": 0.01,
                "num_errors": 0,
                "capacity_limited": False,
            }
        ],
    }


SAMPLES: dict[str, Callable[[], Document]] = {
    "vllm-bench": vllm_bench,
    "guidellm": guidellm,
    "aiperf": aiperf,
    "inference-perf": inference_perf,
    "llm-decode-bench": decode_bench,
}


def _file(tmp_path: Path, *documents: Any) -> Path:
    path = tmp_path / "result.json"
    path.write_text("\n".join(json.dumps(document) for document in documents))
    return path


def _rows(path: Path, stated: Statement = STATED, **how: Any) -> tuple[DecodeRow, ...]:
    reading = read_points(path, **how)
    return make_rows(reading.points, stated, import_id="import-test", origin="import")


@pytest.mark.parametrize("name", SAMPLES)
def test_one_load_reads_the_same_from_every_tool(name: str, tmp_path: Path) -> None:
    path = _file(tmp_path, SAMPLES[name]())
    assert read_points(path).format == name
    (row,) = _rows(path)
    assert (row.status, row.concurrency, row.context) == ("ok", 4, 512)
    assert row.aggregate_tps == pytest.approx(386.4, abs=0.1)
    assert row.ttft_ms == pytest.approx(100.0)
    assert row.ttft_p99_ms == pytest.approx(140.0)
    assert row.itl_ms == pytest.approx(10.0)
    assert row.per_user_tps == pytest.approx(100.0)
    assert row.rate_basis == ("steady" if name == "llm-decode-bench" else "wall")
    assert row.gpu == "RTX PRO 6000 Blackwell Workstation"


def test_acceptance_comes_from_counters_and_units_not_from_names(tmp_path: Path) -> None:
    for document in (vllm_bench(), aiperf()):
        (row,) = _rows(_file(tmp_path, document))
        assert row.accept_rate == pytest.approx(0.577)


def test_every_format_has_a_sample_here_or_is_our_own() -> None:
    elsewhere = {"qwendeploy-run", "llama-bench"}
    assert set(FORMATS) == {*SAMPLES, *elsewhere} == set(data_import.FORMATS)


def test_aiperf_seconds_are_read_by_their_unit(tmp_path: Path) -> None:
    document = aiperf()
    document["time_to_first_token"] = {"unit": "sec", "avg": 0.1}
    document["request_latency"] = {"unit": "s", "avg": 2.65}
    (row,) = _rows(_file(tmp_path, {"records": document, **document}))
    assert row.ttft_ms == pytest.approx(100.0)


def test_several_results_of_one_file_become_several_rows(tmp_path: Path) -> None:
    second = vllm_bench() | {"max_concurrency": 5}
    rows = _rows(_file(tmp_path, vllm_bench(), second))
    assert [row.concurrency for row in rows] == [4, 5]
    assert len({row.row_id for row in rows}) == 2


def _at(document: Any, path: str) -> tuple[Any, str | int]:
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    for part in parents:
        document = document[part]
    return document, last


def _changed(document: Document, path: str, value: Any) -> Document:
    changed = copy.deepcopy(document)
    holder, key = _at(changed, path)
    holder[key] = value
    return changed


def _without(document: Document, path: str) -> Document:
    changed = copy.deepcopy(document)
    holder, key = _at(changed, path)
    del holder[key]
    return changed


METRICS = "benchmarks/0/metrics"
LATENCY = "successes/latency"
REFUSED = [
    pytest.param(_changed(vllm_bench(), "completed", 0), "completed", "no request", id="vllm-zero"),
    pytest.param(_changed(vllm_bench(), "failed", 2), "failed", "2 of 10", id="vllm-failed"),
    pytest.param(_changed(vllm_bench(), "num_prompts", 9) | {"failed": None}, "failed", "1 of 9",
                 id="vllm-missing-requests"),
    pytest.param(_changed(vllm_bench(), "mean_ttft_ms", float("nan")), "mean_ttft_ms", "finite",
                 id="vllm-nan"),
    pytest.param(_changed(vllm_bench(), "output_throughput", float("inf")), "output_throughput",
                 "finite", id="vllm-inf"),
    pytest.param(_changed(vllm_bench(), "output_throughput", "386"), "output_throughput",
                 "not a number", id="vllm-text"),
    pytest.param(_changed(vllm_bench(), "output_throughput", -3), "output_throughput", "above 0",
                 id="vllm-negative"),
    pytest.param(_without(vllm_bench(), "duration"), "duration", "missing", id="vllm-missing"),
    pytest.param(_changed(vllm_bench(), "duration", 5300.0), "output_throughput", "mixed units",
                 id="vllm-duration-in-ms"),
    pytest.param(_changed(vllm_bench(), "mean_tpot_ms", 0.010), "mean_e2el_ms", "mixed units",
                 id="vllm-tpot-in-s"),
    pytest.param(_changed(guidellm(), "metadata/version", 9), "metadata.version", "not known",
                 id="guidellm-version"),
    pytest.param(_changed(guidellm(), f"{METRICS}/request_totals/errored", 3),
                 "benchmarks[0].failed", "3 of 11", id="guidellm-failed"),
    pytest.param(_without(guidellm(), f"{METRICS}/request_totals"),
                 "benchmarks[0].metrics.request_totals", "cannot be told", id="guidellm-totals"),
    pytest.param(_changed(guidellm(), f"{METRICS}/request_latency/successful/mean", 2650.0),
                 "benchmarks[0].metrics.request_latency.successful.mean", "mixed units",
                 id="guidellm-latency-in-ms"),
    pytest.param(_without(guidellm(), "benchmarks/0/config"), "benchmarks[0].config.strategy",
                 "missing", id="guidellm-strategy"),
    pytest.param(_changed(aiperf(), "schema_version", "2.0"), "schema_version", "not known",
                 id="aiperf-version"),
    pytest.param(_changed(aiperf(), "was_cancelled", True), "was_cancelled", "cancelled",
                 id="aiperf-cancelled"),
    pytest.param(_changed(aiperf(), "time_to_first_token/unit", "tokens"),
                 "time_to_first_token.avg", "no time", id="aiperf-unit"),
    pytest.param(_changed(aiperf(), "output_token_throughput/unit", "tokens/min"),
                 "output_token_throughput.avg", "no token rate", id="aiperf-rate-unit"),
    pytest.param(aiperf() | {"error_request_count": {"unit": "requests", "avg": 5.0}}, "failed",
                 "5 of 13", id="aiperf-errors"),
    pytest.param(_changed(aiperf(), "draft_acceptance_rate/unit", "fraction"),
                 "draft_acceptance_rate.avg", "fraction", id="aiperf-acceptance"),
    pytest.param(_changed(inference_perf(), "failures/count", 1), "failed", "1 of 9",
                 id="inference-perf-failed"),
    pytest.param(_changed(inference_perf(), f"{LATENCY}/time_to_first_token/mean", 100.0),
                 f"{LATENCY.replace('/', '.')}.request_latency.mean", "mixed units",
                 id="inference-perf-ttft-in-ms"),
    pytest.param(_changed(decode_bench(), "results/0/num_errors", 2), "results[0].num_errors",
                 "2 requests failed", id="decode-bench-errors"),
    pytest.param(_changed(decode_bench(), "results/0/aggregate_tps", 0.0),
                 "results[0].aggregate_tps", "above 0", id="decode-bench-zero"),
    pytest.param(_changed(vllm_bench(), "completed", 10**400), "completed", "larger than any",
                 id="vllm-huge"),
    pytest.param(_changed(vllm_bench(), "completed", 80), "completed", "more than the 8",
                 id="vllm-completed-more-than-sent"),
    pytest.param(_changed(vllm_bench(), "num_prompts", 80), "failed", "72 of 80",
                 id="vllm-unaccounted"),
    pytest.param(_changed(vllm_bench(), "total_input_tokens", 2**63), "prompt tokens",
                 "outside", id="vllm-prompt"),
    pytest.param(_changed(vllm_bench(), "spec_decode_draft_tokens", 3), "acceptance", "outside",
                 id="vllm-acceptance"),
    pytest.param(_changed(vllm_bench(), "max_concurrency", 4000), "output tokens/s",
                 "in flight, not 4000", id="vllm-concurrency"),
    pytest.param(_changed(guidellm(), "metadata", "2"), "metadata", "not an object",
                 id="guidellm-metadata"),
    pytest.param(_changed(guidellm(), f"{METRICS}/prompt_token_count/successful/mean", -1),
                 "benchmarks[0]: prompt tokens", "outside", id="guidellm-negative-prompt"),
    pytest.param(_changed(guidellm(), f"{METRICS}/output_tokens_per_second/successful/mean", 0.386),
                 "benchmarks[0]: output tokens/s", "mixed units", id="guidellm-rate-a-thousandth"),
    pytest.param(_changed(aiperf(), "output_token_throughput/avg", 386400.0), "output tokens/s",
                 "more than 4 users", id="aiperf-rate-a-thousandfold"),
    pytest.param(_changed(aiperf(), "input_config/loadgen/concurrency", 10**400),
                 "input_config.loadgen.concurrency", "larger than any", id="aiperf-concurrency"),
    pytest.param(_changed(aiperf(), "time_to_first_token/p99", 0.14), "TTFT p99 in ms",
                 "outside", id="aiperf-p99-in-s"),
    pytest.param(_changed(inference_perf(), f"{LATENCY}/time_to_first_token/p99", 140.0),
                 "TTFT p99 in ms", "does not go with a mean", id="inference-perf-p99-in-ms"),
    pytest.param(_changed(decode_bench(), "results/0/ttft_avg", 100.0),
                 "results[0]: TTFT p99 in ms", "does not go with", id="decode-bench-ttft-in-ms"),
    pytest.param(_changed(decode_bench(), "results/0/inter_token_latency_p50", 10.0),
                 "results[0]: tokens/s of one user", "mixed units", id="decode-bench-itl-in-ms"),
    pytest.param(_changed(decode_bench(), "results/0/aggregate_tps", 0.386),
                 "results[0]: output tokens/s", "far below", id="decode-bench-rate-a-thousandth"),
]  # fmt: skip


def _places(document: Any, path: str = "") -> list[str]:
    """Return the paths of every value in a document, objects and lists included."""
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    found = []
    for key, value in inner:
        found.append(place := f"{path}/{key}".removeprefix("/"))
        if isinstance(value, dict | list):
            found += _places(value, place)
    return found


ODD: list[Any] = [None, "x", "", -1, 0, 0.5, float("nan"), float("inf"), 1e308, 1e-308, 10**400,
                  True, [], {}, [1], "12"]  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_any_value_of_a_file_may_be_odd(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]()
    path = tmp_path / "result.json"
    for place in _places(sample):
        for document in [*(_changed(sample, place, odd) for odd in ODD), _without(sample, place)]:
            path.write_text(json.dumps(document))
            try:
                point = read_points(path).points[0]
            except (DataError, UserError):
                continue
            assert 0.1 < point.aggregate_tps < 1e6, place
            assert point.concurrency is None or 1 <= point.concurrency < 1e5, place
            assert point.ttft_ms is None or 1 <= point.ttft_ms < 1e8, place
            assert point.tpot_ms is None or 0.1 < point.tpot_ms < 1e6, place


@pytest.mark.parametrize(("document", "key", "what"), REFUSED)
def test_bad_value_is_refused_with_its_place(
    document: Document, key: str, what: str, tmp_path: Path
) -> None:
    path = _file(tmp_path, document)
    with pytest.raises(DataError) as caught:
        read_points(path)
    assert (caught.value.file, caught.value.key) == (str(path), key)
    assert what in caught.value.what


def test_bad_loads_can_be_left_out_of_a_file_with_several(tmp_path: Path) -> None:
    document = decode_bench()
    document["results"].append(document["results"][0] | {"concurrency": 8, "num_errors": 1})
    document["results"].append(document["results"][0] | {"concurrency": 16})
    path = _file(tmp_path, document)
    with pytest.raises(DataError):
        read_points(path)
    reading = read_points(path, skip_bad=True)
    assert [point.concurrency for point in reading.points] == [4, 16]
    (skipped,) = reading.skipped
    assert skipped.key == "results[1].num_errors"


def test_a_file_with_bad_loads_alone_is_refused_even_then(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 of 10"):
        read_points(_file(tmp_path, vllm_bench() | {"failed": 2}), skip_bad=True)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (vllm_bench() | {"max_concurrency": None}, "at once"),
        (vllm_bench() | {"request_rate": 2.5}, "open loop at 2.5"),
        (_changed(guidellm(), "benchmarks/0/config/strategy", {"type_": "poisson", "rate": 3}),
         "strategy poisson"),
        (_changed(aiperf(), "input_config/loadgen", {"request_rate": 4.0}), "open loop at 4 "),
        (_changed(decode_bench(), "results/0/warmup_timed_out", True), "before every stream"),
    ],
    ids=["vllm-at-once", "vllm-rate", "guidellm-rate", "aiperf-rate", "decode-bench-unfilled"],
)  # fmt: skip
def test_load_that_held_no_concurrency_is_flagged(
    document: Document, reason: str, tmp_path: Path
) -> None:
    (row,) = _rows(_file(tmp_path, document))
    assert row.status == "excluded"
    assert row.reason is not None and reason in row.reason


def test_cell_below_its_concurrency_keeps_the_real_count(tmp_path: Path) -> None:
    document = decode_bench()
    document["results"][0] |= {"concurrency": 64, "capacity_limited": True, "avg_running_reqs": 52}
    (row,) = _rows(_file(tmp_path, document))
    assert (row.status, row.running) == ("capacity-limited", 52)


def test_concurrency_that_no_one_states_is_asked_for(tmp_path: Path) -> None:
    path = _file(tmp_path, _without(inference_perf(), "load_summary/concurrency"))
    with pytest.raises(UserError, match="in flight") as caught:
        _rows(path)
    assert caught.value.hint == "state --concurrency"
    (row,) = _rows(path, Statement(gpu="RTX 5090", quant="fp8", concurrency=4))
    assert (row.status, row.concurrency) == ("ok", 4)


@pytest.mark.parametrize(
    ("stated", "where"),
    [
        (Statement(gpu="RTX 9090", quant="fp8"), "--gpu"),
        (Statement(gpu="RTX 5090", gpu_count=1, tp=2, quant="fp8"), "--tp"),
    ],
    ids=["gpu", "tp"],
)
def test_contradiction_is_refused(stated: Statement, where: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        _rows(_file(tmp_path, vllm_bench()), stated)
    assert caught.value.where == where


def test_known_weights_need_no_quant_and_unknown_ones_do(tmp_path: Path) -> None:
    (row,) = _rows(_file(tmp_path, vllm_bench()), Statement(gpu="RTX 5090"))
    assert (row.quant, row.checkpoint) == ("fp8", "Qwen/Qwen3.6-27B-FP8")
    with pytest.raises(UserError, match="which weights"):
        _rows(_file(tmp_path, vllm_bench() | {"model_id": "m"}), Statement(gpu="RTX 5090"))


def test_another_model_is_refused_unless_its_weights_are_stated(tmp_path: Path) -> None:
    path = _file(tmp_path, vllm_bench() | {"model_id": "meta-llama/Llama-3.1-8B"})
    with pytest.raises(UserError, match="not Qwen3"):
        _rows(path)


def test_path_of_the_machine_never_enters_a_row(tmp_path: Path) -> None:
    path = _file(tmp_path, vllm_bench() | {"model_id": "/home/anna/models/Qwen3.6-27B-FP8"})
    (row,) = _rows(path)
    assert row.checkpoint == "Qwen/Qwen3.6-27B-FP8"
    assert "anna" not in repr(row)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b'{"a": 1}', "no known format"),
        ("{\"é\": 1}".encode("latin-1"), "not UTF-8"),
        (b"[]", "no known format"),
        (b"[1, 2]", "no known format"),
        (b"null", "no known format"),
        (b"[" * 100_000, "not JSON"),
    ],
    ids=["empty", "cut", "other", "latin-1", "list", "numbers", "null", "nested"],
)  # fmt: skip
def test_file_that_is_no_result_is_refused(content: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=what):
        read_points(path)


def test_missing_file_and_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_points(tmp_path / "absent.json")
    with pytest.raises(UserError, match="is a directory"):
        read_points(tmp_path)


def test_stated_format_must_be_the_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no guidellm report"):
        read_points(_file(tmp_path, vllm_bench()), format="guidellm")
