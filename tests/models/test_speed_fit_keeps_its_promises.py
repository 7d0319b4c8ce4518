"""The in-series speed fit: costs not negative, bands that hold the value, kinds, sisters."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwendeploy.figures import Kind
from qwendeploy.models.conformal import FEW_CELLS, conformal_factor
from qwendeploy.models.gp import Covariance, SmoothField
from qwendeploy.models.nnls import nnls
from qwendeploy.models.speed import (
    fit_series,
    surrounded,
)
from qwendeploy.models.speed_constants import Hyper

HYPER = Hyper(
    amplitude=0.08,
    length_concurrency=1.0,
    length_context=2.5,
    sister_weight=0.4,
    sister_share=0.8,
    roughness=0.006,
    noise={"mtp": {1: 0.025, 4: 0.012, 32: 0.01}, "none": {1: 0.003}},
    noise_prior=8,
    k=1.7,
    beyond_concurrency=(0.11, 0.02),
    beyond_context=(0.045, 0.026),
    drift={4: 0.22, 8: 0.14, 16: 0.08},
)


@dataclass(frozen=True)
class Cell:
    concurrency: int
    context: int
    aggregate_tps: float
    std: float | None = None
    n: int = 1


def machine(concurrency: float, context: float) -> float:
    """Tokens/s of a made-up server with a launch floor and a cache read."""
    x = context / 16384
    return concurrency / (0.008 + 0.0002 * concurrency + 0.00008 * concurrency * x + 0.0003 * x)


GRID = [
    Cell(c, x, machine(c, x))
    for x in (0, 16384, 32768, 65536, 131072)
    for c in (1, 2, 4, 8, 16, 32)
]
positive = st.floats(1e-3, 1e3)


@given(
    st.integers(1, 12).flatmap(
        lambda rows: st.tuples(
            st.lists(
                st.lists(st.floats(-10, 10), min_size=4, max_size=4), min_size=rows, max_size=rows
            ),
            st.lists(st.floats(-10, 10), min_size=rows, max_size=rows),
        )
    )
)
@settings(max_examples=80, deadline=None)
def test_nnls_meets_the_optimality_conditions(
    problem: tuple[list[list[float]], list[float]],
) -> None:
    design, target = np.array(problem[0]), np.array(problem[1])
    scale = np.abs(design).max(initial=0.0) + 1.0
    solution = nnls(design, target)
    gradient = design.T @ (target - design @ solution)
    assert (solution >= 0).all()
    assert gradient.max() <= 1e-4 * scale * (np.abs(target).max() + scale * solution.max() + 1)


def test_nnls_refuses_what_is_no_problem() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        nnls(np.ones((3, 2)), np.ones(2))
    with pytest.raises(ValueError, match="not finite"):
        nnls(np.array([[math.nan]]), np.ones(1))
    assert nnls(np.zeros((3, 2)), np.ones(3)).tolist() == [0.0, 0.0]


def test_leaving_a_point_out_of_a_field_equals_never_having_had_it() -> None:
    kernel = Covariance(0.1, (1.0, 2.0), 0.5, 0.01)
    points = np.array([[0.0, 0.0], [1.0, 0.5], [2.0, 1.0], [3.0, 0.0]])
    noise = np.array([0.02, 0.01, 0.03, 0.02])
    other = points + 0.3
    whole = SmoothField.of(kernel, [points, other], [noise, noise])
    keep = [0, 2, 3]
    small = SmoothField.of(kernel, [points[keep], other], [noise[keep], noise])
    values = np.array([0.1, -0.2, 0.05, 0.0, 0.1, 0.2, 0.3])
    at = np.array([[1.0, 0.5]])
    for found, expected in zip(
        whole.without(1).predict(values, at), small.predict(values, at), strict=True
    ):
        assert found == pytest.approx(expected)


def test_a_smooth_server_is_recovered_within_a_per_cent() -> None:
    fit = fit_series(GRID, HYPER, draft="mtp")
    for concurrency, context in ((3, 8000), (12, 24000), (24, 100000), (1, 131072)):
        assert fit.predict(concurrency, context).value == pytest.approx(
            machine(concurrency, context), rel=0.01
        )


@given(st.lists(st.floats(0.7, 1.4), min_size=30, max_size=30), st.integers(0, 29))
@settings(max_examples=25, deadline=None)
def test_bands_hold_their_value_and_costs_are_not_negative(factors: list[float], keep: int) -> None:
    cells = [
        replace(cell, aggregate_tps=cell.aggregate_tps * factor)
        for cell, factor in zip(GRID, factors, strict=True)
    ]
    for some in (cells, cells[: keep + 1]):
        fit = fit_series(some, HYPER, draft="mtp")
        assert min(fit.coefficients) >= 0
        for concurrency, context in ((1, 0), (5, 20000), (64, 262144)):
            estimate = fit.predict(concurrency, context)
            assert 0 < estimate.low <= estimate.value <= estimate.high < math.inf


@given(st.floats(0.01, 100))
@settings(max_examples=20, deadline=None)
def test_a_faster_machine_is_predicted_faster_by_the_same_factor(factor: float) -> None:
    fast = [replace(cell, aggregate_tps=cell.aggregate_tps * factor) for cell in GRID]
    one = fit_series(GRID, HYPER, draft="mtp").predict(6, 10000)
    other = fit_series(fast, HYPER, draft="mtp").predict(6, 10000)
    assert other.value == pytest.approx(one.value * factor, rel=1e-6)
    assert other.half_width == pytest.approx(one.half_width, rel=1e-6)


def test_the_order_of_cells_does_not_matter() -> None:
    there = fit_series(GRID, HYPER, draft="mtp").predict(6, 10000)
    back = fit_series(GRID[::-1], HYPER, draft="mtp").predict(6, 10000)
    assert back.value == pytest.approx(there.value, rel=1e-9)


@pytest.mark.parametrize(
    ("concurrency", "context", "kind"),
    [
        pytest.param(8, 16384, Kind.MEASURED, id="a cell"),
        pytest.param(6, 16384, Kind.INTERPOLATED, id="between concurrencies"),
        pytest.param(8, 20000, Kind.INTERPOLATED, id="between contexts"),
        pytest.param(64, 16384, Kind.EXTRAPOLATED, id="more concurrency"),
        pytest.param(8, 200000, Kind.EXTRAPOLATED, id="more context"),
        pytest.param(32, 131072, Kind.EXTRAPOLATED, id="the corner nobody measured"),
    ],
)
def test_kinds_follow_the_cells_around_a_point(concurrency: int, context: int, kind: Kind) -> None:
    cells = [cell for cell in GRID if (cell.concurrency, cell.context) != (32, 131072)]
    assert fit_series(cells, HYPER, draft="mtp").predict(concurrency, context).kind is kind


def test_a_measured_cell_returns_its_mean_shrunk_the_more_the_noisier() -> None:
    def at(n: int) -> float:
        cells = [
            replace(cell, aggregate_tps=1.2 * cell.aggregate_tps, n=n)
            if (cell.concurrency, cell.context) == (4, 16384)
            else cell
            for cell in GRID
        ]
        return fit_series(cells, HYPER, draft="mtp").predict(4, 16384).value

    measured, rest = 1.2 * machine(4, 16384), machine(4, 16384)
    assert rest < at(1) < at(20) < measured


def test_repetitions_that_scatter_widen_the_band() -> None:
    def half(std: float) -> float:
        cells = [replace(cell, n=3, std=std * cell.aggregate_tps) for cell in GRID]
        return fit_series(cells, HYPER, draft="mtp").predict(8, 16384).half_width

    assert half(0.1) > 2 * half(0.01)


def test_bands_grow_outside_the_cells_and_with_drift() -> None:
    fit = fit_series(GRID, HYPER, draft="mtp")
    halves = [fit.predict(c, 16384).half_width for c in (32, 64, 128, 256)]
    assert halves == sorted(halves) and halves[-1] > 2 * halves[0]
    for concurrency, drift in ((1, 0.22), (4, 0.22), (8, 0.14), (32, 0.08)):
        plain = fit.predict(concurrency, 16384).half_width
        drifted = fit.predict(concurrency, 16384, drift=True).half_width
        assert drifted == pytest.approx(math.hypot(plain, drift), rel=0.05)
    assert fit.octaves_outside(64, 16384) == pytest.approx(1.0)
    assert fit.octaves_outside(8, 16384) == 0


def test_a_sister_says_what_lies_beyond_the_own_concurrencies() -> None:
    few = [cell for cell in GRID if cell.concurrency <= 4]
    sister = [replace(cell, aggregate_tps=0.93 * cell.aggregate_tps) for cell in GRID]
    kneed = [
        replace(cell, aggregate_tps=cell.aggregate_tps / (1 + 0.02 * max(0, cell.concurrency - 8)))
        for cell in sister
    ]
    truth = machine(32, 16384) / (1 + 0.02 * 24)
    alone = fit_series(few, HYPER, draft="mtp").predict(32, 16384)
    helped = fit_series(few, HYPER, draft="mtp", sisters=[kneed]).predict(32, 16384)
    assert abs(helped.value / truth - 1) < abs(alone.value / truth - 1) / 2
    assert helped.half_width < alone.half_width


def test_small_series_take_their_band_from_their_own_errors() -> None:
    errors = [(0.01, 0.01)] * 12
    assert conformal_factor(errors, 1.7) < conformal_factor([(0.05, 0.01)] * 12, 1.7)
    assert conformal_factor([], 1.7) > 1.7
    small = fit_series(GRID[: FEW_CELLS - 8], HYPER, draft="mtp")
    assert small.band_factor != HYPER.k
    assert fit_series(GRID, HYPER, draft="mtp").band_factor == HYPER.k


def test_one_cell_is_a_series_and_no_cell_is_none() -> None:
    fit = fit_series(GRID[:1], HYPER, draft="mtp")
    assert fit.predict(1, 0).value == pytest.approx(machine(1, 0), rel=1e-6)
    assert fit.leave_one_out() == ()
    with pytest.raises(ValueError, match="without a usable cell"):
        fit_series([], HYPER)


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(Cell(1, 0, 0.0), id="rate of zero"),
        pytest.param(Cell(1, 0, math.nan), id="rate not a number"),
        pytest.param(Cell(0, 0, 10.0), id="no request"),
        pytest.param(Cell(1, -5, 10.0), id="negative context"),
        pytest.param(Cell(1, 0, 10.0, n=0), id="no repetition"),
    ],
)
def test_impossible_cells_are_refused(cell: Cell) -> None:
    with pytest.raises(ValueError, match=r"rate|cell"):
        fit_series([*GRID, cell], HYPER)


def test_impossible_points_are_refused() -> None:
    fit = fit_series(GRID, HYPER)
    for concurrency, context in ((0, 0), (1, -1), (math.nan, 0)):
        with pytest.raises(ValueError, match="no such point"):
            fit.predict(concurrency, context)


def test_an_unknown_draft_is_as_noisy_as_the_noisiest() -> None:
    assert HYPER.run_noise("ngram", 1) == 0.025
    assert HYPER.run_noise("mtp", 2) == pytest.approx((0.025 + 0.012) / 2)


def test_nothing_surrounds_a_point_without_cells() -> None:
    assert not surrounded([], 1, 0)
