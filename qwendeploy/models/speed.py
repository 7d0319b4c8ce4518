"""Decode speed inside one series: step time as a sum of named costs, corrected by its neighbours.

``T = concurrency / aggregate rate`` is the time in which every stream gains one token. It is
fitted by non-negative least squares on relative error with the terms ``1, c, c·x, x, c², (c−8)₊,
(c−16)₊`` (x in 16k tokens): launch floor, per-stream cost, KV read per stream and per step, and
the knees where the kernels change their tile. What is left, ``log(T / fit)``, is smooth over
``log2 c`` and ``log2(1 + x/16k)`` and goes into a Gaussian process whose noise is the repetition
noise of that draft at that concurrency. A measured cell therefore returns its own mean, shrunk
towards its neighbours by as much as its repetitions are noisy.

Sister series (the same option in another session) enter the least squares with a small weight and
share part of the process: they shape what the series' own cells leave open, above all the slope
beyond its last concurrency.
A term enters only where cells reach twice its knee; ``c²`` only with seven concurrencies, because
it ruins extrapolation otherwise (errors above 60 % two octaves out, 10 % without it).

The rates are those of ONE shared warm context per cell if the series was measured so; what
separate contexts cost is ``qwendeploy.models.separate``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from qwendeploy.figures import Kind
from qwendeploy.models.anchored import Anchor, combined
from qwendeploy.models.conformal import FEW_CELLS, conformal_factor
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.gp import SmoothField
from qwendeploy.models.nnls import Array, nnls_normal
from qwendeploy.models.speed_constants import Hyper

CONTEXT_UNIT = 16384.0
"""Tokens of context per unit of ``x``."""
Z = 1.645
"""Two-sided 0.90 of a normal distribution."""
Physics = Callable[[Array], Array]
"""Log step times, in seconds, at points (concurrency, context in tokens), one row each."""
KNEES = (8.0, 16.0)
SQUARE_LEVELS = 7


class RateCell(Protocol):
    """One measured point of a series: aggregate output tokens/s over ``n`` repetitions."""

    @property
    def concurrency(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def aggregate_tps(self) -> float: ...
    @property
    def std(self) -> float | None: ...
    @property
    def n(self) -> int: ...


def _terms(points: Array) -> Array:
    """Return the seven costs at ``points`` (concurrency, context in tokens), one row each."""
    c = points[:, 0]
    x = points[:, 1] / CONTEXT_UNIT
    knees = [np.maximum(c - knee, 0.0) for knee in KNEES]
    return np.stack([np.ones_like(c), c, c * x, x, c * c, *knees], axis=1)


def _coordinates(points: Array) -> Array:
    return np.stack([np.log2(points[:, 0]), np.log2(1.0 + points[:, 1] / CONTEXT_UNIT)], axis=1)


@dataclass(frozen=True)
class _Data:
    """Cells as arrays: points, step times, deviation of each mean (log units), repetitions."""

    points: Array
    times: Array
    noise: Array
    n: Array

    def without(self, index: int) -> _Data:
        keep = np.arange(len(self.times)) != index
        return _Data(self.points[keep], self.times[keep], self.noise[keep], self.n[keep])


def _data(cells: Sequence[RateCell], hyper: Hyper, draft: str) -> tuple[_Data, float]:
    """Return the cells as arrays and by how much their repetitions are noisier than usual."""
    for cell in cells:
        if not (cell.aggregate_tps > 0 and math.isfinite(cell.aggregate_tps)):
            raise ValueError(f"rate {cell.aggregate_tps} at {cell.concurrency} is not positive")
        if cell.concurrency < 1 or cell.context < 0 or cell.n < 1:
            raise ValueError(f"no such cell: {cell.concurrency} × {cell.context}, n={cell.n}")
    points = np.array([[cell.concurrency, cell.context] for cell in cells], dtype=np.float64)
    times = np.array([cell.concurrency / cell.aggregate_tps for cell in cells])
    n = np.array([cell.n for cell in cells], dtype=np.float64)
    run = np.array([hyper.run_noise(draft, cell.concurrency) for cell in cells])
    excess = freedom = hyper.noise_prior
    for cell, usual in zip(cells, run, strict=True):
        if cell.std is not None and cell.n > 1:
            excess += (cell.n - 1) * (cell.std / cell.aggregate_tps / usual) ** 2
            freedom += cell.n - 1
    factor = math.sqrt(excess / freedom)
    return _Data(points, times, factor * run / np.sqrt(n), n), factor


@dataclass(frozen=True)
class _Normal:
    """Normal equations of the costs on relative error, with the concurrencies behind them."""

    gram: Array
    moment: Array
    levels: frozenset[float]

    @classmethod
    def of(cls, data: _Data) -> _Normal:
        design = _terms(data.points) / data.times[:, None]
        return cls(design.T @ design, design.sum(axis=0), frozenset(data.points[:, 0].tolist()))

    def plus(self, other: _Normal, weight: float) -> _Normal:
        """Return the sum with another's equations at ``weight``."""
        return _Normal(
            self.gram + weight * other.gram,
            self.moment + weight * other.moment,
            self.levels | other.levels,
        )

    def solve(self, likely: Array | None = None) -> Array:
        """Return the seven coefficients >= 0; a term enters only where its cells suffice.

        ``likely`` are those of nearly the same cells.
        """
        usable = np.ones(7, dtype=bool)
        usable[4] = len(self.levels) >= SQUARE_LEVELS
        usable[5:] = [max(self.levels) >= 2 * knee for knee in KNEES]
        coefficients = np.zeros(7)
        near = None if likely is None else likely[usable]
        gram = self.gram[np.ix_(usable, usable)]
        coefficients[usable] = nnls_normal(gram, self.moment[usable], near)
        return coefficients


