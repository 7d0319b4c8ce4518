"""Runs of several boots pooled, the foreign result format, the client's own error."""

from __future__ import annotations

from pathlib import Path

import pytest
from known import known_server
from measuring import POOL, small_plan, verified

from qwendeploy.documents import RunDocument
from qwendeploy.errors import UserError
from qwendeploy.reporting.verify_text import self_test_text
from qwendeploy.verification.bench_serve import bench_serve_result
from qwendeploy.verification.judging.boots import pool_runs
from qwendeploy.verification.self_test import Rung, SelfTest, self_test
from qwendeploy.verification.verifying import report_on

from plan_samples import figure  # isort: skip


def booted(run: RunDocument, boot: str, rate: float) -> RunDocument:
    """Return the run as another boot with another rate would have given it."""
    assert run.server is not None
    server = run.server.model_copy(update={"boot_id": boot})
    figures = {**run.figures, "aggregate_decode_tps": figure(rate, "tok/s", 0.001)}
    return run.model_copy(update={"server": server, "figures": figures})


def test_three_boots_need_no_allowance(tmp_path: Path) -> None:
    """A band of ±3 % cannot be confirmed from one boot, from three that agree it can."""
    with known_server(tmp_path, *POOL) as known:
        plan = small_plan(300, 0.03)
        run, one = verified(known.url, plan, repeats=1, calm=True)
    assert one.verdicts[0].outcome == "inconclusive"
    boots = [booted(run, f"{i}", rate) for i, rate in enumerate((299, 301, 300.5))]
    pooled = pool_runs(boots)
    rate = pooled.figures["aggregate_decode_tps"]
    assert rate is not None and rate.n == 3
    assert rate.low == pytest.approx(300.167 - 1.755, abs=0.1)
    report = report_on(pooled, plan, rate_only=True)
    assert report.verdicts[0].outcome == "confirmed"
    assert report.exit_code == 0
    two = pool_runs(boots[:2])
    assert report_on(two, plan).verdicts[0].outcome == "inconclusive"
    with pytest.raises(UserError, match="the same boot"):
        pool_runs([boots[0], boots[0]])
    other = boots[1].model_copy(update={"operating_point": {**run.operating_point, "context": 7}})
    with pytest.raises(UserError, match=r"operating_point\.context"):
        pool_runs([boots[0], other])


def test_export_has_the_keys_and_formulas_of_vllm_bench_serve(tmp_path: Path) -> None:
    with known_server(tmp_path, *POOL) as known:
        run, _ = verified(known.url, keep_requests=True, repeats=1)
    result = bench_serve_result(run)
    keys = {"date", "backend", "model_id", "num_prompts", "max_concurrency", "duration",
            "completed", "failed", "total_input_tokens", "total_output_tokens",
            "output_throughput", "ttfts", "itls", "mean_ttft_ms", "median_tpot_ms",
            "std_itl_ms", "p99_e2el_ms", "spec_decode_acceptance_length"}  # fmt: skip
    assert keys <= set(result)
    assert result["completed"] == 2 and result["failed"] == 0
    assert result["total_output_tokens"] == sum(result["output_lens"])
    assert result["output_throughput"] == result["total_output_tokens"] / result["duration"]
    assert result["mean_tpot_ms"] == pytest.approx(10, rel=0.05)
    assert result["mean_itl_ms"] == pytest.approx(20, rel=0.05)
    assert result["spec_decode_acceptance_length"] == pytest.approx(2, abs=0.05)
    assert result["qwendeploy"]["cut"] is True


def test_self_test_finds_the_client_right_here() -> None:
    found = self_test((1, 16))
    assert found.ceiling == 16
    assert all(abs(rung.ttft_error_ms) < 30 for rung in found.rungs)
    text = self_test_text(found)
    assert "within 1 % up to 16 concurrent requests" in text


def test_self_test_names_the_first_rung_that_is_wrong() -> None:
    def rung(c: int, error: float, failed: int = 0) -> Rung:
        return Rung(c, 1.0, error, 0.0, 0.1, 1.0, failed)

    assert SelfTest((rung(1, 0.001), rung(8, 0.02), rung(32, 0.0)), 0.0, "x").ceiling == 1
    assert SelfTest((rung(1, 0.0, failed=1),), 0.0, "x").ceiling is None
    assert "another host" in self_test_text(SelfTest((rung(1, 0.5),), 0.0, "x"))
