"""One machine's own measurements move a predicted curve: most where they are, less further away.

The log ratio of measured to predicted rate is a Gaussian process over ``log2 c`` and
``log2(1 + x/16k)`` whose deviation at a point is that of the prediction's own band there. Its
correlation with distance is that of the study's sessions with each other: the log ratio of two
sessions of one option correlates at 0.85 one octave of concurrency apart, 0.79 at two, 0.72 at
three, 0.56 at four, and much the same over the context (sister series of 15 cells and more). A
session that is slow for one option is slow for the others too.

Where the machine itself measured, its own mean stands and nothing is predicted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from qwendeploy.models.estimate import Estimate
from qwendeploy.models.nnls import Array

Labels = npt.NDArray[np.int64]

CONTEXT_UNIT = 16384.0
"""Tokens of context per unit of ``x``, as in the series fit."""
LENGTH = 4.0
"""Octaves, of concurrency and of 1 + x/16k, over which the ratio of two sessions keeps its sign."""
SHARE = 0.9
"""Part of the variance that is common to neighbouring points; the rest belongs to one point."""
ACROSS = 0.8
"""Correlation of the log ratio of two sessions between two options: 0.82 over 26 pairs of the
study's options in the same two sessions at up to four requests, 0.59 over two at eight and more."""
Z90 = 1.645
"""Standard deviations in half a band at 0.90."""
BOOT_SPREAD = 0.05
"""Half-width that one start of a server differs from the next (DESIGN §7) below three starts."""
T90 = {2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 9: 1.833}
"""Student's t at 0.90, two-sided, by degrees of freedom; from ten on 1.8 is close."""


@dataclass(frozen=True, slots=True)
class OwnObservation:
    """A measured rate beside the prediction for the same point.

    ``here``: on the machine that is predicted for. Other machines move the value, but they do not
    narrow the band: this host remains one more draw.
    """

    concurrency: float
    context: float
    measured: float
    predicted: Estimate
    deviation: float
    """Log units: noise of the measurement as a statement about another start of that server."""
    here: bool
    series: object = None
    """What was measured; another option than the one asked for says less."""


@dataclass(frozen=True, slots=True)
class Recalibrated:
    """The moved estimate, the factor it was moved by, and how much of the band's variance the
    machine's own measurements explain (0: nothing, 1: all)."""

    estimate: Estimate
    factor: float
    explained: float


def recalibrated(
    base: Estimate,
    concurrency: float,
    context: float,
    seen: Sequence[OwnObservation],
    series: object = None,
) -> Recalibrated:
    """Return the prediction for ``series`` at a point after what was seen elsewhere.

    Without observations it is the prediction itself. The band never grows.
    """
    target = np.array([_place(concurrency, context)])
    if not seen:
        return Recalibrated(base, 1.0, 0.0)
    moved, _ = _posterior(base, target, seen, series)
    _, explained = _posterior(base, target, [item for item in seen if item.here], series)
    factor = math.exp(moved)
    reach = math.sqrt(
        min(1.0, 1 - explained + (BOOT_SPREAD / Z90) ** 2 / max(_deviation(base), 1e-9) ** 2)
    )
    value = base.value * factor
    estimate = replace(
        base,
        value=value,
        low=value * (base.low / base.value) ** reach if base.low > 0 else base.low * factor,
        high=value * (base.high / base.value) ** reach,
        n=base.n + len(seen),
    )
    return Recalibrated(estimate, factor, explained)


def boot_half_width(rates: Sequence[float], spread: float = 0.0) -> float:
    """Return the relative half-width at 0.90 of the next start's rate, from starts' means.

    Below three starts it is the usual spread between starts, joined with ``spread``, the
    half-width within one run.
    """
    n = len(rates)
    if n < 3:
        return math.hypot(BOOT_SPREAD, spread)
    mean = math.fsum(rates) / n
    deviation = math.sqrt(math.fsum((rate - mean) ** 2 for rate in rates) / (n - 1))
    return T90.get(n - 1, 1.8) * deviation * math.sqrt(1 + 1 / n) / mean


def _deviation(estimate: Estimate) -> float:
    low = max(estimate.low, estimate.value * 1e-3)
    return math.log(estimate.high / low) / 2 / Z90


def _posterior(
    base: Estimate, target: Array, seen: Sequence[OwnObservation], series: object
) -> tuple[float, float]:
    """Return the mean log ratio at the target and the share of its variance explained."""
    own = _deviation(base)
    if not seen or own == 0:
        return 0.0, 0.0
    places = np.array([_place(item.concurrency, item.context) for item in seen])
    known = {name: at for at, name in enumerate(dict.fromkeys(item.series for item in seen))}
    labels = np.array([known[item.series] for item in seen])
    asked = np.array([known.get(series, -1)])
    scales = np.array([max(_deviation(item.predicted), 1e-3) for item in seen])
    ratios = np.array([math.log(item.measured / item.predicted.value) for item in seen])
    noise = np.array([item.deviation for item in seen])
    between = _correlation(places, labels, places, labels) * np.outer(scales, scales)
    near = _correlation(target, asked, places, labels)[0] * own * scales
    weights = np.linalg.solve(between + np.diag(noise**2), near)
    return float(weights @ ratios), min(1.0, float(weights @ near) / own**2)


def _place(concurrency: float, context: float) -> tuple[float, float]:
    return math.log2(concurrency), math.log2(1 + context / CONTEXT_UNIT)


def _correlation(left: Array, of_left: Labels, right: Array, of_right: Labels) -> Array:
    """Return the correlations of the log ratios at two sets of places, each of some series."""
    apart = np.sum(((left[:, None, :] - right[None, :, :]) / LENGTH) ** 2, axis=-1)
    near = np.where(apart == 0.0, 1.0, SHARE * np.exp(-0.5 * apart))
    result: Array = near * np.where(of_left[:, None] == of_right[None, :], 1.0, ACROSS)
    return result
