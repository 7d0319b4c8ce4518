"""How wrong predictions between machines and options are: everything of a group held out.

Five ways of leaving out, each judged on rows that state version, tp, quant, draft, concurrency and
context (and, beside them, on all fitted rows): a *machine* (every row of a GPU kind), a *layout*
(every row of a GPU kind at one tp), a *draft* (a method and length on a GPU kind), a *quant* on a
GPU kind, and a *rig* (one host and session: a stranger's box with a known card). Bands are
calibrated: the factor on a group's band comes from the errors of the other groups only, so the
coverage printed is the one a stranger's machine would see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from qwendeploy.models.step import Features
from qwendeploy.models.transfer import Z
from qwendeploy.models.transfer_fit import Fitter
from qwendeploy.planning.transfer_rows import TransferRow, transfer_rows
from qwendeploy.tables.decode import decode_rows

WAYS: dict[str, Callable[[Features], str]] = {
    "machine": lambda p: f"{p.gpu}",
    "layout": lambda p: f"{p.gpu} tp{p.tp}",
    "draft": lambda p: f"{p.gpu} {p.spec_method}{p.drafted or ''}",
    "quant": lambda p: f"{p.gpu} {p.quant}",
    "rig": lambda p: f"{p.rig}",
}
"""Way of leaving out -> name of the group that a point belongs to."""
TIERS_OF_WAY = {
    "machine": ("architecture", "none"),
    "layout": ("gpu",),
    "draft": ("layout", "gpu"),
    "quant": ("layout", "gpu"),
    "rig": ("layout", "gpu"),
}
"""What a way of leaving out must leave: holding out the only layout of a card is holding out the
machine, and is judged there."""
TIER_OF_WAY = {"machine": ("architecture", "none"), "layout": ("gpu",), "rig": ("layout",)}
MIN_SCALE = 0.7
LEVEL = 0.90


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A row predicted without its group; ``deviation`` is of the log rate before calibration."""

    way: str
    group: str
    item: TransferRow
    predicted: float
    deviation: float
    tier: str
    scale: float = 1.0

    @property
    def measured(self) -> float:
        """The row's own rate, output tokens/s."""
        return self.item.observation.rate

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1

    @property
    def score(self) -> float:
        """Log error in units of the uncalibrated deviation."""
        return math.log(self.measured / self.predicted) / self.deviation

    @property
    def reach(self) -> float:
        """Half of the calibrated band in log units."""
        return Z * self.deviation * self.scale

    @property
    def covered(self) -> bool:
        """Whether the calibrated band holds the measured rate."""
        return abs(math.log(self.measured / self.predicted)) <= self.reach

    @property
    def winkler(self) -> float:
        """Interval score relative to the measured rate: width plus 2/alpha times the miss."""
        low, high = (self.predicted * math.exp(sign * self.reach) for sign in (-1, 1))
        miss = max(low - self.measured, self.measured - high, 0.0)
        return (high - low + 2 / (1 - LEVEL) * miss) / self.measured


@dataclass(frozen=True, slots=True)
class TransferSummary:
    """Errors of one way of leaving out over ``n`` rows of ``groups`` groups, as fractions."""

    way: str
    rows: str
    n: int
    groups: int
    median: float
    median_of_groups: float
    p90: float
    worst: float
    coverage: float
    half_width: float
    winkler: float


def leave_groups_out(fitter: Fitter, items: Sequence[TransferRow], way: str) -> list[HeldOut]:
    """Return the rows predicted by a fit without their group, bands not yet calibrated."""
    names = np.asarray([WAYS[way](item.observation.features) for item in items])
    start, _ = fitter.problem.solve()
    found: list[HeldOut] = []
    for group in sorted(set(names)):
        out: NDArray[np.bool_] = names == group
        fit = fitter.fit(held_out=out, start=start)
        held = [item for item, is_out in zip(items, out, strict=True) if is_out]
        points = [item.observation.features for item in held]
        logs, deviations = fit.log_spread(points)
        found += [
            HeldOut(way, group, item, math.exp(log), float(deviation), fit.tier(point))
            for item, point, log, deviation in zip(held, points, logs, deviations, strict=True)
            if fit.tier(point) in TIERS_OF_WAY[way]
        ]
    return found