def _together(sisters: Sequence[_Data], weight: float) -> _Normal:
    """Return the equations of all sisters, weighing ``weight`` together."""
    total = _Normal(np.zeros((7, 7)), np.zeros(7), frozenset())
    for sister in sisters:
        total = total.plus(_Normal.of(sister), weight / len(sisters))
    return total


def _rest(data: _Data, coefficients: Array) -> Array:
    """Return ``log(T / fit)`` at the cells."""
    rest: Array = np.log(data.times / (_terms(data.points) @ coefficients))
    return rest


@dataclass(frozen=True)
class _Posterior:
    """The fit: cost coefficients, and the process over what they leave here and in sisters."""

    own: _Data
    sisters: tuple[_Data, ...]
    sister_rest: Array
    sister_costs: _Normal
    hyper: Hyper
    coefficients: Array
    field: SmoothField

    @classmethod
    def of(cls, own: _Data, sisters: tuple[_Data, ...], hyper: Hyper) -> _Posterior:
        rests = [_rest(sister, _Normal.of(sister).solve()) for sister in sisters]
        shared = _together(sisters, hyper.sister_weight)
        members = (own, *sisters)
        return cls(
            own,
            sisters,
            np.concatenate([*rests, np.zeros(0)]),
            shared,
            hyper,
            _Normal.of(own).plus(shared, 1.0).solve(),
            SmoothField.of(
                hyper.kernel,
                [_coordinates(member.points) for member in members],
                [member.noise for member in members],
            ),
        )

    def without(self, index: int) -> _Posterior:
        """Return the fit with one own cell held out, its cost coefficients fitted anew."""
        own = self.own.without(index)
        costs = _Normal.of(own).plus(self.sister_costs, 1.0)
        coefficients = costs.solve(self.coefficients)
        field = self.field.without(index)
        return replace(self, own=own, coefficients=coefficients, field=field)

    def at(self, points: Array, noise: Array) -> tuple[Array, Array]:
        """Return log step times at ``points`` and the deviations of means with that ``noise``."""
        values = np.concatenate([_rest(self.own, self.coefficients), self.sister_rest])
        smooth, variance = self.field.predict(values, _coordinates(points))
        costs = _terms(points) @ self.coefficients
        which = 1 if self.sisters else 0
        rates = (self.hyper.beyond_concurrency[which], self.hyper.beyond_context[which])
        beyond = _outside(self.own.points, points, rates)
        return np.log(costs) + smooth, np.sqrt(variance + noise**2 + beyond)


