"""Behind a router every replica's counters are read, or none: one of several says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from known import free_port, known_server
from known_router import known_router
from measuring import POOL, small_plan, verified

from qwendeploy.documents import Plan
from qwendeploy.engines.metrics import parse_metrics
from qwendeploy.reporting.verify_text import verify_text


def two(plan: Plan) -> Plan:
    return plan.model_copy(
        update={"option": plan.option.model_copy(update={"replicas": 2, "tp": 1})}
    )


@contextmanager
def routed(tmp_path: Path, *, beside: bool) -> Iterator[str]:
    """Run two servers behind a router, on the ports after its own or elsewhere."""
    port = free_port()
    places = [port + 1, port + 2] if beside else [free_port(), free_port()]
    with ExitStack() as stack:
        for number, place in enumerate(places):
            settings = (*POOL, "--port", str(place), "--boot-epoch", str(1.79e9 + number))
            stack.enter_context(known_server(tmp_path, *settings))
        yield stack.enter_context(known_router(port, places))


def test_replicas_beside_their_router_are_all_read(tmp_path: Path) -> None:
    with routed(tmp_path, beside=True) as url:
        run, report = verified(url, two(small_plan(400, concurrency=4)), fill=True, calm=True)
    assert run.server is not None
    assert (run.server.replicas, run.server.replicas_told) == (2, 2)
    step = next(step for step in run.steps if step.shape == "decode")
    assert {window.server_running_low for window in step.windows} == {4}
    assert step.server["tokens_over_client"] == pytest.approx(1, abs=0.03)
    assert run.fill.outcome == "confirmed", run.fill
    assert report.outcome == "confirmed", report.statement


@pytest.mark.parametrize("planned", [True, False])
def test_counters_of_one_replica_judge_nothing(tmp_path: Path, planned: bool) -> None:
    plan = two(small_plan(400, concurrency=4)) if planned else None
    with routed(tmp_path, beside=False) as url:
        run, report = verified(url, plan, calm=True, concurrency=4)
    assert run.server is not None
    assert (run.server.replicas, run.server.replicas_told) == (2, 1)
    assert "/metrics of all replicas" in run.server.not_offered
    step = next(step for step in run.steps if step.shape == "decode")
    assert {window.server_running_low for window in step.windows} == {None}
    assert all(window.clean for window in step.windows)
    rate = run.figures["aggregate_decode_tps"]
    assert rate is not None and rate.value == pytest.approx(400, rel=0.03)
    assert "metrics of only one of 2 replicas" in verify_text(report)
    assert {cause.id for cause in report.causes} <= {"host-busy"}


def test_pages_put_together_by_a_router_are_as_many_engines() -> None:
    page = (
        'vllm:num_requests_running{{engine="{n}.0"}} 3.0\n'
        'vllm:kv_cache_usage_perc{{engine="{n}.0"}} 0.{n}\n'
        'vllm:generation_tokens_total{{engine="{n}.0"}} 100.0\n'
        "process_start_time_seconds 1.0{n}e9\n"
    )
    both = parse_metrics(page.format(n=1) + page.format(n=2))
    assert (both.engines, both.get("running"), both.get("generation_tokens")) == (2, 6, 200)
    assert both.get("kv_usage") == pytest.approx(0.15)
    restarted = parse_metrics(page.format(n=1) + page.format(n=3))
    assert restarted.since(both, "generation_tokens") is None
