"""Statistics of windows and requests.

t intervals over windows or repeats; percentiles by linear interpolation, each with the sample size
that an upper bound at 95 % confidence needs; drift as a weighted line through the windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qwendeploy.documents import Distribution
from qwendeploy.figures import LEVEL

BOOT_SPREAD = 0.05
"""Relative boot-to-boot swing of decode rates (DESIGN §7): one boot says no more than this."""

NORMAL_90 = 1.645
"""Two-sided 90 % quantile of the normal distribution."""
PERCENTILES = (50, 90, 95, 99)
NEEDED = {90: 29, 95: 59, 99: 299}
"""Smallest n with 1 - q^n >= 0.95: from there the sample's largest value bounds the percentile."""


@dataclass(frozen=True)
class Interval:
    """A mean with its interval at ``level``; ``None`` bounds when one value allows none."""

    mean: float
    low: float
    high: float
    n: int
    level: float = LEVEL

    @property
    def half(self) -> float:
        """Half width relative to the mean."""
        return (self.high - self.low) / 2 / abs(self.mean) if self.mean else 0.0


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean of at least one value."""
    return math.fsum(values) / len(values)


def sd(values: Sequence[float]) -> float:
    """Return the sample standard deviation, 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def cv(values: Sequence[float]) -> float:
    """Return sd / mean, 0 if the mean is 0."""
    centre = mean(values)
    return sd(values) / abs(centre) if centre else 0.0


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Continued fraction of the incomplete beta function (Lentz's method)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 300):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + numerator / c
            c = c if abs(c) > tiny else tiny
            result *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return result


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def t_probability(t: float, degrees: float) -> float:
    """Return P(|T| <= t) for Student's t."""
    return 1 - _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def t_quantile(level: float, degrees: float) -> float:
    """Return the two-sided quantile of Student's t: ``P(|T| <= t) = level``."""
    low, high = 0.0, 1.0
    while t_probability(high, degrees) < level:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if t_probability(middle, degrees) < level:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the mean with its t interval; a single value has an interval of no width."""
    centre = mean(values)
    if len(values) < 2:
        return Interval(centre, centre, centre, len(values), level)
    half = t_quantile(level, len(values) - 1) * sd(values) / math.sqrt(len(values))
    return Interval(centre, centre - half, centre + half, len(values), level)


def widened(interval: Interval, boots: int = 1, spread: float = BOOT_SPREAD) -> Interval:
    """Return the interval with the boot-to-boot spread added as an independent error.

    From three boots on the interval over boots already contains it.
    """
    if boots >= 3:
        return interval
    half = math.hypot((interval.high - interval.low) / 2, spread * abs(interval.mean))
    return Interval(
        interval.mean, interval.mean - half, interval.mean + half, interval.n, interval.level
    )


def percentile(ordered: Sequence[float], q: float) -> float:
    """Return the percentile of sorted values by linear interpolation (numpy's default)."""
    position = (len(ordered) - 1) * q / 100
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def distribution(name: str, unit: str, values: Sequence[float]) -> Distribution | None:
    """Return spread and percentiles, ``None`` if there is no value."""
    if not values:
        return None
    ordered = sorted(values)
    return Distribution(
        name=name,
        unit=unit,
        n=len(ordered),
        mean=mean(ordered),
        sd=sd(ordered),
        low=ordered[0],
        high=ordered[-1],
        percentiles={f"p{q}": percentile(ordered, q) for q in PERCENTILES},
        too_small=tuple(f"p{q}" for q, need in NEEDED.items() if len(ordered) < need),
    )


def drift_per_minute(times: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the slope of a line through (seconds, value), relative to the mean, per minute."""
    if len(times) < 3:
        return None
    tm, vm = mean(times), mean(values)
    spread = math.fsum((t - tm) ** 2 for t in times)
    if spread == 0 or vm == 0:
        return None
    slope = math.fsum((t - tm) * (v - vm) for t, v in zip(times, values, strict=True)) / spread
    return slope * 60 / vm


def drift_is_real(times: Sequence[float], values: Sequence[float], level: float = 0.95) -> bool:
    """Whether the slope differs from zero at ``level`` by its t statistic."""
    n = len(times)
    if n < 4:
        return False
    tm, vm = mean(times), mean(values)
    spread = math.fsum((t - tm) ** 2 for t in times)
    if spread == 0:
        return False
    slope = math.fsum((t - tm) * (v - vm) for t, v in zip(times, values, strict=True)) / spread
    rest = math.fsum(
        (v - vm - slope * (t - tm)) ** 2 for t, v in zip(times, values, strict=True)
    ) / (n - 2)
    error = math.sqrt(rest / spread)
    if error == 0:
        return slope != 0
    return abs(slope) / error > t_quantile(level, n - 2)


def welch_differs(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Interval:
    """Return the interval of mean(b) - mean(a) by Welch's t; no width if a sample has one value."""
    difference = mean(b) - mean(a)
    va, vb = sd(a) ** 2 / len(a), sd(b) ** 2 / len(b)
    if len(a) < 2 or len(b) < 2 or va + vb == 0:
        return Interval(difference, difference, difference, min(len(a), len(b)), level)
    degrees = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = t_quantile(level, degrees) * math.sqrt(va + vb)
    return Interval(difference, difference - half, difference + half, min(len(a), len(b)), level)
