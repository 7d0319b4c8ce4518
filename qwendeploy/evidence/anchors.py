"""What series and joint physics tell of each other.

Beyond a series' cells the physics' step times carry it; where only other draft lengths of an option
have series, what these are above or below the physics moves the length that has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from qwendeploy.documents import Option
from qwendeploy.evidence.series_choice import best_series
from qwendeploy.evidence.transfer_rows import transfer_fit
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.isotonic import between, rising
from qwendeploy.models.nnls import Array
from qwendeploy.models.speed import SeriesFit
from qwendeploy.models.step import Features
from qwendeploy.tables.gpus import GpuModel
from qwendeploy.tables.series import Series, SeriesKey

SIBLING_SHARE = 0.5
"""Share of what a draft length's series is above the joint physics that other lengths keep: the
slope over the study's FP8 cells with 2 to 6 MTP drafts, each length held out of the fit in turn."""

SAME_BOARD = 0.15
"""Most that the memory of a card's versions for a workstation, a server and less power differs."""


class StepTimes:
    """Log step times in seconds at points (concurrency, context); each is computed once.

    ``features`` are of the option as its series measured it; their own point is not used.
    """

    def __init__(self, features: Features) -> None:
        self._base = replace(features, capture_size=None)
        self._known: dict[tuple[float, float], float] = {}

    def __call__(self, points: Array) -> Array:
        """Return one log time a row of ``points``."""
        keys = [(float(c), float(x)) for c, x in points]
        missing = list(dict.fromkeys(key for key in keys if key not in self._known))
        if missing:
            asked = [replace(self._base, concurrency=c, context=x) for c, x in missing]
            rates = transfer_fit().log_rates(asked)
            for (c, x), rate in zip(missing, rates, strict=True):
                self._known[c, x] = math.log(c) - float(rate)
        return np.asarray([self._known[key] for key in keys])


@dataclass(frozen=True)
class LoadCurve:
    """The least times in which all streams of a server gain a token, by how many they are.

    More streams are never a shorter step: where a series' cells say so they differ by noise (a
    single run at two streams 5 % below what four make of it), and the loads are averaged.
    """

    levels: Array
    times: Array
    """Log seconds at each level, none below one before it."""

    @classmethod
    def of(cls, fit: SeriesFit, context: int, physics: StepTimes | None) -> LoadCurve:
        """Return the curve of a series at one context, at the loads of its cells."""
        levels = np.asarray(fit.levels)
        points = np.stack([levels, np.full_like(levels, context)], axis=1)
        times, _ = fit.step_times(points, physics)
        return cls(levels, rising(times))

    def held(self, rate: Estimate, concurrency: float) -> Estimate:
        """Return a rate of the series moved to where no fewer streams take longer."""
        time = math.log(concurrency / rate.value)
        held = between(self.times, self.levels, concurrency, time)
        return rate if held == time else rate.scaled(math.exp(time - held))


class SeriesRates:
    """Rates that series give of themselves, each computed once for all options it speaks for."""

    def __init__(self) -> None:
        self._curves: dict[tuple[SeriesKey, StepTimes | None, int], LoadCurve] = {}
        self._rates: dict[tuple[SeriesKey, StepTimes | None, float, int], Estimate] = {}

    def at(
        self,
        of: SeriesKey,
        fit: SeriesFit,
        physics: StepTimes | None,
        concurrency: float,
        context: int,
    ) -> Estimate:
        """Return the rate of a fitted series at a point, held by its curve over the loads."""
        key = (of, physics, concurrency, context)
        if key not in self._rates:
            curve = (of, physics, context)
            if curve not in self._curves:
                self._curves[curve] = LoadCurve.of(fit, context, physics)
            rate = fit.predict(concurrency, context, drift=True, physics=physics)
            self._rates[key] = self._curves[curve].held(rate, concurrency)
        return self._rates[key]


@cache
def step_times(features: Features) -> StepTimes:
    """Return the step times of an option, the same for every image and scene that asks for it."""
    return StepTimes(features)


def drafts_beside(series: Sequence[Series], option: Option) -> tuple[Option, ...]:
    """Return the option with the nearest shorter and longer MTP draft that a series speaks for.

    Series are of 16-bit KV: what they are above the physics is not known to hold for another.
    """
    if option.spec_method != "mtp" or option.kv_cache_dtype != "bf16":
        return ()
    lengths = sorted({s.key.spec_tokens or 0 for s in series if s.key.spec_method == "mtp"})
    shorter = [length for length in reversed(lengths) if length < option.spec_tokens]
    longer = [length for length in lengths if length > option.spec_tokens]
    found: list[Option] = []
    for side in (shorter, longer):
        options = (option.model_copy(update={"spec_tokens": length}) for length in side)
        nearest = next((other for other in options if best_series(series, other)), None)
        if nearest is not None:
            found.append(nearest)
    return tuple(found)


def moved_beside(
    rate: Estimate, option: Option, beside: Sequence[tuple[Option, float]]
) -> Estimate:
    """Return the joint fit's rate moved to the level of the draft lengths beside it.

    ``beside`` are these options with the logarithm of their series' rate over the joint fit's; the
    nearer length weighs more. The band keeps its relative width.
    """
    if not beside:
        return rate
    weights = [1 / abs(other.spec_tokens - option.spec_tokens) for other, _ in beside]
    above = sum(w * log for w, (_, log) in zip(weights, beside, strict=True)) / sum(weights)
    names = " and ".join(f"mtp{other.spec_tokens}" for other, _ in beside)
    moved = rate.scaled(math.exp(SIBLING_SHARE * above))
    return replace(
        moved, basis=f"{rate.basis}, shifted halfway to the level of {names} on this machine"
    )


def same_board(one: GpuModel, other: GpuModel) -> bool:
    """Return whether two cards are one chip with as much memory of nearly the same speed."""
    if not (one.bandwidth_gbps and other.bandwidth_gbps):
        return False
    return (
        one.compute_capability == other.compute_capability
        and one.memory_mib == other.memory_mib
        and one.unified == other.unified
        and abs(one.bandwidth_gbps / other.bandwidth_gbps - 1) < SAME_BOARD
    )
