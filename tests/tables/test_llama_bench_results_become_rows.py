"""Rows of llama-bench and llama-batched-bench are decode of llama.cpp without drafts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qwendeploy.errors import DataError, UserError
from qwendeploy.tables.decode import DecodeRow
from qwendeploy.tables.importers import read_points
from qwendeploy.tables.importers.rows import Statement, make_rows

STATED = Statement(gpu="RTX 4090", quant="q4_k_xl")


def single(**changed: Any) -> dict[str, Any]:
    """Decode of 64 tokens behind 8,192, as an RTX 4090 ran it."""
    return {
        "build_commit": "35bee031e",
        "build_number": 8457,
        "backends": "CUDA",
        "gpu_info": "NVIDIA GeForce RTX 4090",
        "model_filename": "/data/Qwen3.5-27B-UD-Q4_K_XL.gguf",
        "model_type": "qwen35 27B Q4_K - Medium",
        "n_gpu_layers": 99,
        "type_k": "f16",
        "type_v": "f16",
        "n_prompt": 0,
        "n_gen": 64,
        "n_depth": 8192,
        "test_time": "2026-03-21T10:00:00Z",
        "avg_ns": 1_483_885_926,
        "avg_ts": 43.13,
        "stddev_ts": 0.2,
        "samples_ts": [43.0, 43.13, 43.26],
    } | changed


def batched(**changed: Any) -> dict[str, Any]:
    return {
        "n_kv_max": 32768,
        "n_gpu_layers": 99,
        "is_pp_shared": 0,
        "pp": 512,
        "tg": 128,
        "pl": 4,
        "n_kv": 2560,
        "t_pp": 0.9,
        "speed_pp": 2275.6,
        "t_tg": 4.0,
        "speed_tg": 128.0,
        "t": 4.9,
        "speed": 522.4,
    } | changed


def _rows(tmp_path: Path, *rows: Any, as_list: bool = False, **how: Any) -> tuple[DecodeRow, ...]:
    path = tmp_path / "result.json"
    text = json.dumps(rows) if as_list else "\n".join(json.dumps(row) for row in rows)
    path.write_text(text)
    reading = read_points(path, **how)
    assert reading.format == "llama-bench"
    return make_rows(reading.points, STATED, import_id="import-test", origin="import")


@pytest.mark.parametrize("as_list", [False, True], ids=["jsonl", "json"])
def test_decode_of_one_request_is_read_and_prefill_is_not(tmp_path: Path, as_list: bool) -> None:
    prefill = single(n_prompt=512, n_gen=0, avg_ts=3015.0, avg_ns=169_817_579)
    (row,) = _rows(tmp_path, prefill, single(), as_list=as_list)
    assert (row.status, row.concurrency, row.context, row.output_tokens) == ("ok", 1, 8192, 64)
    assert (row.aggregate_tps, row.std_tps, row.itl_ms) == pytest.approx((43.13, 0.2, 23.186), 1e-3)
    assert (row.engine, row.engine_version) == ("llama.cpp", "b8457")
    assert (row.spec_method, row.spec_tokens, row.kv_cache_dtype) == ("none", 0, "f16")
    assert (row.rate_basis, row.date) == ("steady", "2026-03-21")
    assert row.checkpoint == "Qwen3.5-27B-UD-Q4_K_XL.gguf"


def test_batched_rate_is_of_all_requests(tmp_path: Path) -> None:
    (row,) = _rows(tmp_path, batched())
    assert (row.concurrency, row.context, row.contexts) == (4, 512, "separate")
    assert (row.aggregate_tps, row.per_user_tps, row.itl_ms) == (128.0, 32.0, 31.25)
    (row,) = _rows(tmp_path, batched(is_pp_shared=1))
    assert row.contexts == "shared"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (single(n_prompt=512, n_gen=64, avg_ts=388.0, avg_ns=1_484_536_082), "over prompt"),
        (single(n_gpu_layers=0), "no layer"),
        (single(backends="CPU"), "no layer"),
        (batched(n_gpu_layers=0), "no layer"),
    ],
    ids=["mixed", "no-layers", "cpu", "batched-no-layers"],
)
def test_rate_that_is_no_decode_of_the_card_is_flagged(
    row: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (flagged,) = _rows(tmp_path, row)
    assert flagged.status == "excluded"
    assert flagged.reason is not None and reason in flagged.reason


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (single(n_gen=0, n_prompt=512, avg_ts=3015.0), "no decode result"),
        (single(avg_ns=1_483_885), "mixed units"),
        (single(avg_ts="43"), "not a number"),
        (batched(t_tg=4000.0), "mixed units"),
        (batched(pl=0), "outside"),
        (batched(speed_tg=0), "above 0"),
    ],
    ids=["prefill-alone", "time-in-us", "text", "batched-time-in-ms", "nobody", "stands"],
)
def test_row_that_measured_no_decode_is_refused(
    row: dict[str, Any], what: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=what):
        _rows(tmp_path, row)


def test_one_bad_row_can_be_left_out(tmp_path: Path) -> None:
    rows = _rows(tmp_path, single(), single(avg_ts=-1.0), single(n_depth=16384), skip_bad=True)
    assert [row.context for row in rows] == [8192, 16384]


def test_any_value_of_a_row_may_be_odd(tmp_path: Path) -> None:
    odd: list[Any] = [None, "x", -1, 0, 0.5, float("nan"), float("inf"), 1e308, 10**400, [], {}]
    for sample in (single(), batched()):
        for key in sample:
            for value in odd:
                try:
                    (row,) = _rows(tmp_path, sample | {key: value})
                except (DataError, UserError):
                    continue
                assert row.concurrency in (1, 4), (key, value)
                assert row.aggregate_tps is not None and 0.1 < row.aggregate_tps < 1e6
