"""How wrong cold prefills and closed-loop throughputs are with their machine held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from qwendeploy.evaluation.judged import frame_of
from qwendeploy.evaluation.transfer import fitted_rows
from qwendeploy.evidence.prefill_rows import all_prefills
from qwendeploy.evidence.transfer_rows import counts_prompts, features_of
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.latency import ClosedLoopModel, closed_loop
from qwendeploy.models.prefill import (
    PrefillFit,
    PrefillPoint,
    fit_prefill,
)
from qwendeploy.models.step import Features
from qwendeploy.models.transfer import TransferFit
from qwendeploy.models.transfer_fit import Fitter
from qwendeploy.tables.decode import DecodeRow, decode_rows

GROUPS: dict[str, Callable[[Features], str]] = {
    "machine": lambda f: f"{f.gpu}",
    "layout": lambda f: f"{f.gpu} tp{f.tp}",
    "session": lambda f: f"{f.rig}",
}


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Errors of one quantity with a group held out, as fractions."""

    quantity: str
    way: str
    n: int
    groups: int
    median: float
    p90: float
    coverage: float
    half_width: float


@dataclass(frozen=True, slots=True)
class JudgedCell:
    """One measured value with its estimate from a fit without its group."""

    group: str
    measured: float
    estimate: Estimate
    label: str

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.estimate.value / self.measured - 1

    @property
    def covered(self) -> bool:
        """The band contains the measured value."""
        return self.estimate.low <= self.measured <= self.estimate.high

    @property
    def half_width(self) -> float:
        """Half of the band, as a fraction of the estimate."""
        return self.estimate.half_width


def summarise(quantity: str, way: str, judged: Sequence[JudgedCell]) -> LatencySummary:
    """Return the table line of these values."""
    values = frame_of(judged, "group", "error", "covered", "half_width")
    errors = values["error"].abs()
    return LatencySummary(
        quantity,
        way,
        n=len(values),
        groups=values["group"].nunique(),
        median=float(errors.median()),
        p90=float(errors.quantile(0.9)),
        coverage=float(values["covered"].mean()),
        half_width=float(values["half_width"].median()),
    )


@cache
def prefill_errors(way: str, scale: float = 1.0) -> tuple[JudgedCell, ...]:
    """Return every cold prefill predicted by a fit without its group; bands times ``scale``."""
    pairs = all_prefills()
    points, times = [p for p, _ in pairs], [t for _, t in pairs]
    names = np.asarray([GROUPS[way](p.features) for p in points])
    judged: list[JudgedCell] = []
    for group in sorted(set(names)):
        out = names == group
        fit = fit_prefill(points, times, held_out=out, scale=scale)
        judged += [
            JudgedCell(group, time, fit.predict(_new_rig(point)), point.series)
            for point, time, is_out in zip(points, times, out, strict=True)
            if is_out
        ]
    return tuple(judged)


def _new_rig(point: PrefillPoint) -> PrefillPoint:
    return replace(point, features=replace(point.features, rig=None))


def prefill_scale() -> float:
    """Return the factor with which bands cover nine in ten prefills of machines held out."""
    scores = sorted(
        abs(math.log(j.measured / j.estimate.value))
        / (math.log(j.estimate.high / j.estimate.low) / 2)
        for j in prefill_errors("machine")
    )
    return round(max(scores[min(math.ceil(0.9 * (len(scores) + 1)), len(scores)) - 1], 1.0), 3)


def loop_of(row: DecodeRow, decode: TransferFit, prefill: PrefillFit) -> ClosedLoopModel | None:
    """Return the closed loop that a row measured, predicted; ``None`` if it states too little."""
    features = features_of(row)
    if features is None or row.context is None or row.output_tokens is None:
        return None
    context = row.context + row.output_tokens / 2
    features = replace(features, rig=None, context=context, contexts="separate")
    point = PrefillPoint(features, row.context, row.max_num_batched_tokens)

    return closed_loop(
        decode.predict(features),
        prefill.predict(point),
        concurrency=row.concurrency or 1,
        output_tokens=row.output_tokens,
    )


@cache
def loop_errors() -> tuple[JudgedCell, ...]:
    """Return every closed-loop row predicted by decode and prefill fits without its GPU kind."""
    wanted = [row for row in decode_rows() if counts_prompts(row)]
    items = fitted_rows()
    fitter = Fitter([item.observation for item in items])
    cards = np.asarray([f"{item.observation.features.gpu}" for item in items])
    start, _ = fitter.problem.solve()
    pairs = all_prefills()
    points, times = [p for p, _ in pairs], [t for _, t in pairs]
    prefilled = np.asarray([f"{p.features.gpu}" for p in points])
    judged: list[JudgedCell] = []
    for card in sorted({row.gpu for row in wanted}):
        decode = fitter.fit(held_out=cards == card, start=start)
        prefill = fit_prefill(points, times, held_out=prefilled == card)
        for row in wanted:
            loop = loop_of(row, decode, prefill) if row.gpu == card else None
            if loop is not None and row.aggregate_tps:
                judged.append(JudgedCell(card, row.aggregate_tps, loop.output_tps, row.row_id))
    return tuple(judged)


def latency_accuracy() -> tuple[LatencySummary, ...]:
    """Return the errors of cold prefills by every way of leaving out, and of closed loops."""
    scale = prefill_scale()
    lines = [summarise("cold prefill", way, prefill_errors(way, scale)) for way in GROUPS]
    return (*lines, summarise("closed-loop throughput", "machine", loop_errors()))