@dataclass(frozen=True)
class SeriesFit:
    """A fitted series; immutable, so that one fit serves every option that needs it."""

    hyper: Hyper
    draft: str
    basis: str
    noise_factor: float
    _own: _Data
    _posterior: _Posterior

    @property
    def cells(self) -> int:
        """Number of cells fitted to."""
        return len(self._own.times)

    @property
    def levels(self) -> tuple[float, ...]:
        """Concurrencies of the cells, ascending."""
        return tuple(sorted(set(self._own.points[:, 0].tolist())))

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Costs in seconds of the terms 1, c, c·x, x, c², (c−8)₊, (c−16)₊; all >= 0."""
        return tuple(float(value) for value in self._posterior.coefficients)

    def predict(
        self,
        concurrency: float,
        context: float,
        *,
        drift: bool = False,
        physics: Physics | None = None,
    ) -> Estimate:
        """Return the aggregate decode rate in tokens/s with its band at 0.90.

        ``drift`` widens the band by what another session, host or image adds. The kind is
        ``measured`` at a cell of the series, ``interpolated`` where cells lie on all four sides
        (no less and no more concurrency and context), else ``extrapolated``: there ``physics``,
        if given, is heard too (``models.anchored``).

        Raises:
            ValueError: the concurrency is below 1 or the context negative.
        """
        if not (concurrency >= 1 and context >= 0):
            raise ValueError(f"no such point: {concurrency} × {context}")
        point = _point(concurrency, context)
        (log_time,), (reach,) = self.step_times(point, physics)
        kind, n = self.kind(concurrency, context)
        basis = self.basis
        if physics is not None and kind is Kind.EXTRAPOLATED:
            basis = f"{basis}; beyond its cells with the step physics"
        if drift:
            reach = math.hypot(reach, math.asinh(self.hyper.drift_band(concurrency)))
        value = concurrency * math.exp(-log_time)
        return Estimate(value, value * math.exp(-reach), value * math.exp(reach), kind, n, basis)

    def step_times(self, points: Array, physics: Physics | None = None) -> tuple[Array, Array]:
        """Return log step times at ``points`` and the half widths of their bands, log units."""
        log_times, deviations = self.log_times(points)
        reach = self.band_factor * deviations
        if physics is None:
            return log_times, reach
        octaves = np.sqrt(_outside(self._own.points, points, (1.0, 1.0)))
        (beyond,) = np.nonzero(octaves)
        for at, moved in zip(beyond, self._moved(physics, points[beyond]), strict=True):
            own = (float(log_times[at]), float(reach[at]) / Z)
            log_times[at], deviation = combined(own, moved, float(octaves[at]))
            reach[at] = Z * deviation
        return log_times, reach

    def _moved(self, physics: Physics, points: Array) -> list[tuple[float, float]]:
        """Return the physics' log step times at points, moved to the cells, and their scatters."""
        if not len(points):
            return []
        cells = self._own
        times = physics(np.vstack([cells.points, points]))
        there = times[len(cells.times) :]
        rest = np.log(cells.times) - times[: len(cells.times)]
        anchor = Anchor(_coordinates(cells.points), rest)
        shifts = [anchor.shift(here) for here in _coordinates(points)]
        return [
            (float(time) + shift, scatter)
            for time, (shift, scatter) in zip(there, shifts, strict=True)
        ]

    def kind(self, concurrency: float, context: float) -> tuple[Kind, int]:
        """Return the kind of evidence at a point and the repetitions behind it."""
        here = np.all(self._own.points == (concurrency, context), axis=1)
        if here.any():
            return Kind.MEASURED, int(self._own.n[here].sum())
        inside = self.octaves_outside(concurrency, context) == 0
        return (Kind.INTERPOLATED if inside else Kind.EXTRAPOLATED), self.cells

    @property
    def mean_noise(self) -> tuple[float, ...]:
        """Deviation of every cell's mean from the repetitions behind it, in log units."""
        return tuple(float(value) for value in self._own.noise)

    def octaves_outside(self, concurrency: float, context: float) -> float:
        """Return how far a point lies outside the cells, in octaves; 0 where interpolated.

        Beyond about two octaves of concurrency without sisters another evidence is better: errors
        of a third and more were seen there.
        """
        return math.sqrt(_outside(self._own.points, _point(concurrency, context), (1.0, 1.0))[0])

    def log_times(self, points: Array) -> tuple[Array, Array]:
        """Return log step times and the deviations of one further run at each of ``points``."""
        noise = [self.hyper.run_noise(self.draft, float(level)) for level in points[:, 0]]
        return self._posterior.at(points, self.noise_factor * np.asarray(noise))

    @cached_property
    def band_factor(self) -> float:
        """Deviations per half band at 0.90: the common one, or conformal below 20 cells."""
        if self.cells >= FEW_CELLS:
            return self.hyper.k
        return conformal_factor(self.leave_one_out(), self.hyper.k)

    def leave_one_out(self) -> tuple[tuple[float, float], ...]:
        """Return per cell (log measured / predicted rate, deviation) with that cell held out.

        The deviation is that of the cell's own mean. A series of one cell has none to return.
        """
        if self.cells < 2:
            return ()
        return tuple(self._held_out(index) for index in range(self.cells))

    def _held_out(self, index: int) -> tuple[float, float]:
        point = self._own.points[index : index + 1]
        noise = self._own.noise[index : index + 1]
        (log_time,), (deviation,) = self._posterior.without(index).at(point, noise)
        return float(log_time) - math.log(float(self._own.times[index])), float(deviation)


