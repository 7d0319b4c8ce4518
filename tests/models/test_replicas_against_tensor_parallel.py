"""Replicas of a measured series are its sum; where they beat tensor parallelism, by the study."""

from __future__ import annotations

import pytest

from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.layouts import (
    Layout,
    gain,
    layout_crossover,
    layouts,
    replicas,
    shares,
    why_not,
)
from qwendeploy.tables.series import Series, all_series


def measured(tp: int) -> Series:
    """FP8+MTP3 on the study's card in its last session, which ran both layouts."""
    (found,) = (
        series
        for series in all_series()
        if series.key.session.endswith("v17-posttune")
        and (series.key.quant, series.key.spec_method, series.key.tp) == ("fp8", "mtp", tp)
    )
    return found


def short_context_rate(tp: int, concurrency: int) -> Estimate:
    cell = measured(tp).cell(concurrency, 0)
    assert cell is not None
    value = cell.aggregate_tps
    return Estimate(value, 0.95 * value, 1.05 * value, Kind.MEASURED, n=cell.n)


@pytest.mark.parametrize(
    ("concurrency", "expected"),
    [
        pytest.param(4, -0.26, id="4"),
        pytest.param(32, 0.02, id="32"),
        pytest.param(64, 0.21, id="64"),
    ],
)
def test_two_single_cards_against_one_pair(concurrency: int, expected: float) -> None:
    found = gain(short_context_rate, 2, 1, 2, concurrency)
    assert found == pytest.approx(expected, abs=0.01)


def test_the_crossover_is_at_about_thirty_two_streams() -> None:
    found = layout_crossover(short_context_rate, 2, 1, 2, [2, 4, 8, 16, 32, 64])
    assert found.wins_from == 32
    assert found.gains[2] < found.gains[16] < found.gains[64]


def test_a_crossover_that_does_not_last_is_none() -> None:
    rates = {(1, 1): 60.0, (2, 2): 100.0, (1, 2): 90.0, (2, 4): 200.0}
    found = layout_crossover(
        lambda tp, c: Estimate(rates[tp, c], rates[tp, c], rates[tp, c], Kind.MEASURED),
        2, 1, 2, [2, 4],
    )  # fmt: skip
    assert found.wins_from is None


def test_replicas_are_the_sum_with_a_low_end_for_routing() -> None:
    one = Estimate(1000.0, 950.0, 1040.0, Kind.MEASURED, n=5, basis="a series")
    four = replicas(one, 4)
    assert (four.value, four.high, four.kind, four.n) == (4000, 4160, Kind.MEASURED, 5)
    assert four.low == pytest.approx(4 * 950 * 0.95)
    assert replicas(one, 1) == one
    with pytest.raises(ValueError, match="replica"):
        replicas(one, 0)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param(1, {(1, 1)}, id="one card"),
        pytest.param(2, {(1, 2), (2, 1), (1, 1)}, id="two cards"),
        pytest.param(3, {(1, 3), (1, 2), (1, 1), (2, 1)}, id="three cards leave one over"),
        pytest.param(
            8,
            {(1, n) for n in range(1, 9)}
            | {(2, n) for n in range(1, 5)}
            | {(4, 1), (4, 2), (8, 1)},
            id="eight cards",
        ),
    ],
)
def test_every_cut_of_a_host(gpus: int, expected: set[tuple[int, int]]) -> None:
    found = layouts(gpus)
    assert {(layout.tp, layout.replicas) for layout in found} == expected
    assert all(layout.gpus <= gpus for layout in found)
    assert found[0].gpus == max(layout.gpus for layout in found)


def test_only_eight_ranks_hold_copies_of_key_value_heads() -> None:
    assert [Layout(tp, 1).wasteful for tp in (1, 2, 4, 8)] == [False, False, False, True]


@pytest.mark.parametrize("tp", [3, 5, 6, 7, 16])
def test_other_sizes_do_not_divide_the_heads(tp: int) -> None:
    reason = why_not(tp)
    assert reason is not None
    assert f"tp {tp}" in reason


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_sizes_that_start_have_no_reason_against(tp: int) -> None:
    assert why_not(tp) is None


def test_requests_spread_evenly_over_replicas() -> None:
    assert shares(7, 3) == (3, 2, 2)
    assert shares(2, 4) == (1, 1, 0, 0)


def test_a_host_without_cards_is_refused() -> None:
    with pytest.raises(ValueError, match="0 GPUs"):
        layouts(0)
