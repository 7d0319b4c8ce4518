"""What following the advice costs against the best measured option: the regret tables.

At every point that at least two options measured, each option's rate is predicted with its own
cell held out; the advice is the option with the best conservative end, as the planner ranks. Its
regret is what its measured rate lacks of the best one, 0 where the difference is within the noise
of the two cells: repetitions, and the spread between starts of a server. Options that cannot hold
that many *distinct* contexts are out, whatever the table shows: the study's cells share one.
Weights below the default quality class are out too.

*Within*: options of one image and one session, which may be compared directly. *Across*: all
images and sessions on the card. The constant advice, FP8 with three MTP drafts at TP=2, is judged
at the same points.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from qwendeploy.errors import UserError
from qwendeploy.evaluation.judged import frame_of
from qwendeploy.evaluation.speed import MIN_CELLS, nested_values
from qwendeploy.evidence.pool_estimate import PoolQuestion, estimate_pool
from qwendeploy.evidence.speed_fit import fit_with, hyper_from, speed_model
from qwendeploy.figures import Kind
from qwendeploy.models.conformal import FEW_CELLS, conformal_factor
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.memory import running_at
from qwendeploy.models.separate import replicas_rate
from qwendeploy.models.speed import SeriesFit, surrounded
from qwendeploy.planning.ranking import ENOUGH, TIE, level
from qwendeploy.tables.checkpoints import find_checkpoint
from qwendeploy.tables.gpus import find_gpu
from qwendeploy.tables.series import Series, SeriesCell, SeriesKey, all_series

ACROSS = "across"
SAME_CONTEXT = 0.03
"""Contexts closer than this are one point: 32,000 and 32,768, 131,072 and 134,144."""
Z = 1.645
"""Two-sided 0.90 of a normal: differences of two cells inside it are ties."""
START_SPREAD = 0.025
"""Deviation between starts of one option beyond its repetitions. The ratio of two options varies by
4.1 to 5.2 % between the sessions that measured both (c <= 4, 156 degrees of freedom), of which
repetitions explain 2.1 to 4.5 %: 1.9 to 2.9 % a start. The known case is MTP5 against MTP3 for one
user at 128k: +6.5, -3.5 and -2.8 % in three sessions."""
DEFAULT_UTILIZATION = 0.85
DEFAULT_SEATS = 128
DEFAULT_BATCHED = 32768
STRONG_QUANTS = ("bf16", "fp8")
"""Weights of the default quality class, ``near``."""
CONSTANT = ("fp8", "mtp", 3, 2, 1)
"""Quant, draft, draft tokens, TP and replicas of the advice that never looks at the workload."""


@dataclass(frozen=True)
class Choice:
    """One option at one point: measured rate, held-out prediction, noise of the measured mean."""

    series: Series
    replicas: int
    measured: float
    predicted: Estimate
    noise: float
    cells: int

    @property
    def option(self) -> tuple[str, str, int, int, int]:
        """Quant, draft, draft tokens, TP, replicas."""
        key = self.series.key
        return (key.quant, key.spec_method or "none", key.spec_tokens or 0, key.tp or 1,
                self.replicas)  # fmt: skip

    @property
    def label(self) -> str:
        """Short name of the option."""
        quant, draft, tokens, tp, replicas = self.option
        layout = f"tp{tp}" + (f" ×{replicas}" if replicas > 1 else "")
        return f"{quant}+{draft}{tokens or ''} {layout}"


@dataclass(frozen=True)
class Decision:
    """The advice at one point beside the best measured option and the constant advice."""

    scope: str
    concurrency: int
    context: int
    options: int
    chosen: str
    best: str
    regret: float
    constant_regret: float | None


@dataclass(frozen=True)
class Regret:
    """Regret over the points of a scope, as fractions of the best measured rate."""

    name: str
    n: int
    mean: float
    worst: float
    right: float
    """Share of points without regret."""
    constant_n: int
    """Points where the constant advice was measured and feasible."""
    mean_there: float
    """Mean regret of the advice at those points."""
    constant_mean: float
    constant_worst: float


def holds(series: Series, concurrency: int, context: int) -> bool:
    """Return whether ``concurrency`` distinct contexts run at once in the series' pool.

    The pool is that of the series' memory fraction, batched tokens and seats, prefix caching on
    as it was; an option whose pool cannot be computed is taken to hold.
    """
    key = series.key
    card = find_gpu(key.gpu)
    checkpoint = find_checkpoint(key.checkpoint or "", quant=key.quant)
    if card is None or not card.memory_mib or not checkpoint or not checkpoint.gib_on_disk:
        return True
    try:
        pool = estimate_pool(
            PoolQuestion(
                memory_mib=card.memory_mib,
                compute_capability=card.compute_capability or "0",
                gpu_memory_utilization=(
                    max(series.gpu_memory_utilization, default=DEFAULT_UTILIZATION)
                ),
                tp=key.tp or 1,
                checkpoint=checkpoint.name,
                quant=key.quant,
                files_gib=checkpoint.gib_on_disk,
                max_num_batched_tokens=key.max_num_batched_tokens or DEFAULT_BATCHED,
                max_num_seqs=max(series.max_num_seqs, default=DEFAULT_SEATS),
                prefix_cache=bool(key.prefix_cache),
                spec_method=key.spec_method or "none",
                spec_tokens=key.spec_tokens or 0,
                kv_cache_dtype=key.kv_cache_dtype or "bf16",
                engine_version=key.engine_version,
                fork=series.fork is not None,
            )
        )
    except UserError:
        return True
    return running_at(pool.layout, int(pool.blocks.value), context) >= concurrency


@cache
def _held_out_errors(
    key: SeriesKey, values: tuple[tuple[str, float], ...]
) -> tuple[SeriesFit, tuple[tuple[float, float], ...]]:
    every = tuple(series for series in all_series() if series.cells)
    series = next(series for series in every if series.key == key)
    fit = fit_with(series, hyper_from(dict(values), speed_model()), every)
    return fit, fit.leave_one_out()


def held_out_rate(series: Series, cell: SeriesCell) -> tuple[Estimate, float]:
    """Return the rate at a cell of the series predicted without it, and the cell's noise."""
    values = nested_values(series, cell.concurrency, cell.context)
    fit, errors = _held_out_errors(series.key, tuple(sorted(values.items())))
    index = series.cells.index(cell)
    error, deviation = errors[index]
    value = cell.aggregate_tps * math.exp(-error)
    factor = fit.hyper.k
    if len(errors) < FEW_CELLS:
        factor = conformal_factor([*errors[:index], *errors[index + 1 :]], factor)
    reach = math.hypot(factor * deviation, math.asinh(fit.hyper.drift_band(cell.concurrency)))
    others = [other for other in series.cells if other is not cell]
    inner = surrounded(others, cell.concurrency, cell.context)
    kind, n = (Kind.INTERPOLATED if inner else Kind.EXTRAPOLATED), len(others)
    low, high = value * math.exp(-reach), value * math.exp(reach)
    return Estimate(value, low, high, kind, n, fit.basis), fit.mean_noise[index]


