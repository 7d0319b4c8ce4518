"""A plan says what content, load and context would change: ranges and turning points."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from qwendeploy.documents import Content, Plan, Workload
from qwendeploy.documents.request import Pins, Request
from qwendeploy.figures import Kind
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.planning.recommend import recommend
from qwendeploy.tables.gpus import gpus

STUDY_CARD = "RTX PRO 6000 Blackwell Workstation"


@cache
def plan(
    gpu: str = STUDY_CARD,
    count: int = 2,
    content: Content = Content.MIXED,
    c: int = 32,
    **pins: Any,
) -> Plan:
    machine = stated_machine(gpu, count, catalogue=gpus())
    workload = Workload(concurrency=c, max_context=131072, contexts="shared", content=content)
    return recommend(machine, workload, Request(pins=Pins(**pins)))


def entry(made: Plan, rule: str) -> str:
    return next(item.reason for item in made.trace if item.rule == rule)


def test_measured_rate_is_of_the_studys_text_and_its_range_over_content_stands_beside_it() -> None:
    figures = plan().predictions
    rate, span = figures.aggregate_decode_tps, figures.aggregate_decode_tps_over_content
    assert rate is not None and span is not None
    assert span.value == rate.value
    assert rate.half_width < 0.2
    assert span.low <= rate.low and span.high == pytest.approx(rate.high * 1.31)
    assert "prose to code" in span.source


def test_stated_content_has_no_range() -> None:
    code, mixed = plan(content=Content.CODE), plan()
    rate, usual = code.predictions.aggregate_decode_tps, mixed.predictions.aggregate_decode_tps
    assert code.predictions.aggregate_decode_tps_over_content is None
    assert "stated" in code.predictions.reasons["aggregate_decode_tps_over_content"]
    assert rate is not None and usual is not None and rate.value > 1.2 * usual.value


def test_carried_over_rate_is_of_mixed_text_and_its_range_stands_beside_it() -> None:
    usual = plan("RTX 3090", 2, c=4).predictions
    rate, span = usual.aggregate_decode_tps, usual.aggregate_decode_tps_over_content
    stated = plan("RTX 3090", 2, Content.PROSE, 4).predictions.aggregate_decode_tps
    assert rate is not None and span is not None and stated is not None
    assert rate.kind is span.kind is Kind.TRANSFERRED
    assert stated.value < rate.value == span.value
    assert span.low < rate.low and rate.high < span.high
    assert "prose to code" in span.source


def test_without_drafting_content_does_not_matter() -> None:
    made = plan(spec_method="none")
    assert made.predictions.aggregate_decode_tps_over_content is None
    assert "draft-crossover" not in {item.rule for item in made.trace}


def test_draft_names_the_load_it_pays_up_to_and_the_state_it_holds() -> None:
    text = entry(plan(), "draft-crossover")
    assert "mtp3 is faster than no draft" in text
    assert "319 MiB of state per GPU with it, 74 MiB without" in text


def test_layouts_cross_where_the_study_measured_it() -> None:
    """Two cards on PCIe, FP8 + MTP3, one session: -26 % at 4, even at 32, +21 % at 64 requests."""
    text = entry(plan(quant="fp8", spec_method="mtp", spec_tokens=3), "layout-crossover")
    assert "2 x tp1 vs tp2 (PCIe)" in text
    assert "-26% at c=4, +1% at c=32, +21% at c=64, faster from c=32 at short context" in text
    assert "concurrent requests at 64k: 25 with tp2, 18 with 2 x tp1" in text


def test_nvlink_is_told_from_pcie() -> None:
    assert "(NVLink)" in entry(plan("H100 SXM", 8, c=64), "layout-crossover")


def test_eight_ranks_are_warned_of() -> None:
    made = plan(count=8, tp=8)
    assert "tp8-replicates-kv-heads" in {warning.rule for warning in made.warnings}


def test_one_card_has_no_layout_to_compare() -> None:
    assert "layout-crossover" not in {item.rule for item in plan(count=1).trace}
