"""Cells are compared only within a series, and only usable cells are in it."""

from __future__ import annotations

import dataclasses

import pytest

from qwendeploy.tables.decode import DecodeRow, decode_rows
from qwendeploy.tables.series import Series, all_series, group_series


def _series(session: str, quant: str, tp: int) -> Series:
    (found,) = [
        series
        for series in all_series()
        if (series.key.session, series.key.quant, series.key.tp) == (session, quant, tp)
    ]
    return found


def test_every_row_is_in_exactly_one_series() -> None:
    rows = [row.row_id for row in decode_rows()]
    seen = [row_id for s in all_series() for cell in s.cells for row_id in cell.row_ids]
    seen += [row.row_id for s in all_series() for row in s.excluded]
    assert sorted(seen) == sorted(rows)


def test_cells_hold_usable_rows_only_and_the_rest_keeps_its_reason() -> None:
    usable = {row.row_id for row in decode_rows() if row.usable}
    for series in all_series():
        for cell in series.cells:
            assert usable.issuperset(cell.row_ids)
            assert cell.aggregate_tps > 0
        assert all(row.reason or row.usable for row in series.excluded)


@pytest.mark.parametrize(
    ("session", "quant", "tp", "concurrency", "context", "rate", "n"),
    [
        pytest.param("2026-06-03-v17-posttune", "fp8", 2, 32, 32768, 1669.0, 1, id="v17"),
        pytest.param("2026-05-27-v13", "fp8", 2, 32, 32768, 1572.5, 5, id="v13"),
        pytest.param("2026-05-27-v13", "fp8", 2, 16, 134144, 711.7, 5, id="v13-131k"),
    ],
)
def test_cell_is_the_mean_of_its_repetitions(
    session: str, quant: str, tp: int, concurrency: int, context: int, rate: float, n: int
) -> None:
    cell = _series(session, quant, tp).cell(concurrency, context)
    assert cell is not None
    assert cell.aggregate_tps == pytest.approx(rate, abs=0.6)
    assert cell.n == n
    assert cell.running == concurrency


def test_cells_below_their_stated_concurrency_are_not_cells() -> None:
    series = _series("2026-06-03-v17-posttune", "bf16", 1)
    assert series.cell(16, 0) is None
    limited = [row for row in series.excluded if row.status == "capacity-limited"]
    assert {(row.concurrency, row.running) for row in limited} == {(16, 9), (32, 8), (64, 9)}


def test_two_sessions_never_share_a_series() -> None:
    row = next(row for row in decode_rows() if row.usable)
    other = dataclasses.replace(row, session="another day", row_id="other")
    assert [len(series.cells) for series in group_series([row, other])] == [1, 1]


def _repetition(row: DecodeRow, number: int, rate: float, n: int = 1) -> DecodeRow:
    return dataclasses.replace(row, row_id=f"r{number}", aggregate_tps=rate, n=n)


def test_mean_weighs_a_published_mean_by_its_repetitions() -> None:
    row = next(row for row in decode_rows() if row.usable)
    (series,) = group_series([_repetition(row, 1, 100.0, n=3), _repetition(row, 2, 120.0)])
    (cell,) = series.cells
    assert (cell.aggregate_tps, cell.n) == (105.0, 4)
    assert cell.std == pytest.approx(10.0)