def _choices(series: Series, gpus: int) -> dict[tuple[int, int], Choice]:
    """Return what the series offers on ``gpus`` cards by point: itself, or replicas of it."""
    tp = series.key.tp or 1
    found = {}
    for cell in series.cells:
        if not holds(series, cell.concurrency, cell.context):
            continue
        replicas = gpus // tp
        rate, noise = held_out_rate(series, cell)
        found[cell.concurrency * replicas, cell.context] = Choice(
            series=series,
            replicas=replicas,
            measured=cell.aggregate_tps * replicas,
            predicted=replicas_rate([rate] * replicas),
            noise=noise,
            cells=len(series.cells),
        )
    return found


def merged(choices: Sequence[Choice]) -> list[Choice]:
    """Return one choice an option: series that differ only in scheduler limits are repetitions.

    Batched tokens and capture size above the step do not touch a decode step, so that their
    differences at one point are noise, not advice.
    """
    groups: dict[tuple[str, str, int, int, int], list[Choice]] = defaultdict(list)
    for choice in choices:
        groups[choice.option].append(choice)
    return [_mean(group) for group in groups.values()]


def _mean(group: Sequence[Choice]) -> Choice:
    count = len(group)
    middle, low, high = (
        math.exp(sum(math.log(getattr(choice.predicted, end)) for choice in group) / count)
        for end in ("value", "low", "high")
    )
    best = min(group, key=lambda choice: (choice.predicted.kind.rank, -choice.cells))
    return replace(
        best,
        measured=sum(choice.measured for choice in group) / count,
        predicted=replace(best.predicted, value=middle, low=low, high=high),
        noise=math.sqrt(sum(choice.noise**2 for choice in group)) / count,
    )