_SIDES = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])[:, None, None, :]
"""Less or more concurrency by less or more context."""


def _point(concurrency: float, context: float) -> Array:
    return np.array([[concurrency, context]], dtype=np.float64)


def _outside(cells: Array, points: Array, rates: tuple[float, float]) -> Array:
    """Return for each point the variance for lying outside the cells.

    It is 0 where all four sides (less or more concurrency × less or more context) have a cell. Per
    side the nearest cell counts, by the octaves it falls short, times ``rates``; the worst side
    decides.
    """
    ahead = _coordinates(cells)[None, :, :] - _coordinates(points)[:, None, :]
    short = np.maximum(-_SIDES * ahead[None], 0.0) * np.asarray(rates)
    worst: Array = np.sum(short**2, axis=-1).min(axis=2).max(axis=0)
    return worst


def surrounded(cells: Iterable[RateCell], concurrency: float, context: float) -> bool:
    """Return whether cells lie on all four sides of a point, so that it is interpolated."""
    points = np.array([[cell.concurrency, cell.context] for cell in cells], dtype=np.float64)
    here = _point(concurrency, context)
    return len(points) > 0 and _outside(points, here, (1.0, 1.0))[0] == 0


def fit_series(
    cells: Sequence[RateCell],
    hyper: Hyper,
    *,
    draft: str = "none",
    sisters: Sequence[Sequence[RateCell]] = (),
    basis: str = "",
) -> SeriesFit:
    """Return the fit of one series: cells of one option in one session.

    ``draft`` (``none``, ``mtp``, ``dflash`` …) selects the repetition noise; ``sisters`` are the
    cells of the same option in other sessions; ``basis`` is what estimates name as their source.

    Raises:
        ValueError: no cell, or a cell without a positive rate.
    """
    if not cells:
        raise ValueError("a series without a usable cell cannot be fitted")
    own, factor = _data(cells, hyper, draft)
    others = tuple(_data(sister, hyper, draft)[0] for sister in sisters if sister)
    return SeriesFit(hyper, draft, basis, factor, own, _Posterior.of(own, others, hyper))
