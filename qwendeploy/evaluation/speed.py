"""How well the speed model predicts what it has not seen: the tables of ``data accuracy``.

Leave-one-session-out comes first, because it is what a stranger's box sees: every cell of a
session is predicted from another session of the same option, with the drift band. Then
leave-one-cell-out inside each series, with kernel and band factor chosen without the error that
they are judged by. A cell is *inner* if it stays interpolated without itself, else *edge*. The
noise floor is the error that a perfect model would show against means of so few repetitions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from qwendeploy.evaluation.judged import frame_of
from qwendeploy.evidence.speed_fit import (
    default_hyper,
    fit_with,
    hyper_from,
    option_of,
    speed_model,
)
from qwendeploy.figures import LEVEL, Kind
from qwendeploy.models.conformal import FEW_CELLS, conformal_factor
from qwendeploy.models.speed import SeriesFit, surrounded
from qwendeploy.tables.series import Series, all_series

MIN_CELLS = 6
"""Smallest series that is judged: fewer cells leave no curve to hold one out of."""
MIN_SOURCE_CELLS = 9
"""Smallest series that another session is predicted from."""
BUCKETS = ((1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (33, 4096))


@dataclass(frozen=True)
class Held:
    """One held-out cell: log(measured / predicted), half band in log units, noise of its mean."""

    series: str
    concurrency: int
    context: int
    error: float
    half: float
    noise: float
    inner: bool

    @property
    def relative(self) -> float:
        """|predicted / measured − 1|."""
        return abs(math.expm1(-self.error))

    @property
    def covered(self) -> bool:
        """The band contains the measured mean."""
        return abs(self.error) <= self.half

    @property
    def miss(self) -> float:
        """How far the measured mean is outside the band, log units."""
        return max(abs(self.error) - self.half, 0.0)


@dataclass(frozen=True)
class Summary:
    """Errors of a group of held-out cells; all but counts and coverage as fractions of the rate."""

    name: str
    n: int
    median: float
    p90: float
    max: float
    coverage: float
    half_width: float
    winkler: float
    floor_median: float
    floor_p90: float
    inner_n: int
    inner_median: float | None
    inner_p90: float | None
    edge_n: int
    edge_median: float | None
    edge_p90: float | None


def summarise(name: str, held: Sequence[Held]) -> Summary:
    """Return the summary of at least one held-out cell.

    The Winkler score is the mean width of the band plus 2/α times what misses it, α = 0.10.

    Raises:
        ValueError: nothing was held out, so nothing can be said.
    """
    if not held:
        raise ValueError(f"{name}: no held-out cell")
    cells = frame_of(held, "relative", "half", "noise", "inner", "covered", "miss")
    errors, inner = cells["relative"], cells["inner"]
    score = 2 * cells["half"] + 2 / (1 - LEVEL) * cells["miss"]
    noise = list(cells["noise"])
    return Summary(
        name=name,
        n=len(held),
        median=float(errors.median()),
        p90=float(errors.quantile(0.9)),
        max=float(errors.max()),
        coverage=float(cells["covered"].mean()),
        half_width=float(np.sinh(cells["half"]).median()),
        winkler=float(score.mean()),
        floor_median=noise_floor(noise, 0.5),
        floor_p90=noise_floor(noise, 0.9),
        inner_n=int(inner.sum()),
        inner_median=_quantile(errors[inner], 0.5),
        inner_p90=_quantile(errors[inner], 0.9),
        edge_n=int((~inner).sum()),
        edge_median=_quantile(errors[~inner], 0.5),
        edge_p90=_quantile(errors[~inner], 0.9),
    )


def _quantile(values: pd.Series[float], level: float) -> float | None:
    return None if values.empty else float(values.quantile(level))


def noise_floor(deviations: Sequence[float], level: float) -> float:
    """Return the quantile of |error| of a perfect model under normal noise of these deviations."""
    low, high = 0.0, 6.0 * max(deviations)
    for _ in range(60):
        middle = (low + high) / 2
        below = sum(math.erf(middle / (s * math.sqrt(2))) for s in deviations) / len(deviations)
        low, high = (middle, high) if below < level else (low, middle)
    return high


def nested_values(series: Series, concurrency: int, context: int) -> dict[str, float]:
    """Return kernel and k chosen without this cell's error, k from other series."""
    model = speed_model()
    entry: dict[str, Any] = dict(model["nested"].get(series.key.label, {}))
    chosen = entry.get(f"c{concurrency}_x{context}")
    values: dict[str, float] = dict(model["hyper"])
    values.update(chosen or {key: entry[key] for key in ("k",) if key in entry})
    return values


