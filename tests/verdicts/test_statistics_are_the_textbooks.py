"""Intervals, percentiles and drift against published table values and small worked cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from qwendeploy.verification import statistics as st


@pytest.mark.parametrize(
    ("level", "degrees", "value"),
    [(0.90, 1, 6.3138), (0.90, 5, 2.0150), (0.95, 2, 4.3027), (0.95, 10, 2.2281),
     (0.99, 30, 2.7500), (0.95, 1000, 1.9623)],
)  # fmt: skip
def test_t_quantiles_are_those_of_the_tables(level: float, degrees: float, value: float) -> None:
    assert st.t_quantile(level, degrees) == pytest.approx(value, abs=6e-5)


def test_t_interval_of_a_worked_case() -> None:
    interval = st.t_interval([9.0, 10.0, 11.0], 0.95)
    assert interval.mean == 10
    assert interval.high - 10 == pytest.approx(4.3027 / np.sqrt(3), abs=1e-3)
    assert st.t_interval([5.0]).half == 0


def test_one_boot_is_widened_three_boots_are_not() -> None:
    interval = st.Interval(1372, 1340, 1404, 6)
    wide = st.widened(interval)
    assert wide.high - 1372 == pytest.approx(np.hypot(32, 0.05 * 1372))
    assert st.widened(interval, boots=3) == interval


@given(some.lists(some.floats(0.001, 1e6), min_size=1, max_size=50), some.floats(0, 100))
def test_percentiles_interpolate_as_numpy(values: list[float], q: float) -> None:
    assert st.percentile(sorted(values), q) == pytest.approx(float(np.percentile(values, q)))


@pytest.mark.parametrize(
    ("n", "small"),
    [(28, ("p90", "p95", "p99")), (29, ("p95", "p99")), (59, ("p99",)), (299, ())],
)
def test_percentiles_say_when_n_is_too_small(n: int, small: tuple[str, ...]) -> None:
    spread = st.distribution("ttft", "ms", [float(i) for i in range(n)])
    assert spread is not None
    assert spread.too_small == small
    assert spread.n == n


def test_no_value_has_no_distribution() -> None:
    assert st.distribution("ttft", "ms", []) is None


def test_drift_is_named_when_it_is_there_and_not_in_noise() -> None:
    times = [0.0, 10, 20, 30, 40, 50]
    falling = [100 - t * 0.1 for t in times]
    assert st.drift_per_minute(times, falling) == pytest.approx(-0.1 * 60 / 97.5)
    assert st.drift_is_real(times, [f + d for f, d in zip(falling, (0.1, -0.1) * 3, strict=True)])
    assert not st.drift_is_real(times, [100, 97, 102, 99, 103, 98])
    assert not st.drift_is_real(times, [100.0] * 6)


def test_welch_tells_a_change_from_noise() -> None:
    same = st.welch_differs([100, 102, 98, 101], [99, 103, 100, 98])
    assert same.low < 0 < same.high
    apart = st.welch_differs([100, 102, 98, 101], [110, 112, 109, 111])
    assert apart.low > 0
