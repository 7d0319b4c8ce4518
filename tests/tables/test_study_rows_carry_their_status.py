"""Every run of the study is in the table once, and says truthfully how far its rate may be used."""

from __future__ import annotations

import csv
import statistics
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from qwendeploy.tables.decode import DecodeRow, decode_table

FACTS = Path(__file__).parents[1] / "data" / "tables"
MASTER = "jcartu/qwen36-27b-blackwell-inference-study master-results.csv:"


def _facts(name: str) -> list[dict[str, str]]:
    with (FACTS / name).open(newline="") as handle:
        return list(csv.DictReader(handle))


@pytest.fixture(scope="module")
def master() -> dict[int, DecodeRow]:
    """Rows of the study's master file by its line."""
    rows = [row for row in decode_table("decode_study") if row.source.startswith(MASTER)]
    return {int(row.source.removeprefix(MASTER)): row for row in rows}


def test_all_runs_of_the_master_file_come_out_once(master: dict[int, DecodeRow]) -> None:
    lines = range(2, 799)  # of a published file, which does not grow
    assert sorted(master) == list(lines)
    assert len({row.row_id for row in master.values()}) == len(lines)
    assert all(row.n == 1 and row.repetition for row in master.values())


def test_published_cells_outside_the_master_file_come_out_once() -> None:
    rows = [row for row in decode_table("decode_study") if not row.source.startswith(MASTER)]
    assert rows
    cells = Counter(
        (row.experiment, row.config, row.concurrency, row.context, row.spec_tokens) for row in rows
    )
    assert set(cells.values()) == {1}


@pytest.mark.parametrize("fact", _facts("study_row_status.csv"), ids=lambda fact: fact["row"])
def test_row_that_is_not_plainly_usable_says_so(
    fact: dict[str, str], master: dict[int, DecodeRow]
) -> None:
    row = master[int(fact["line"])]
    assert row.row_id == f"study/{fact['row']}"
    assert row.status == fact["status"]
    assert row.evidence == fact["finding"]
    assert row.reason
    if fact["running"]:
        assert row.running == int(fact["running"])
    if fact["kv_usage"]:
        right = None if fact["kv_usage"] == "unknown" else float(fact["kv_usage"])
        assert row.kv_usage == right


def test_every_other_run_is_ok(master: dict[int, DecodeRow]) -> None:
    listed = {int(fact["line"]) for fact in _facts("study_row_status.csv")}
    others = [row for line, row in master.items() if line not in listed]
    assert listed < set(master)
    assert {row.status for row in others} == {"ok"}
    assert all(row.reason is None and row.aggregate_tps for row in others)


def test_means_of_experiment_nine_come_out_without_its_validation_cells() -> None:
    cells: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for row in decode_table("decode_study"):
        if row.experiment in ("09-A", "09-B") and row.usable:
            assert row.concurrency is not None and row.context is not None
            assert row.aggregate_tps is not None
            cells[row.experiment, row.concurrency, row.context].append(row.aggregate_tps)
    for fact in _facts("exp09_means.csv"):
        experiment = "09-A" if fact["config"].startswith("bf16") else "09-B"
        rates = cells[experiment, int(fact["concurrency"]), int(fact["context"])]
        assert len(rates) == int(fact["n"])
        assert statistics.fmean(rates) == pytest.approx(float(fact["mean_tps"]), abs=0.0015)
        assert statistics.pstdev(rates) == pytest.approx(float(fact["population_std"]), abs=0.0015)


def test_a_rate_that_did_not_finish_is_not_known_rather_than_zero() -> None:
    unfinished = [
        row for row in decode_table("decode_study") if row.status == "excluded" and not row.usable
    ]
    assert unfinished
    assert all(row.aggregate_tps is None or row.aggregate_tps > 0 for row in unfinished)


def test_label_of_experiment_one_is_the_image_that_really_ran() -> None:
    rows = [row for row in decode_table("decode_study") if row.experiment == "01"]
    assert {row.image for row in rows} == {"repne/vllm:latest@5e7583ca4df9"}


def test_streams_share_a_context_only_where_prefix_caching_ran() -> None:
    for row in decode_table("decode_study"):
        assert row.contexts == ("shared" if row.prefix_cache else "separate"), row.row_id
        assert row.prefix_cache == (row.quant != "nvfp4")
