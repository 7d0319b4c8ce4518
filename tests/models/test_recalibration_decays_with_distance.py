"""Own measurements move a curve: most where they are, less further away; bands never grow."""

from __future__ import annotations

import math

import pytest

from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.recalibration import (
    BOOT_SPREAD,
    OwnObservation,
    boot_half_width,
    recalibrated,
)


def estimate(value: float, reach: float = 0.1) -> Estimate:
    return Estimate(
        value, value * math.exp(-reach), value * math.exp(reach), Kind.TRANSFERRED, 3, "table"
    )


def seen(
    ratio: float,
    concurrency: float = 32,
    context: float = 32768,
    *,
    here: bool = True,
    series: object = "own",
    reach: float = 0.1,
) -> OwnObservation:
    return OwnObservation(
        concurrency, context, 1000 * ratio, estimate(1000, reach), 0.03, here, series
    )


def moved(observations: list[OwnObservation], c: float = 32, x: float = 32768) -> float:
    return recalibrated(estimate(500), c, x, observations, "own").factor


def test_nothing_seen_changes_nothing() -> None:
    base = estimate(500)
    result = recalibrated(base, 8, 0, [])
    assert result.estimate == base
    assert (result.factor, result.explained) == (1.0, 0.0)


@pytest.mark.parametrize("ratio", [0.8, 0.95, 1.1])
def test_estimate_goes_towards_what_was_measured_and_not_beyond(ratio: float) -> None:
    factor = moved([seen(ratio)])
    assert min(1.0, ratio) < factor < max(1.0, ratio)
    assert abs(factor - ratio) < 0.25 * abs(1 - ratio)


@pytest.mark.parametrize("axis", ["concurrency", "context"])
def test_effect_falls_with_distance(axis: str) -> None:
    if axis == "concurrency":
        factors = [moved([seen(0.8)], c=32 / 2**octaves) for octaves in range(6)]
    else:
        places = [(2**octaves - 1) * 16384 for octaves in range(1, 6)]
        factors = [moved([seen(0.8, context=16384)], x=place) for place in places]
    assert factors == sorted(factors)
    assert all(factor < 1 for factor in factors)


def test_agreeing_measurements_move_more_than_one() -> None:
    one, two = moved([seen(0.8)], c=8), moved([seen(0.8), seen(0.8, 4)], c=8)
    assert two < one


def test_another_option_of_this_machine_says_less() -> None:
    own, other = moved([seen(0.8)]), moved([seen(0.8, series="other")])
    assert own < other < 1


def test_band_narrows_by_own_measurements_alone() -> None:
    base = estimate(500)
    here = recalibrated(base, 32, 32768, [seen(0.9)], "own").estimate
    abroad = recalibrated(base, 32, 32768, [seen(0.9, here=False)], "own").estimate
    assert here.half_width < 0.9 * base.half_width
    assert abroad.half_width == pytest.approx(base.half_width, rel=1e-6)
    assert abroad.value < base.value


def test_band_never_narrows_below_what_starts_differ() -> None:
    many = [seen(0.9, c) for c in (16, 24, 32, 48, 64)] * 3
    result = recalibrated(estimate(500), 32, 32768, many, "own").estimate
    assert BOOT_SPREAD <= result.half_width <= estimate(500).half_width


def test_a_sure_prediction_is_hardly_moved() -> None:
    sure = recalibrated(estimate(500, 0.01), 32, 32768, [seen(0.8, reach=0.01)], "own")
    assert sure.factor > 0.97


@pytest.mark.parametrize(
    ("rates", "spread", "expected"),
    [
        pytest.param([100], 0.0, 0.05, id="one start"),
        pytest.param([100, 140], 0.0, 0.05, id="two starts say nothing of their spread"),
        pytest.param([100], 0.12, 0.13, id="a noisy run"),
        pytest.param([99, 100, 101], 0.5, 2.92 * 0.01 * math.sqrt(4 / 3), id="three starts"),
        pytest.param([100] * 4, 0.5, 0.0, id="four equal ones"),
    ],
)
def test_starts_speak_for_themselves_from_three_on(
    rates: list[float], spread: float, expected: float
) -> None:
    assert boot_half_width(rates, spread) == pytest.approx(expected, abs=1e-6)
