"""Plan against server: confirmed, refuted, inconclusive, on rate and on fill."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from known import known_server
from measuring import POOL, small_plan, verified

from qwendeploy.documents import RunDocument
from qwendeploy.figures import Kind
from qwendeploy.verification.judging.causes import likely_causes


def test_rate_and_fill_confirm_a_true_plan(tmp_path: Path) -> None:
    with known_server(tmp_path, *POOL) as known:
        run, report = verified(known.url, small_plan(), fill=True, calm=True)
    assert report.outcome == "confirmed", report.statement
    assert report.exit_code == 0
    assert run.status == "complete"
    assert {check.id: check.outcome for check in run.fill.checks} == dict.fromkeys(
        ("running", "waiting", "preemptions", "blocks", "full_length"), "confirmed"
    )
    assert run.fill.full_length_tokens is not None and run.fill.full_length_tokens > 7800
    verdicts = {verdict.quantity: verdict for verdict in report.verdicts}
    assert verdicts["aggregate_decode_tps"].decisive
    assert verdicts["kv_pool_blocks"].outcome == "confirmed"
    assert run.server is not None and run.server.version == "0.22.0"
    assert run.server.drafting is True
    assert run.machine_id is not None
    assert run.plan == small_plan().model_copy(update={"alternatives": (), "trace": ()})
    step = next(step for step in run.steps if step.shape == "decode")
    assert step.server["acceptance_length"] == pytest.approx(2.0, abs=0.05)
    assert step.context_mean == pytest.approx(600, rel=0.6)


@pytest.mark.parametrize(
    ("rate", "spread", "outcome", "code"),
    [
        pytest.param(700, 0.1, "refuted", 1, id="faster-promised"),
        pytest.param(200, 0.1, "refuted", 1, id="slower-promised"),
        pytest.param(330, 0.12, "inconclusive", 3, id="crosses-an-end"),
        pytest.param(300, 0.3, "inconclusive", 3, id="band-too-wide"),
    ],
)
def test_rate_decides_three_ways(
    tmp_path: Path, rate: float, spread: float, outcome: str, code: int
) -> None:
    with known_server(tmp_path, *POOL) as known:
        _, report = verified(known.url, small_plan(rate, spread), fill=True, hold_s=0.3, calm=True)
    assert (report.outcome, report.exit_code) == (outcome, code), report.statement
    assert report.wide is (spread > 0.2)


def test_quick_says_what_it_did_not_test(tmp_path: Path) -> None:
    with known_server(tmp_path, *POOL) as known:
        _, quick = verified(known.url, small_plan(), calm=True)
        _, rate_only = verified(known.url, small_plan(), rate_only=True, calm=True)
    assert quick.statement.startswith("rate confirmed, fill not tested")
    assert (quick.outcome, quick.exit_code) == ("inconclusive", 3)
    assert rate_only.exit_code == 0
    assert not quick.fill.tested


def test_a_pool_too_small_refutes_the_fill(tmp_path: Path) -> None:
    """Room for two of three contexts of 2,400 tokens: 15 blocks each, 32 in all."""
    with known_server(tmp_path, *POOL, "--blocks", "32", "--max-model-len", "6000") as known:
        plan = small_plan()
        option = plan.option.model_copy(update={"max_model_len": 6000})
        run, report = verified(known.url, plan.model_copy(update={"option": option}), fill=True)
    assert run.fill.outcome == "refuted"
    checks = {check.id: check for check in run.fill.checks}
    assert checks["running"].outcome == "refuted"
    assert "2 of 3" in checks["running"].text
    assert checks["waiting"].outcome == "refuted"
    assert report.outcome == "refuted"
    assert "fill refuted" in report.statement


def test_blocks_held_otherwise_than_planned_refute_the_fill(tmp_path: Path) -> None:
    """The same server with another block size holds other numbers than the arithmetic says."""
    with known_server(tmp_path, *POOL, "--block-tokens", "400") as known:
        run, _ = verified(known.url, small_plan(), fill=True, calm=True)
    checks = {check.id: check.outcome for check in run.fill.checks}
    assert checks["running"] == "confirmed"
    assert checks["blocks"] == "refuted"
    assert run.fill.outcome == "refuted"


def test_fewer_seats_than_streams_are_measured_and_named(tmp_path: Path) -> None:
    with known_server(tmp_path, *POOL, "--max-num-seqs", "2") as known:
        run, report = verified(known.url, small_plan(), calm=True)
    step = next(step for step in run.steps if step.shape == "decode")
    assert any("at most 2 of 3 requests" in note for note in step.notes)
    assert all(not window.clean for window in step.windows)
    assert report.outcome == "refuted"
    ids = [cause.id for cause in report.causes]
    assert "fewer-streams" in ids
    cause = report.causes[ids.index("fewer-streams")]
    assert "max-num-seqs is the limit" in cause.evidence


def test_shared_contexts_are_warmed_and_separate_ones_are_not(tmp_path: Path) -> None:
    settings = (*POOL, "--prefix-cache", "--block-tokens", "100", "--prefill-tps", "4000")
    with known_server(tmp_path, *settings) as known:
        shared, _ = verified(known.url, contexts="shared", context=2000)
        separate, _ = verified(known.url, contexts="separate", context=2000)
    hits = {}
    for name, run in (("shared", shared), ("separate", separate)):
        step = next(step for step in run.steps if step.shape == "decode")
        assert step.contexts == name
        queries = step.server["prefix_queries"]
        assert queries
        hits[name] = (step.server["prefix_hits"] or 0) / queries
    assert hits["shared"] > 0.9
    assert hits["separate"] == 0
    cold, warm = shared.figures["ttft_cold_ms"], shared.figures["ttft_warm_ms"]
    assert cold is not None and warm is not None
    assert cold.value > warm.value + 300


def test_a_boot_may_not_confirm_what_was_calibrated_from_it(tmp_path: Path) -> None:
    with known_server(tmp_path, *POOL, "--boot-epoch", "1796000000.25") as known:
        plan = small_plan()
        rate = plan.predictions.aggregate_decode_tps
        assert rate is not None
        own = rate.model_copy(
            update={"kind": Kind.MEASURED_HERE, "source": "run x, boot 1796000000.25"}
        )
        predictions = plan.predictions.model_copy(update={"aggregate_decode_tps": own})
        _, report = verified(known.url, plan.model_copy(update={"predictions": predictions}))
    verdict = report.verdicts[0]
    assert verdict.outcome == "inconclusive"
    assert "calibrated from this boot" in verdict.reason


def test_measuring_without_a_plan_confirms_nothing(tmp_path: Path) -> None:
    with known_server(tmp_path, "--tokens", "2") as known:
        run, report = verified(known.url)
    assert report.outcome is None
    assert report.exit_code == 0
    assert run.figures["aggregate_decode_tps"] is not None
    assert run.fill.tested is False


@pytest.mark.parametrize("version", ["0.20.1", "0.32.0"])
def test_length_rules_of_both_versions_are_kept(tmp_path: Path, version: str) -> None:
    """0.20.1 refuses prompt + max_tokens beyond the length, 0.32.0 clamps: both are measured."""
    settings = ("--version", version, "--max-model-len", "1500", "--tokens", "2", "--step-ms", "10")
    with known_server(tmp_path, *settings) as known:
        run, _ = verified(known.url, context=1400, windows=2)
    assert run.figures["aggregate_decode_tps"] is not None, run.reasons
    assert not any(step.requests.failed for step in run.steps)


def test_the_document_on_disk_is_whole_and_reads_back(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with known_server(tmp_path, *POOL) as known:
        run, _ = verified(known.url, small_plan(), directory=directory)
    stored = RunDocument.model_validate(json.loads((directory / "run.json").read_text()))
    assert stored.run_id == run.run_id
    assert stored.figures == run.figures
    assert [path.name for path in directory.iterdir()] == ["run.json"]
    assert likely_causes(stored, None) == likely_causes(run, None)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        pytest.param(("--root", "Qwen/Qwen3.6-27B"), "checkpoint qwen3.6-27b", id="checkpoint"),
        pytest.param(("--cache-dtype", "fp8"), "kv_cache_dtype fp8 instead of bf16", id="kv-type"),
        pytest.param(("--gpu-memory-utilization", "0.7"), "0.7 instead of 0.85", id="share"),
    ],
)
def test_a_server_that_runs_another_plan_confirms_nothing(
    tmp_path: Path, other: tuple[str, str], says: str
) -> None:
    plan = small_plan()
    option = plan.option.model_copy(update={"checkpoint": "Qwen/Qwen3.6-27B-FP8"})
    root = () if other[0] == "--root" else ("--root", "Qwen/Qwen3.6-27B-FP8")
    with known_server(tmp_path, *POOL, *root, *other) as known:
        _, report = verified(known.url, plan.model_copy(update={"option": option}), rate_only=True)
    assert (report.outcome, report.exit_code) == ("inconclusive", 3), report.statement
    assert "differs from the plan" in report.statement
    assert says in report.statement


def test_a_server_that_refuses_requests_is_not_confirmed_by_the_others(tmp_path: Path) -> None:
    faults = json.dumps([{"kind": "status", "value": 500, "every": 4}])
    with known_server(tmp_path, *POOL, "--faults", faults) as known:
        plan = small_plan(800, concurrency=8)
        run, report = verified(known.url, plan, rate_only=True)
    decode = next(step for step in run.steps if step.shape == "decode")
    assert decode.requests.failed, "no request met the fault"
    assert (report.outcome, report.exit_code) == ("inconclusive", 3), report.statement
    rate = next(one for one in report.verdicts if one.quantity == "aggregate_decode_tps")
    assert "the server refused" in rate.reason


def test_nothing_that_slows_is_named_for_a_rate_above_the_band(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (90.0, 90.0, 90.0))
    with known_server(tmp_path, *POOL) as known:
        _, faster = verified(known.url, small_plan(200), rate_only=True)
        _, slower = verified(known.url, small_plan(700), rate_only=True)
    assert (faster.outcome, slower.outcome) == ("refuted", "refuted")
    assert [cause.id for cause in faster.causes] == []
    assert "host-busy" in [cause.id for cause in slower.causes]
