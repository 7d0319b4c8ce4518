"""What following the advice costs, and situations where the constant answer is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pydantic import ValidationError

from qwendeploy.documents import Machine, Plan, Workload
from qwendeploy.documents.request import Request
from qwendeploy.errors import DataError, NoPlan, UserError
from qwendeploy.evaluation.decision_flips import (
    Situation,
    judge_all,
    judge_situation,
    meets,
    situations,
)
from qwendeploy.evaluation.regret import (
    Choice,
    decide,
    holds,
    merged,
    regret,
    regret_of,
    summarise,
)
from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.planning.recommend import recommend
from qwendeploy.tables.series import Series, all_series


def test_regret_within_a_session_is_small_and_no_worse_than_the_constant() -> None:
    within, _ = regret()
    assert within.n > 100
    assert within.mean <= 0.01
    assert within.mean_there <= within.constant_mean
    assert within.worst <= 0.05


def test_regret_across_images_is_small() -> None:
    _, across = regret()
    assert across.n > 20
    assert across.mean <= 0.03
    assert across.worst <= 0.08
    assert across.constant_mean > across.mean_there


def series_of(session: str, quant: str, tp: int) -> Series:
    return next(
        series
        for series in all_series()
        if (series.key.session, series.key.quant, series.key.tp) == (session, quant, tp)
        and len(series.cells) > 20
    )


@pytest.mark.parametrize(
    ("concurrency", "context", "fits"),
    [
        pytest.param(32, 0, True, id="short requests fit"),
        pytest.param(16, 65536, True, id="16 x 64k fit"),
        pytest.param(32, 65536, False, id="32 x 64k do not, though the study measured the cell"),
        pytest.param(16, 131072, False, id="16 x 128k do not"),
    ],
)
def test_distinct_contexts_are_checked_for_capacity(
    concurrency: int, context: int, fits: bool
) -> None:
    series = series_of("2026-05-27-v13", "fp8", 2)
    assert holds(series, concurrency, context) is fits


def choice(
    measured: float, predicted: float, *, reach: float = 0.05, noise: float = 0.01, at: int = 0
) -> Choice:
    series = [series for series in all_series() if len(series.cells) > 20][at]
    band = Estimate(
        predicted, predicted * (1 - reach), predicted * (1 + reach), Kind.MEASURED, 3, "x"
    )
    return Choice(series, 1, measured, band, noise, len(series.cells))


def test_the_conservative_end_decides() -> None:
    safe, bold = choice(100, 100, reach=0.02), choice(100, 105, reach=0.2, at=1)
    assert decide([bold, safe]) is safe


def test_differences_inside_the_noise_are_no_regret() -> None:
    best, same, worse = choice(100, 100), choice(97, 100, at=1), choice(80, 100, at=2)
    assert regret_of(best, best) == 0
    assert regret_of(same, best) == 0
    assert regret_of(worse, best) == pytest.approx(0.2)


def test_series_of_one_option_are_repetitions() -> None:
    one = choice(100, 90)
    other = dataclasses.replace(one, measured=110, predicted=dataclasses.replace(one.predicted))
    both = merged([one, other])
    assert len(both) == 1
    assert both[0].measured == pytest.approx(105)
    assert both[0].noise < one.noise


def test_nothing_to_decide_is_no_result() -> None:
    with pytest.raises(ValueError, match="nothing to decide"):
        summarise("empty", [])


def test_the_flip_set_is_large_and_sourced() -> None:
    counted = [situation for situation in situations() if situation.constant != "right"]
    assert len(counted) >= 20
    assert all(situation.evidence and situation.why for situation in situations())
    assert len({situation.machine.gpu for situation in counted}) >= 8


def test_nine_in_ten_flips_are_right() -> None:
    results = [result for result in judge_all(recommend) if result.constant != "right"]
    wrong = [f"{result.id}: {result.missed}" for result in results if not result.right]
    assert len(wrong) <= len(results) / 10, wrong


@pytest.mark.parametrize(
    ("value", "condition", "expected"),
    [
        pytest.param("fp8", "fp8", True, id="equal"),
        pytest.param("fp8", ["bf16", "fp8"], True, id="one of"),
        pytest.param("fp8", ["bf16"], False, id="none of"),
        pytest.param(4, {"ge": 2, "lt": 5}, True, id="both bounds"),
        pytest.param(5, {"ge": 2, "lt": 5}, False, id="one bound missed"),
        pytest.param("vllm/vllm-openai:v1-cu129", {"matches": "cu12"}, True, id="pattern"),
        pytest.param(["a", "b"], {"contains": "a"}, True, id="contains"),
        pytest.param(None, {"contains": "a"}, False, id="missing contains nothing"),
        pytest.param(None, {"lacks": "a"}, True, id="missing lacks"),
        pytest.param("xay", {"lacks": "a"}, False, id="does not lack"),
        pytest.param(None, None, True, id="not set"),
        pytest.param("x", None, False, id="set though it must not be"),
        pytest.param(None, {"ne": "x"}, True, id="missing is not equal"),
        pytest.param(None, {"gt": 1}, False, id="missing is no number"),
        pytest.param("a", {"not_in": ["b"]}, True, id="not in"),
    ],
)
def test_conditions_mean_what_they_say(value: Any, condition: Any, expected: bool) -> None:
    assert meets(value, condition) is expected


def test_an_unknown_operator_is_an_error() -> None:
    with pytest.raises(DataError, match="unknown operator"):
        meets(1, {"about": 1})


def situation(**changes: Any) -> Situation:
    return Situation.model_validate(
        {
            "id": "one",
            "machine": {"gpu": "RTX 3090", "gpus": 2},
            "workload": {"concurrency": 2},
            "accept": [{"exit": 1}],
            "constant": "wrong",
            "why": "because",
            "evidence": "somewhere",
            **changes,
        }
    )


def test_unknown_keys_of_a_situation_are_refused() -> None:
    broken: tuple[dict[str, Any], ...] = ({"accept": []}, {"extra": {}}, {"constant": "maybe"})
    for changes in broken:
        with pytest.raises(ValidationError):
            situation(**changes)


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        pytest.param(NoPlan("nothing fits"), 1, id="no plan"),
        pytest.param(UserError("bad setting"), 2, id="bad setting"),
    ],
)
def test_a_refusal_is_an_answer_with_its_exit_code(problem: Exception, code: int) -> None:
    def refuse(machine: Machine, workload: Workload, request: Request) -> Plan:
        assert len(machine.gpus) == 2 and workload.concurrency == 2 and request
        raise problem

    result = judge_situation(situation(accept=[{"exit": code}]), refuse)
    assert result.right
    wrong = judge_situation(situation(accept=[{"exit": 0, "option.quant": "fp8"}]), refuse)
    assert not wrong.right
    assert "exit is" in wrong.missed


def test_unlike_cards_and_peer_access_can_be_stated() -> None:
    stated = situation(machine={"cards": ["RTX 5090", "RTX 3090 Ti"], "p2p": "no"})
    machine = stated.machine.machine()
    assert [gpu.index for gpu in machine.gpus] == [0, 1]
    assert len({gpu.name for gpu in machine.gpus}) == 2
    assert machine.p2p == "no"