def band_scale(held: Iterable[HeldOut]) -> float:
    """Return the factor with which bands of these rows cover ``LEVEL`` of them.

    A weighted conformal quantile of the scores: every group weighs as the root of its rows, so that
    one large matrix does not decide alone.
    """
    rows = list(held)
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row.group] = sizes.get(row.group, 0) + 1
    scores = np.asarray([abs(row.score) for row in rows])
    weights = np.asarray([1 / math.sqrt(sizes[row.group]) for row in rows])
    order = np.argsort(scores)
    total = np.cumsum(weights[order]) / (weights.sum() + weights.mean())
    place = min(int(np.searchsorted(total, LEVEL)), len(rows) - 1)
    return max(float(scores[order][place]) / Z, MIN_SCALE)


def calibrated(held: Sequence[HeldOut]) -> list[HeldOut]:
    """Return the rows with the band factor that the other groups of the same way give."""
    groups = {row.group for row in held}
    scales = {
        group: band_scale(row for row in held if row.group != group) if len(groups) > 1 else 1.0
        for group in groups
    }
    return [
        HeldOut(r.way, r.group, r.item, r.predicted, r.deviation, r.tier, scales[r.group])
        for r in held
    ]


def summarise(held: Sequence[HeldOut], rows: str) -> TransferSummary:
    """Return the table line of these rows."""
    errors = np.abs([row.error for row in held])
    groups = sorted({row.group for row in held})
    medians = [np.median([abs(r.error) for r in held if r.group == group]) for group in groups]
    return TransferSummary(
        way=held[0].way,
        rows=rows,
        n=len(held),
        groups=len(groups),
        median=float(np.median(errors)),
        median_of_groups=float(np.median(medians)),
        p90=float(np.quantile(errors, 0.9)),
        worst=float(errors.max()),
        coverage=float(np.mean([row.covered for row in held])),
        half_width=float(np.median([math.sinh(row.reach) for row in held])),
        winkler=float(np.mean([row.winkler for row in held])),
    )


@cache
def fitted_rows() -> tuple[TransferRow, ...]:
    """Return the rows of the tables that are fitted."""
    return transfer_rows(decode_rows())


@cache
def held_out_rows(way: str) -> tuple[HeldOut, ...]:
    """Return the tables' rows predicted without their group, bands calibrated by the others."""
    items = fitted_rows()
    fitter = Fitter([item.observation for item in items])
    return tuple(calibrated(leave_groups_out(fitter, items, way)))


def is_nvidia(row: HeldOut) -> bool:
    """Whether the row is of an NVIDIA card."""
    return row.item.observation.features.vendor == "nvidia"


def transfer_accuracy(ways: Sequence[str] = tuple(WAYS)) -> tuple[TransferSummary, ...]:
    """Return the errors of every way: complete NVIDIA rows, those not of the study, all rows."""
    lines: list[TransferSummary] = []
    for way in ways:
        held = held_out_rows(way)
        stated = [row for row in held if row.item.complete and is_nvidia(row)]
        others = [row for row in stated if row.item.row.origin != "study"]
        lines.append(summarise(stated, "complete"))
        lines.append(summarise(others, "complete, not the study's card"))
        lines.append(summarise(held, "all fitted"))
    return tuple(lines)


def group_errors(way: str) -> tuple[TransferSummary, ...]:
    """Return one line a group, the worst first."""
    held = held_out_rows(way)
    lines = [
        summarise([row for row in held if row.group == group], group)
        for group in sorted({row.group for row in held})
    ]
    return tuple(sorted(lines, key=lambda line: -line.median))


def tier_scales() -> dict[str, float]:
    """Return the band factor of every tier of evidence, from all held-out rows of its way."""
    return {
        tier: round(band_scale(held_out_rows(way)), 3)
        for way, tiers in TIER_OF_WAY.items()
        for tier in tiers
    }
