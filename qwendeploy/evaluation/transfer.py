"""How wrong predictions between machines and options are: everything of a group held out.

Six ways of leaving out, each judged on rows that state version, tp, quant, draft, concurrency and
context (and, beside them, on all fitted rows): a *machine* (every row of a GPU kind), a *layout*
(every row of a GPU kind at one tp), a *draft* (a method and length on a GPU kind), a *quant* on a
GPU kind, a *rig* (one host and session: a stranger's box with a known card), and one community
*row* in four. A row is predicted from what can be stated before a run: the acceptance that it
measured is not used. Bands are calibrated: the factor on a group's band comes from the errors of
the other groups only, so the coverage printed is the one a stranger's machine would see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from qwendeploy.evaluation.judged import frame_of
from qwendeploy.evidence.prefill_rows import loop_rows
from qwendeploy.evidence.transfer_rows import TransferRow, transfer_rows
from qwendeploy.models.step import Features
from qwendeploy.models.transfer import Z
from qwendeploy.models.transfer_fit import Fitter
from qwendeploy.tables.decode import decode_rows

Way = Callable[[TransferRow], str | None]


def _of_features(name: Callable[[Features], str]) -> Way:
    return lambda item: name(item.observation.features)


def _quarter(item: TransferRow) -> str | None:
    """Return which quarter of the community table a row is in, by a sum over its name."""
    if item.row.origin != "community":
        return None
    return f"quarter {crc32(item.row.row_id.encode()) % 4}"


WAYS: dict[str, Way] = {
    "machine": _of_features(lambda p: f"{p.gpu}"),
    "layout": _of_features(lambda p: f"{p.gpu} tp{p.tp}"),
    "draft": _of_features(lambda p: f"{p.gpu} {p.spec_method}{p.drafted or ''}"),
    "quant": _of_features(lambda p: f"{p.gpu} {p.quant}"),
    "rig": _of_features(lambda p: f"{p.rig}"),
    "row": _quarter,
}
"""Way of leaving out -> name of the group that a row belongs to, ``None``: never left out."""
TIERS_OF_WAY = {
    "machine": ("architecture", "none"),
    "layout": ("gpu",),
    "draft": ("layout", "gpu"),
    "quant": ("layout", "gpu"),
    "rig": ("layout", "gpu"),
    "row": ("layout", "gpu", "architecture", "none"),
}
"""What a way of leaving out must leave: holding out the only layout of a card is holding out the
machine, and is judged there."""
WAYS_OF_TIERS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("architecture", "none"): ("machine",),
    ("gpu",): ("layout",),
    ("layout",): ("rig", "quant", "draft"),
}
"""Tiers of evidence -> ways of leaving out whose rows set their bands: on a card and layout that
somebody measured, the host, the weights or the draft may be what nobody did."""
MIN_SCALE = 0.7
FEWEST_PEERS = 20
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
    def host(self) -> str:
        """The kind of host that the row was measured on: the study's, a desk's or a server."""
        if self.item.row.origin == "study":
            return "study"
        return "home" if self.item.observation.features.home_built else "server"

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
    names = [WAYS[way](item) for item in items]
    start, _ = fitter.problem.solve()
    found: list[HeldOut] = []
    for group in sorted({name for name in names if name is not None}):
        out: NDArray[np.bool_] = np.asarray([name == group for name in names])
        fit = fitter.fit(held_out=out, start=start)
        held = [item for item, is_out in zip(items, out, strict=True) if is_out]
        points = [item.asked for item in held]
        logs, deviations = fit.log_spread(points)
        found += [
            HeldOut(way, group, item, math.exp(log), float(deviation), fit.tier(point))
            for item, point, log, deviation in zip(held, points, logs, deviations, strict=True)
            if fit.tier(point) in TIERS_OF_WAY[way] and not item.derived
        ]
    return found


def band_scale(held: Iterable[HeldOut]) -> float:
    """Return the factor with which bands of these rows cover ``LEVEL`` of them.

    A weighted conformal quantile of the scores: every group weighs as the root of its rows, so that
    one large matrix does not decide alone.
    """
    rows = frame_of(held, "way", "group", "score")
    sizes = rows.groupby(["way", "group"])["score"].transform("size")
    scores, weights = rows["score"].abs().to_numpy(), 1 / np.sqrt(sizes.to_numpy())
    order = np.argsort(scores)
    total = np.cumsum(weights[order]) / (weights.sum() + weights.mean())
    place = min(int(np.searchsorted(total, LEVEL)), len(rows) - 1)
    return max(float(scores[order][place]) / Z, MIN_SCALE)


def peers(held: Sequence[HeldOut], group: str) -> Sequence[HeldOut]:
    """Return the rows that calibrate the band of a group: of other groups, hosts like its own.

    What scatters on a desk (slots, power caps, processors) says little about a server: each kind is
    judged by its own where it has ``FEWEST_PEERS`` rows, else by every host but the study's, whose
    rows are of one host and scatter less than strangers' do.
    """
    others = [row for row in held if row.group != group]
    return _like(others, next(row.host for row in held if row.group == group))


def _like(held: Sequence[HeldOut], kind: str) -> Sequence[HeldOut]:
    """Return the rows of hosts of a kind, else of strangers' hosts, else all: the first enough."""
    alike = [row for row in held if row.host == kind]
    strangers = [row for row in held if row.host != "study"]
    return next((rows for rows in (alike, strangers) if len(rows) >= FEWEST_PEERS), held)


def calibrated(held: Sequence[HeldOut]) -> list[HeldOut]:
    """Return the rows with the band factor that the other groups of the same way give."""
    scales = {}
    for group in {row.group for row in held}:
        others = peers(held, group)
        scales[group] = band_scale(others) if others else 1.0
    return [
        HeldOut(r.way, r.group, r.item, r.predicted, r.deviation, r.tier, scales[r.group])
        for r in held
    ]


def summarise(held: Sequence[HeldOut], rows: str) -> TransferSummary:
    """Return the table line of these rows."""
    judged = frame_of(held, "group", "error", "covered", "reach", "winkler")
    errors = judged["error"].abs()
    medians = errors.groupby(judged["group"]).median()
    return TransferSummary(
        way=held[0].way,
        rows=rows,
        n=len(held),
        groups=len(medians),
        median=float(errors.median()),
        median_of_groups=float(medians.median()),
        p90=float(errors.quantile(0.9)),
        worst=float(errors.max()),
        coverage=float(judged["covered"].mean()),
        half_width=float(np.sinh(judged["reach"]).median()),
        winkler=float(judged["winkler"].mean()),
    )


@cache
def fitted_rows() -> tuple[TransferRow, ...]:
    """Return the rows of the tables that are fitted."""
    return (*transfer_rows(decode_rows()), *loop_rows(decode_rows()))


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
    """Return the band factor of every tier of evidence, by kind of host, from rows of its ways.

    Hosts put together at home have the key with ``:home``; a kind with few rows has the factor of
    all.
    """
    scales: dict[str, float] = {}
    for tiers, ways in WAYS_OF_TIERS.items():
        held = [row for way in ways for row in held_out_rows(way)]
        for host, mark in (("server", ""), ("home", ":home")):
            factor = band_scale(_like(held, host))
            scales |= {f"{tier}{mark}": round(factor, 3) for tier in tiers}
    return scales
