"""Options tie only if they hold the load alike; what ranks, and how near a tie is, is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from conftest import Ran

from qwendeploy.documents import Machine, Objective, Plan, Workload
from qwendeploy.documents.request import Request
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.planning.ranking import preference, rank, tie, tie_width, tie_words
from qwendeploy.planning.recommend import best_survey, make_scene, recommend
from qwendeploy.planning.survey import Survey
from qwendeploy.tables.gpus import gpus


def box(gpu: str, count: int = 1, **stated: Any) -> Machine:
    return stated_machine(gpu, count, catalogue=gpus(), **stated)


def surveyed(machine: Machine, workload: Workload) -> Survey:
    return best_survey(make_scene(machine, workload, Request()))[0]


ALL, SOME, FEW = ((8, 8), (8, 8)), ((8, 8), (4, 5)), ((8, 8), (1, 3))


@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [
        pytest.param(ALL, ALL, "bf16", id="alike: the stricter class"),
        pytest.param(FEW, SOME, "fp8", id="surely fewer of full length"),
        pytest.param(((8, 8), (3, 5)), SOME, "bf16", id="bands of the pools overlap"),
        pytest.param(((6, 7), (6, 7)), SOME, "fp8", id="surely fewer at the load's context"),
        pytest.param(((8, 8), (1, 3)), ((5, 7), (5, 7)), "bf16", id="the load goes before"),
    ],
)
def test_a_tie_goes_to_what_holds_the_load(
    first: tuple[tuple[int, int], ...], second: tuple[tuple[int, int], ...], wins: str
) -> None:
    found = surveyed(box("H100 PCIe"), Workload(concurrency=8, max_context=131072)).ranked
    bf16, fp8 = (
        next(
            item
            for item in found
            if (item.candidate.option.quant, item.candidate.option.spec_tokens) == (quant, 3)
        )
        for quant in ("bf16", "fp8")
    )
    pair = [
        replace(bf16, predictions=fp8.predictions, held=first),
        replace(fp8, held=second),
    ]
    for order in (pair, pair[::-1]):
        best, other = rank(order, Objective.THROUGHPUT)
        assert best.candidate.option.quant == wins
        told = preference(best, other, Objective.THROUGHPUT)
        assert ("is in quality class reference" in told) == (wins == "bf16" and first != FEW)
        assert ("at once, the other at most" in told) == (wins == "fp8" or first == FEW)


@pytest.mark.parametrize(
    ("gpu", "count", "workload"),
    [
        ("H100 PCIe", 1, {"concurrency": 8, "max_context": 131072}),
        ("RTX PRO 6000", 2, {"concurrency": 32, "max_context": 262144, "typical_context": 131072}),
        ("RTX 3090", 4, {"concurrency": 16, "max_context": 65536}),
        ("H200", 2, {"concurrency": 48, "max_context": 131072}),
        ("L40S", 2, {"concurrency": 8, "max_context": 65536}),
    ],
    ids=str,
)
def test_no_tied_option_holds_surely_more_than_the_chosen_one(
    gpu: str, count: int, workload: dict[str, Any]
) -> None:
    best, *others = surveyed(box(gpu, count), Workload(**workload)).ranked

    for other in others:
        if tie(other, best, Objective.THROUGHPUT):
            running, full = (
                less[1] < more[0] for less, more in zip(best.held, other.held, strict=True)
            )
            assert not running
            assert not full or best.held[0][0] > other.held[0][1]


def test_the_width_of_a_tie_is_in_the_trace() -> None:
    machines = [box("H200"), box("RTX 5090"), box("RTX PRO 6000", 2), box("RTX 3090", 4)]
    plans = [
        recommend(machine, Workload(concurrency=concurrency, max_context=32768))
        for machine in machines
        for concurrency in (1, 4, 16, 32)
    ]
    tied = [entry.reason for plan in plans for entry in plan.trace if "ties on" in entry.reason]

    assert tied
    assert all("(within " in text or "its median is within the band" in text for text in tied)


def test_the_width_of_a_tie_is_explained(run: Callable[..., Ran]) -> None:
    ran = run("explain", "tie")
    flat = " ".join(ran.out.split())

    assert ran.code == 0
    assert "within 2 %" in flat
    assert "quarter of the wider half band" in flat


# --- prompts ---

PROMPTS = {"concurrency": 16, "max_context": 32768, "isl": 16384, "osl": 256}


def ends(plan: Plan) -> list[tuple[float, float]]:
    """Return (decode, end to end) low ends of the plan and its runner-ups."""
    found = [plan.predictions, *(other.predictions for other in plan.alternatives)]
    return [
        (figures.aggregate_decode_tps.low, figures.output_tps_end_to_end.low)
        for figures in found
        if figures.aggregate_decode_tps and figures.output_tps_end_to_end
    ]


@pytest.mark.parametrize("gpu", ["H100 PCIe", "H200", "RTX PRO 6000", "L40S"])
def test_stated_prompts_and_answers_are_ranked_end_to_end(gpu: str) -> None:
    found = surveyed(box(gpu), Workload(**PROMPTS))
    best = found.ranked[0]

    assert best.end_to_end
    assert best.figure(Objective.THROUGHPUT) is best.predictions.output_tps_end_to_end
    for other in found.ranked[1:]:
        worse = other.score(Objective.THROUGHPUT) <= best.score(Objective.THROUGHPUT)
        assert worse or tie(best, other, Objective.THROUGHPUT)


@pytest.mark.parametrize(
    "left", [{"isl": None}, {"osl": None}, {"objective": Objective.LATENCY}], ids=str
)
def test_what_would_be_assumed_does_not_rank(left: dict[str, Any]) -> None:
    found = surveyed(box("H200"), Workload(**{**PROMPTS, **left}))

    assert not found.ranked[0].end_to_end


def test_both_rates_are_shown(run: Callable[..., Ran]) -> None:
    ran = run(
        *("recommend", "--gpu", "H200", "--c", "16", "--ctx", "32k"),
        *("--isl", "16k", "--osl", "256"),
    )
    flat = " ".join(ran.out.split())

    assert "ranked end to end" in flat
    assert flat.count("tok/s") >= 4
    assert "output tokens/s end to end" in flat


def test_a_limit_on_tokens_that_prompts_break_is_said(run: Callable[..., Ran]) -> None:
    ran = run(
        *("recommend", "--gpu", "H200", "--c", "16", "--ctx", "32k"),
        *("--isl", "16k", "--osl", "256", "--tpot", "30"),
    )
    flat = " ".join(ran.out.split())

    assert "--tpot 30 is met while no prompt is prefilled" in flat


def test_a_measured_decode_rate_is_no_measured_closed_loop() -> None:
    """BF16 without drafts was measured on the H200; no closed loop of anything was."""
    asked = Workload(concurrency=1024, max_context=32768, isl=4096, osl=1024)
    best, *others = surveyed(box("H200", 8), asked).ranked

    assert best.candidate.option.quant == "fp8"
    for other in others:
        middles = [item.score(Objective.THROUGHPUT, "value") for item in (best, other)]
        assert middles[1] < middles[0] * 1.2


def test_prompts_and_answers_are_the_full_length_where_they_are_stated() -> None:
    """Eight requests of 24.9k at most: what holds eight of 32k does not decide."""
    asked = Workload(concurrency=8, max_context=32768, isl=24576, osl=300)
    best = surveyed(box("RTX 6000 Ada"), asked).ranked[0]

    assert best.candidate.option.spec_method == "mtp"
    assert best.held[1][0] == 8


def test_where_never_all_run_capacity_is_how_many_do() -> None:
    asked = Workload(concurrency=300, max_context=262144, objective=Objective.CAPACITY)
    best, *others = surveyed(box("H200"), asked).ranked

    assert best.predictions.max_typical_context_tokens is not None
    assert best.predictions.max_typical_context_tokens.value == 0
    assert best.running >= 0.98 * max(other.running for other in others)


def test_what_fp8_kv_would_hold_is_named_where_it_is_all(run: Callable[..., Ran]) -> None:
    ran = run("recommend", "--gpu", "RTX 5090", "--c", "2", "--ctx", "64k")

    assert "All fit with --kv-cache-dtype fp8." in " ".join(ran.out.split())


def test_a_tie_is_told_by_a_width_only_where_the_scores_stand_within_it() -> None:
    asked = Workload(
        concurrency=16, max_context=65536, isl=2048, osl=256, prefix_hit=0.9, contexts="separate"
    )
    result = surveyed(box("RTX PRO 6000", 2), asked)
    best, *others = result.ranked
    objective = asked.objective

    told = [(item, tie_words(item, best, objective)) for item in others]
    assert {words.partition(" ")[0] for _, words in told} > {"within"}
    for item, words in told:
        lower, upper = sorted(each.score(objective) for each in (item, best))
        close = lower >= upper * (1 - tie_width(item, best, objective))
        assert words.startswith("within") == close
