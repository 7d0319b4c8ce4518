"""Each printed value that is known to be wrong has its right value in our tables."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable

import pytest

from qwendeploy.tables.checkpoints import find_checkpoint
from qwendeploy.tables.decode import DecodeRow, decode_table
from qwendeploy.tables.images import find_image
from qwendeploy.tables.pools import PoolRow, pool_rows
from qwendeploy.tables.published import Experiment, PublishedRate, WrongValue
from qwendeploy.tables.quality import kl_rows, score_rows
from qwendeploy.tables.reader import read_table

CONTEXTS = {"0": (0,), "16k": (16384, 16000), "32k": (32768, 32000), "64k": (65536, 64000)}
CONTEXTS |= {"131k": (131072, 134144)}
V13 = "2026-05-27-v13"
D0A = "2026-05-05-d0a200f77546"


def _rates(session: str, concurrency: int, contexts: tuple[int, ...], **option: object) -> float:
    wanted = {"quant": "fp8", "spec_method": "mtp", "spec_tokens": 3, **option}
    rates = [
        row.aggregate_tps
        for row in decode_table("decode_study")
        if row.session == session
        and row.usable
        and row.aggregate_tps is not None
        and (row.concurrency, row.context in contexts) == (concurrency, True)
        and all(getattr(row, name) == value for name, value in wanted.items())
    ]
    return statistics.fmean(rates)


def _has_cell(session: str, concurrency: int, context: int) -> bool:
    return any(
        (row.session, row.concurrency, row.context, row.quant)
        == (session, concurrency, context, "fp8")
        for row in decode_table("decode_study")
    )


def _cells() -> list[WrongValue]:
    return [
        value
        for value in read_table("published_wrong", WrongValue)
        if re.search(r"c=\d+ x ", value.label)
    ]


@pytest.mark.parametrize(
    "value", [v for v in _cells() if v.unit == "tok/s" and v.right_value], ids=lambda v: v.row_id
)
def test_cell_has_its_right_rate(value: WrongValue) -> None:
    match = re.search(r"c=(\d+) x (\w+)$", value.label)
    assert match is not None and value.right_value is not None
    if value.label.startswith("best BF16"):
        rate = _rates(D0A, 4, (0,), quant="bf16", spec_method="dflash", spec_tokens=8)
    else:
        session = D0A if value.finding == "B2" else V13
        rate = _rates(session, int(match[1]), CONTEXTS[match[2]])
    assert rate == pytest.approx(float(value.right_value), abs=0.06)


@pytest.mark.parametrize(
    "value",
    [v for v in _cells() if v.finding == "B2" and not v.right_value],
    ids=lambda v: v.row_id,
)
def test_cell_that_was_never_measured_is_not_in_the_table(value: WrongValue) -> None:
    concurrency = int(value.label.split("c=")[1].split(" ")[0])
    assert not _has_cell(D0A, concurrency, 16384)
    assert not _has_cell(D0A, concurrency, 16000)


def _pool(experiment: str, quant: str = "fp8") -> PoolRow:
    (row,) = [
        row
        for row in pool_rows()
        if (row.experiment, row.quant, row.outcome) == (experiment, quant, "ok")
        and (row.image or "").startswith("repne/")
    ]
    return row


def _score(experiment: str, spec_tokens: int) -> float:
    return max(
        row.value
        for row in score_rows()
        if row.benchmark == "HumanEval"
        and row.status == "ok"
        and (row.experiment, row.spec_method, row.spec_tokens, row.quant)
        == (experiment, "mtp", spec_tokens, "fp8")
        and "rescored" in row.metric
        and row.value in (92.1, 95.7)
    )


def _mean_of(experiment: str, quant: str, draft: int, cell: Callable[[DecodeRow], bool]) -> float:
    rows = [
        row
        for row in decode_table("decode_study")
        if (row.experiment, row.quant, row.spec_tokens) == (experiment, quant, draft)
        and row.usable
        and cell(row)
    ]
    return statistics.fmean(row.aggregate_tps for row in rows if row.aggregate_tps is not None)


def _itl_of_v13_single_stream() -> float:
    return statistics.fmean(
        row.itl_ms
        for row in decode_table("decode_study")
        if (row.experiment, row.concurrency, row.context) == ("09-B", 1, 0)
        and row.usable
        and row.itl_ms is not None
    )


def _acceptance_of_v13_dflash() -> float:
    cells: dict[object, list[float]] = {}
    for row in decode_table("decode_study"):
        if row.experiment == "09-A" and row.usable and row.accept_rate is not None:
            cells.setdefault((row.concurrency, row.context), []).append(row.accept_rate)
    return 100 * statistics.fmean(statistics.fmean(rates) for rates in cells.values())


def _cost_of_no_speculation() -> float:
    drafted, plain = sorted(
        (
            row.rate_tps
            for row in read_table("published_rates", PublishedRate)
            if row.experiment == "07-phaseA" and row.kind == "task"
        ),
        reverse=True,
    )
    return 100 * (1 - plain / drafted)


def _kl(row_id: str) -> float:
    (row,) = [row for row in kl_rows() if row.row_id == row_id]
    return row.kl_ref_bits


@pytest.mark.parametrize(
    ("row_id", "ours", "tolerance"),
    [
        pytest.param("A5/26", lambda: _rates(V13, 1, (0,)), 0.06, id="quick-start-c1"),
        pytest.param("A5/27", lambda: _rates(V13, 32, (0,)), 0.06, id="quick-start-c32"),
        pytest.param(
            "D3/30", lambda: int((_pool("12").num_blocks or 0) / 343 * 262144), 1, id="v13-pool"
        ),
        pytest.param("B3/33", lambda: _mean_of("06", "bf16", 8, lambda _: True), 0.1, id="dflash8"),
        pytest.param("C8/38", _itl_of_v13_single_stream, 0.01, id="itl"),
        pytest.param("C9/39", _acceptance_of_v13_dflash, 0.05, id="acceptance"),
        pytest.param("F1/40", lambda: _score("rescore", 3), 0.05, id="humaneval-mtp3"),
        pytest.param("F1/41", lambda: _score("rescore", 5), 0.05, id="humaneval-mtp5"),
        pytest.param(
            "F1/42", lambda: _score("rescore", 5) - _score("rescore", 3), 0.05, id="humaneval-gap"
        ),
        pytest.param(
            "F4/44",
            lambda: _kl("study/fp8/multi") / _kl("study/bf16-self/multi"),
            0.06,
            id="kl-over-floor",
        ),
        pytest.param("F4/45", lambda: 1000 * _kl("study/fp8/multi"), 0.5, id="kl"),
        pytest.param("C7/46", _cost_of_no_speculation, 0.5, id="no-speculation"),
        pytest.param(
            "D7/48",
            lambda: _pool("12", "int4-autoround").weights_gib_per_gpu,
            0.01,
            id="autoround-weights",
        ),
        pytest.param("D10/49", lambda: _pool("09-A", "bf16").max_model_len, 0, id="length"),
        pytest.param("D8/50", lambda: _pool("19").max_model_len, 0, id="fp8-on-one-card"),
    ],
)
def test_number_is_the_right_one(row_id: str, ours: Callable[[], float], tolerance: float) -> None:
    (value,) = [
        value for value in read_table("published_wrong", WrongValue) if value.row_id == row_id
    ]
    assert value.right_value is not None
    assert ours() == pytest.approx(float(value.right_value), abs=tolerance)
    printed = value.printed_value.replace(",", "")
    if re.fullmatch(r"[\d.]+", printed):
        assert ours() != pytest.approx(float(printed), abs=tolerance)


@pytest.mark.parametrize(
    ("experiment", "low", "high"), [("12", 81, 85), ("09-A", 83.8, 88)], ids=["fp8", "bf16"]
)
def test_memory_in_use_is_what_was_measured(experiment: str, low: float, high: float) -> None:
    row = _pool(experiment, "fp8" if experiment == "12" else "bf16")
    assert row.vram_gib_per_gpu is not None
    assert low <= row.vram_gib_per_gpu <= high


def test_claimed_memory_is_kept_as_excluded() -> None:
    claims = [row for row in pool_rows() if row.evidence == "D2"]
    assert claims and {row.status for row in claims} == {"excluded"}


def test_n7_and_n8_are_not_exchanged() -> None:
    seven = _mean_of("06", "bf16", 7, lambda _: True)
    assert seven == pytest.approx(197.5, abs=0.1)
    assert 100 * (seven / _mean_of("06", "bf16", 8, lambda _: True) - 1) == pytest.approx(
        1.8, abs=0.1
    )


def test_labels_are_the_right_ones() -> None:
    v13 = find_image("repne/vllm:v13")
    assert v13 is not None and (v13.engine_version or "").startswith("0.1.dev17130+g155fef0e5")
    sixth = [
        row for row in read_table("experiments", Experiment) if row.experiment in ("06", "08-X1")
    ]
    assert {row.image for row in sixth} == {"repne/vllm:latest@d0a200f77546"}
    assert find_checkpoint("Qwen/Qwen3.6-27B-FP8") is not None


def test_mtp5_did_not_repeat_its_lead_at_depth() -> None:
    for session in ("2026-05-06-f8daec1dc883", "2026-05-12-v3"):
        five = _rates(session, 1, (131072,), spec_tokens=5)
        assert five < _rates(session, 1, (131072,))


def test_scores_of_the_broken_extractor_are_excluded() -> None:
    broken = [row for row in score_rows() if row.evidence and "F1" in row.evidence.split(";")]
    assert len(broken) >= 13
    assert {row.status for row in broken} == {"excluded"}
    assert 79.3 in {row.value for row in broken}
