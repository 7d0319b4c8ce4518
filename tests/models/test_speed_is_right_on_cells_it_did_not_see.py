"""Leave-one-out errors of the shipped tables against the ceilings that DESIGN asks for."""

from __future__ import annotations

import dataclasses
import math

import pytest

from qwendeploy.errors import DataError
from qwendeploy.evaluation.speed import (
    Held,
    Summary,
    leave_session_out,
    noise_floor,
    speed_accuracy,
    summarise,
)
from qwendeploy.evidence.speed_fit import (
    hyper_from,
    sisters_of,
    speed_model,
)
from qwendeploy.models.conformal import FEW_CELLS
from qwendeploy.tables.series import all_series

EVERY = tuple(series for series in all_series() if series.cells)
BIG = [series for series in EVERY if len(series.cells) >= FEW_CELLS]


def test_every_cell_of_every_large_series_is_judged_once() -> None:
    accuracy = speed_accuracy()
    cells = {series.key.label: len(series.cells) for series in BIG}
    assert cells and {row.name: row.n for row in accuracy.series} == cells
    assert accuracy.pooled.n == accuracy.series_unseen.n == sum(cells.values())


def test_pooled_errors_and_bands_meet_the_goals() -> None:
    for pooled in (speed_accuracy().pooled, speed_accuracy().series_unseen):
        assert pooled.median <= 0.02
        assert pooled.p90 <= 0.06
        assert 0.85 <= pooled.coverage <= 0.95
        assert pooled.half_width <= 0.07


@pytest.mark.parametrize("label", [series.key.label for series in BIG])
def test_every_large_series_stays_below_its_ceiling(label: str) -> None:
    row: Summary = next(row for row in speed_accuracy().series if row.name == label)
    assert row.median <= 0.03
    assert row.p90 <= 0.08
    assert row.floor_median < row.median
    assert row.inner_n + row.edge_n == row.n


def test_small_series_are_covered_by_their_own_bands() -> None:
    small = speed_accuracy().small_pooled
    assert small.n > 300
    assert small.median <= 0.04
    assert 0.85 <= small.coverage <= 0.95


def test_another_session_is_inside_the_drift_bands() -> None:
    rows = {row.name: row for row in speed_accuracy().sessions}
    assert list(rows)[-1] == "all sessions"
    assert rows["all sessions"].n > 400
    assert 0.85 <= rows["all sessions"].coverage <= 0.97
    assert rows["c = 1"].p90 <= 0.22
    assert rows["c = 32"].p90 <= 0.08


def test_a_held_out_session_has_no_part_in_its_prediction() -> None:
    series = next(one for one in BIG if one.key.session == "2026-05-27-v13")
    shifted = tuple(
        dataclasses.replace(
            one,
            cells=tuple(
                dataclasses.replace(cell, aggregate_tps=3 * cell.aggregate_tps)
                for cell in one.cells
            ),
        )
        if one.key.session == series.key.session and one is not series
        else one
        for one in EVERY
    )
    assert leave_session_out(series, shifted) == leave_session_out(series, EVERY)


def test_sisters_are_the_same_option_in_another_session() -> None:
    for series in BIG:
        for sister in sisters_of(series, EVERY):
            assert sister is not series
            assert sister.key.spec_method == series.key.spec_method
            assert (sister.key.tp, sister.key.quant) == (series.key.tp, series.key.quant)
            assert len(sister.cells) >= 15
    by_session = {series.key.session: series for series in BIG}
    assert sisters_of(by_session["2026-05-27-v13"], EVERY)


def test_the_noise_floor_is_that_of_a_normal() -> None:
    assert noise_floor([0.01] * 5, 0.5) == pytest.approx(0.006745, rel=1e-3)
    assert noise_floor([0.01] * 5, 0.9) == pytest.approx(0.016449, rel=1e-3)


def test_a_summary_counts_what_its_bands_miss() -> None:
    inside = Held("s", 1, 0, 0.01, 0.02, 0.01, True)
    outside = Held("s", 2, 0, -0.05, 0.02, 0.01, False)
    row = summarise("s", [inside, outside])
    assert (row.n, row.inner_n, row.edge_n) == (2, 1, 1)
    assert row.coverage == 0.5
    assert row.max == pytest.approx(math.exp(0.05) - 1)
    assert row.winkler == pytest.approx((0.04 + 0.04 + 20 * 0.03) / 2)
    with pytest.raises(ValueError, match="no held-out cell"):
        summarise("nothing", [])


def test_constants_that_are_no_numbers_are_refused() -> None:
    model = dict(speed_model())
    values = dict(model["hyper"])
    hyper_from(values, model)
    for broken in (
        {**values, "amplitude": "wide"},
        {key: value for key, value in values.items() if key != "k"},
    ):
        with pytest.raises(DataError, match=r"speed_model\.yaml"):
            hyper_from(broken, model)


def test_published_constants_name_the_series_they_were_chosen_without() -> None:
    labels = {series.key.label for series in BIG}
    assert set(speed_model()["nested"]) == labels
    assert set(speed_model()["held_out"]) == labels