def leave_cells_out(series: Series, universe: Sequence[Series]) -> list[Held]:
    """Return every cell of a series predicted from the others.

    A series of at least 20 cells is judged with the nested constants. A smaller one had no part
    in choosing the constants; its band is conformal from the errors of its other cells.
    """
    if len(series.cells) < FEW_CELLS:
        fit = fit_with(series, default_hyper(), universe)
        errors = fit.leave_one_out()
        return [
            _held(series, fit, index, conformal_factor(_but(errors, index), fit.hyper.k))
            for index in range(len(errors))
        ]
    fits: dict[tuple[tuple[str, float], ...], SeriesFit] = {}
    held = []
    for index, cell in enumerate(series.cells):
        values = nested_values(series, cell.concurrency, cell.context)
        key = tuple(sorted(values.items()))
        if key not in fits:
            fits[key] = fit_with(series, hyper_from(values, speed_model()), universe)
        held.append(_held(series, fits[key], index, values["k"]))
    return held


def leave_series_out(series: Series, universe: Sequence[Series]) -> list[Held]:
    """Return as ``leave_cells_out``, with kernel and k chosen without the whole series."""
    values = speed_model()["held_out"][series.key.label]
    fit = fit_with(series, hyper_from(values, speed_model()), universe)
    return [_held(series, fit, index, values["k"]) for index in range(len(series.cells))]


def _but(errors: Sequence[tuple[float, float]], index: int) -> list[tuple[float, float]]:
    return [*errors[:index], *errors[index + 1 :]]


def _held(series: Series, fit: SeriesFit, index: int, k: float) -> Held:
    error, deviation = fit.leave_one_out()[index]
    cell = series.cells[index]
    others = [other for other in series.cells if other is not cell]
    return Held(
        series=series.key.label,
        concurrency=cell.concurrency,
        context=cell.context,
        error=error,
        half=k * deviation,
        noise=fit.mean_noise[index],
        inner=surrounded(others, cell.concurrency, cell.context),
    )


def leave_session_out(series: Series, universe: Sequence[Series]) -> list[Held]:
    """Return the cells of a series predicted from the best other session of the same option.

    The best session is the one with most cells that does not extrapolate there; its sisters leave
    the held-out session out too. Cells that no other session reaches are not returned.
    """
    option = option_of(series.key, series.fork)
    rest = [other for other in universe if other.key.session != series.key.session]
    sources = [
        fit_with(other, default_hyper(), rest)
        for other in sorted(rest, key=lambda other: -len(other.cells))
        if len(other.cells) >= MIN_SOURCE_CELLS and option_of(other.key, other.fork) == option
    ]
    if not sources:
        return []
    own = fit_with(series, default_hyper(), ())
    held = []
    for cell, noise in zip(series.cells, own.mean_noise, strict=True):
        for source in sources:
            kind, _ = source.kind(cell.concurrency, cell.context)
            if kind is Kind.EXTRAPOLATED:
                continue
            there = source.predict(cell.concurrency, cell.context, drift=True)
            held.append(
                Held(
                    series=series.key.label,
                    concurrency=cell.concurrency,
                    context=cell.context,
                    error=math.log(cell.aggregate_tps / there.value),
                    half=math.log(there.high / there.value),
                    noise=noise,
                    inner=kind is Kind.INTERPOLATED,
                )
            )
            break
    return held


@dataclass(frozen=True)
class SpeedAccuracy:
    """The speed tables: sessions first, then cells of each series and pooled."""

    sessions: tuple[Summary, ...]
    """Leave-one-session-out by concurrency, the last row pooled."""
    pooled: Summary
    """Leave-one-cell-out over the series with at least 20 cells."""
    series: tuple[Summary, ...]
    small_pooled: Summary
    small: tuple[Summary, ...]
    series_unseen: Summary
    """As ``pooled``, kernel and k chosen without the whole series."""
    not_judged: int
    """Series with cells, but too few to hold one out."""


@cache
def speed_accuracy() -> SpeedAccuracy:
    """Return the tables for the shipped data. Deterministic; some seconds.

    Judged are measured series with aggregate rates at stated concurrency and context.
    """
    every = tuple(series for series in all_series() if series.cells)
    study = [series for series in every if series.key.origin == "study"]
    big = [series for series in study if len(series.cells) >= FEW_CELLS]
    small = [series for series in every if MIN_CELLS <= len(series.cells) < FEW_CELLS]
    cells = {series.key.label: leave_cells_out(series, every) for series in big}
    few = [leave_cells_out(series, every) for series in small]
    sessions = [cell for series in study for cell in leave_session_out(series, every)]
    unseen = [cell for series in big for cell in leave_series_out(series, every)]
    return SpeedAccuracy(
        sessions=(*_by_concurrency(sessions), summarise("all sessions", sessions)),
        pooled=summarise("all series", [cell for group in cells.values() for cell in group]),
        series=tuple(summarise(name, group) for name, group in cells.items()),
        small_pooled=summarise("all small series", [cell for group in few for cell in group]),
        small=tuple(
            summarise(series.key.label, group) for series, group in zip(small, few, strict=True)
        ),
        series_unseen=summarise("constants without the series", unseen),
        not_judged=len(every) - len(big) - len(small),
    )


def _by_concurrency(held: Sequence[Held]) -> list[Summary]:
    rows = []
    for low, high in BUCKETS:
        group = [cell for cell in held if low <= cell.concurrency <= high]
        if group:
            name = f"c = {low}" if low == high else f"c > {low - 1}"
            rows.append(summarise(name, group))
    return rows
