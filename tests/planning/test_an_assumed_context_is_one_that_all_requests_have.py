"""Where the typical context is assumed, the plan runs every request at once at it."""

from __future__ import annotations

import pytest

from qwendeploy.documents import Plan, Workload
from qwendeploy.documents.request import Request
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.planning.recommend import recommend
from qwendeploy.tables.gpus import gpus


def plan(card: str, count: int, context: int, concurrency: int, typical: int | None = None) -> Plan:
    machine = stated_machine(card, count, catalogue=gpus())
    workload = Workload(concurrency=concurrency, max_context=context, typical_context=typical)
    return recommend(machine, workload, Request())


@pytest.mark.parametrize(
    ("card", "count", "context", "concurrency"),
    [
        ("RTX PRO 6000", 2, 262144, 32),
        ("RTX PRO 6000", 2, 262144, 64),
        ("RTX PRO 6000", 2, 262144, 128),
        ("RTX 4090", 2, 131072, 16),
        ("RTX 3090", 2, 32768, 16),
        ("RTX 5090", 1, 131072, 4),
        ("H100 SXM", 1, 262144, 32),
        ("H200", 8, 262144, 512),
    ],
)
def test_all_requests_run_at_the_assumed_context(
    card: str, count: int, context: int, concurrency: int
) -> None:
    made = plan(card, count, context, concurrency)
    figures = made.predictions
    assert figures.max_running_requests and figures.max_typical_context_tokens
    assert made.operating_point.context_assumed
    assert made.operating_point.context <= context // 8
    assert made.operating_point.context <= figures.max_typical_context_tokens.value
    assert figures.max_running_requests.value == concurrency


def test_a_stated_context_stays_though_not_all_run_at_it() -> None:
    made = plan("RTX PRO 6000", 2, 262144, 128, typical=32768)
    assert made.operating_point.context == 32768
    assert made.predictions.max_running_requests
    assert made.predictions.max_running_requests.value < 128