def decide(choices: Sequence[Choice]) -> Choice:
    """Return the choice the planner makes: best conservative end, ties to the better evidence.

    The same ties and order as ``ranking.rank`` has for options with a series of their own, with
    the kind of evidence that is left when the option's own cell is held out.
    """
    best = max(choices, key=lambda choice: choice.predicted.low)
    tied = [choice for choice in choices if choice.predicted.low >= best.predicted.low * (1 - TIE)]
    return min(
        tied,
        key=lambda choice: (
            choice.predicted.kind.rank,
            -min(choice.cells, ENOUGH),
            -choice.predicted.n,
            STRONG_QUANTS.index(choice.option[0]),
            -level(choice.predicted.value),
            choice.replicas,
            choice.option[2],
            -choice.predicted.low,
        ),
    )


def regret_of(choice: Choice, best: Choice) -> float:
    """Return what ``choice`` lacks of the best measured rate; 0 inside the noise of both."""
    gap = math.log(best.measured / choice.measured)
    starts = START_SPREAD if choice.series is not best.series else 0.0
    noise = math.hypot(best.noise, choice.noise, starts, starts)
    return 0.0 if gap <= Z * noise else 1 - math.exp(-gap)


def _decisions(scope: str, offers: Iterable[dict[tuple[int, int], Choice]]) -> list[Decision]:
    points: dict[tuple[int, int], list[Choice]] = defaultdict(list)
    for offer in offers:
        for (concurrency, context), choice in offer.items():
            known = next(
                (
                    point
                    for point in points
                    if point[0] == concurrency
                    and abs(point[1] - context) <= SAME_CONTEXT * max(point[1], context)
                ),
                (concurrency, context),
            )
            points[known].append(choice)
    found = []
    for (concurrency, context), offered in sorted(points.items()):
        if len({choice.option for choice in offered}) < 2:
            continue
        choices = offered if scope == ACROSS else merged(offered)
        chosen = decide(choices)
        best = max(choices, key=lambda choice: choice.measured)
        constant = [choice for choice in choices if choice.option == CONSTANT]
        # Where several images offer it, the constant advice takes the one with most cells.
        there = max(constant, key=lambda choice: choice.cells, default=None)
        found.append(
            Decision(
                scope=scope,
                concurrency=concurrency,
                context=context,
                options=len(choices),
                chosen=chosen.label,
                best=best.label,
                regret=regret_of(chosen, best),
                constant_regret=regret_of(there, best) if there else None,
            )
        )
    return found


def summarise(name: str, decisions: Sequence[Decision]) -> Regret:
    """Return mean and worst regret beside the constant advice's.

    Raises:
        ValueError: there was nothing to decide.
    """
    if not decisions:
        raise ValueError(f"{name}: nothing to decide")
    found = frame_of(decisions, "regret", "constant_regret").astype(float)
    both = found.dropna()
    there = both.sum() / max(len(both), 1)
    return Regret(
        name=name,
        n=len(found),
        mean=float(found["regret"].mean()),
        worst=float(found["regret"].max()),
        right=float((found["regret"] == 0).mean()),
        constant_n=len(both),
        mean_there=float(there["regret"]),
        constant_mean=float(there["constant_regret"]),
        constant_worst=float(both["constant_regret"].max()) if len(both) else 0.0,
    )


@cache
def regret_decisions() -> tuple[Decision, ...]:
    """Return every decision of the shipped tables: within images and sessions, then across."""
    every = tuple(series for series in all_series() if series.cells)
    judged = [
        series
        for series in every
        if series.key.origin == "study"
        and len(series.cells) >= MIN_CELLS
        and series.key.quant in STRONG_QUANTS
    ]
    gpus = max(series.key.gpu_count for series in judged)
    groups: dict[tuple[str, str | None], list[dict[tuple[int, int], Choice]]] = defaultdict(list)
    for series in judged:
        offer = _choices(series, gpus)
        groups[series.key.session, series.key.image].append(offer)
    within = [
        decision
        for (session, _), offers in groups.items()
        if len(offers) > 1
        for decision in _decisions(session, offers)
    ]
    across = _decisions(ACROSS, [offer for offers in groups.values() for offer in offers])
    return (*within, *across)


@cache
def regret() -> tuple[Regret, Regret]:
    """Return the summaries within one image and session, and across images."""
    decisions = regret_decisions()
    return (
        summarise("within one image and session", [d for d in decisions if d.scope != ACROSS]),
        summarise("across images and sessions", [d for d in decisions if d.scope == ACROSS]),
    )
