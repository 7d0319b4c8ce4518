"""The KV pool of a server before it starts: a known start of the same kind, else the fitted rest.

The rest beside weights and cache is the same to a hundredth of a GiB when only the memory fraction
changes, so a start that agrees in everything else is better evidence than the fit.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from qwendeploy.errors import DataError
from qwendeploy.evidence.memory_view import Pool
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.kv_layout import KvLayout, kv_layout
from qwendeploy.models.memory import blocks_from_bytes, pool_blocks, requested_bytes
from qwendeploy.models.rest_term import (
    RestCoefficients,
    RestInputs,
    loaded_weights,
    rest_from_pool,
    rest_gib,
    rest_value,
)
from qwendeploy.tables.memory_budget import BudgetRow, budget_rows
from qwendeploy.tables.memory_rest import rest_values
from qwendeploy.units import GIB

LOGGED_BAND_GIB = 0.1
"""Half width of a load size that a server logged: versions differ by less (27.18 and 27.12)."""
SAME_UTILIZATION = 0.005
"""Memory fractions closer than this are one."""
HERE_BAND_GIB = 0.05
"""The same for a start of this very machine: restarts differ by hundredths of a GiB."""
HERE_SHARE = 0.5
"""Part of a start's surprise that is expected of other options of this machine and build: what is
left beside weights and cache is partly the machine's (driver, links), partly the option's."""
KNOWN_BAND_GIB = 0.25
"""Half width for the rest of a start of the same kind: 14 starts of FP8+MTP on the study's cards
at TP=2 and 32,768 tokens left 4.08 to 4.34 GiB."""


@dataclass(frozen=True)
class PoolQuestion:
    """Everything that decides a pool. Sizes in GiB, ``memory_mib`` as nvidia-smi prints it."""

    memory_mib: float
    compute_capability: str
    gpu_memory_utilization: float
    tp: int
    checkpoint: str
    quant: str
    files_gib: float
    max_num_batched_tokens: int
    max_num_seqs: int
    prefix_cache: bool
    text_only: bool = True
    has_vision: bool = True
    has_mtp: bool = True
    spec_method: str = "none"
    spec_tokens: int = 0
    kv_cache_dtype: str = "bf16"
    state_dtype: str = "float32"
    sliding_drafter: bool = False
    capture_size: int | None = None
    """``None`` is the engine's default, 0 runs without graphs."""
    engine_version: str | None = None
    fork: bool = False
    files_band_gib: float = 0.0
    """Half width of what is known of the files' size."""
    max_model_len: int = QWEN_27B.native_context
    weights_gib: float | None = None
    """On each rank as a server logged it; ``None`` is computed from the files."""
    kv_cache_bytes: int | None = None
    """``--kv-cache-memory-bytes``: the pool's bytes are stated and nothing is profiled."""


@cache
def rest_coefficients() -> RestCoefficients:
    """Return the fitted coefficients of benchdata/memory_rest.csv.

    Raises:
        DataError: the table is bad or lacks a coefficient.
    """
    values = dict(rest_values())
    try:
        count = int(values.pop("n"))
        return RestCoefficients(
            **values, n=count, basis=f"memory besides weights and cache, fitted on {count} pools"
        )
    except (KeyError, TypeError) as problem:
        raise DataError(f"coefficients do not match: {problem}", file="memory_rest.csv") from None


def layout_of(question: PoolQuestion) -> KvLayout:
    """Return the cache layout. Raises UserError as ``kv_layout``."""
    return kv_layout(
        tp=question.tp,
        spec_method=question.spec_method,
        spec_tokens=question.spec_tokens,
        kv_cache_dtype=question.kv_cache_dtype,
        prefix_cache=question.prefix_cache,
        state_dtype=question.state_dtype,
        sliding_drafter=question.sliding_drafter,
        max_num_batched_tokens=question.max_num_batched_tokens,
        engine_version=question.engine_version,
        fork=question.fork,
    )


def weights_of(question: PoolQuestion) -> Estimate:
    """Return the weights on each rank: as logged, else from the size of the files."""
    logged = question.weights_gib
    if logged is not None:
        return Estimate(
            logged,
            logged - LOGGED_BAND_GIB,
            logged + LOGGED_BAND_GIB,
            Kind.MEASURED,
            n=1,
            basis="weights from a server log",
        )
    loaded = loaded_weights(
        question.files_gib,
        tp=question.tp,
        quant=question.quant,
        text_only=question.text_only,
        has_vision=question.has_vision,
        has_mtp=question.has_mtp,
        spec_method=question.spec_method,
    )
    band = question.files_band_gib / question.tp
    return replace(loaded, low=loaded.low - band, high=loaded.high + band)


def rest_inputs(question: PoolQuestion) -> RestInputs:
    """Return what the rest of a question depends on."""
    return RestInputs(
        tp=question.tp,
        memory_gib=question.memory_mib / 1024,
        max_num_batched_tokens=question.max_num_batched_tokens,
        max_num_seqs=question.max_num_seqs,
        spec_method=question.spec_method,
        spec_tokens=question.spec_tokens,
        capture_size=question.capture_size,
        quant=question.quant,
        fork=question.fork,
        native_fp8=native_fp8(question.compute_capability),
    )


def native_fp8(compute_capability: str) -> bool:
    """Say whether the card multiplies FP8 itself: compute capability 8.9 and above."""
    major, _, minor = compute_capability.partition(".")
    return (int(major), int(minor or 0)) >= (8, 9)


def question_of(row: BudgetRow) -> PoolQuestion:
    """Return the question that a known start answers."""
    return PoolQuestion(
        memory_mib=row.memory_mib,
        compute_capability=row.compute_capability,
        gpu_memory_utilization=row.gpu_memory_utilization,
        tp=row.tp,
        checkpoint=row.checkpoint,
        quant=row.quant,
        files_gib=row.files_gib,
        max_num_batched_tokens=row.max_num_batched_tokens,
        max_num_seqs=row.max_num_seqs,
        prefix_cache=row.prefix_cache,
        text_only=row.text_only,
        has_vision=row.has_vision,
        has_mtp=row.has_mtp,
        spec_method=row.spec_method,
        spec_tokens=row.spec_tokens,
        kv_cache_dtype=row.kv_cache_dtype,
        sliding_drafter=row.sliding_drafter,
        capture_size=row.capture_size,
        engine_version=row.engine_version,
        fork=row.fork,
        max_model_len=row.max_model_len,
        weights_gib=row.weights_gib,
    )


def budget_gib(question: PoolQuestion) -> float:
    """Return what the engine may use on a card in GiB."""
    return requested_bytes(question.memory_mib, question.gpu_memory_utilization) / GIB


def rest_left(row: BudgetRow) -> float:
    """Return the rest that a known start left, GiB on each rank."""
    question = question_of(row)
    kv_gib = row.blocks * layout_of(question).bytes_per_block / GIB
    return rest_from_pool(budget_gib(question), kv_gib, weights_of(question).value)


@dataclass(frozen=True)
class KnownStarts:
    """Starts that pools are estimated from, indexed by kind."""

    rows: tuple[BudgetRow, ...]

    @cached_property
    def by_kind(self) -> Mapping[tuple[object, ...], Sequence[BudgetRow]]:
        """Usable starts by what makes them of one kind."""
        found: dict[tuple[object, ...], list[BudgetRow]] = {}
        for row in self.rows:
            if row.use != "outside":
                found.setdefault(_key(row), []).append(row)
        return found

    @cached_property
    def surprises(self) -> Mapping[tuple[object, ...], float]:
        """What this machine's starts left more than was estimated without them, GiB by build."""
        elsewhere = KnownStarts(tuple(row for row in self.rows if row.use != "here"))
        found: dict[tuple[object, ...], list[float]] = {}
        for row in self.rows:
            if row.use == "here":
                expected = estimate_pool(question_of(row), elsewhere)
                left = rest_left(row) + weights_of(question_of(row)).value
                surprise = left - expected.rest.value - expected.weights.value
                found.setdefault(_build(row), []).append(surprise)
        return {build: statistics.median(values) for build, values in found.items()}


@cache
def shipped_starts() -> KnownStarts:
    """Return the starts of benchdata/memory_budget.csv. Raises DataError as ``read_table``."""
    return KnownStarts(budget_rows())


def _build(of: BudgetRow | PoolQuestion) -> tuple[object, ...]:
    """Return what options of one machine share whose surprises are alike: card, build, layout."""
    return of.memory_mib, of.compute_capability, of.fork, of.tp


def estimate_pool(
    question: PoolQuestion,
    known: Iterable[BudgetRow] | KnownStarts | None = None,
    coefficients: RestCoefficients | None = None,
) -> Pool:
    """Return the pool of a server that has not started.

    ``known`` starts default to every row of benchdata/memory_budget.csv; pass none of them to
    judge the fit alone.

    Raises:
        UserError: the arithmetic of the draft method, cache type or TP size is not known.
    """
    layout = layout_of(question)
    weights = weights_of(question)
    terms = coefficients or rest_coefficients()
    budget = budget_gib(question)
    if question.kv_cache_bytes is not None:
        blocks = blocks_from_bytes(layout, question.kv_cache_bytes)
        stated = Estimate(
            blocks, blocks, blocks, layout.kind, basis="stated bytes of the cache", level=1.0
        )
        rest = rest_gib(rest_inputs(question), terms)
        return Pool(layout, stated, budget, weights, rest, question.max_model_len)
    if known is None:
        known = shipped_starts()
    elif not isinstance(known, KnownStarts):
        known = KnownStarts(tuple(known))
    alike = _alike(question, known)
    if alike:
        rest = _known_rest(question, alike, weights.value, terms)
        # A known start fixes the sum of weights and rest, so the weights add no band of their own.
        sure = replace(weights, low=weights.value, high=weights.value, kind=rest.kind)
    else:
        rest, sure = rest_gib(rest_inputs(question), terms), weights
    if not (alike and alike[0].use == "here"):
        rest = _shifted(rest, known.surprises.get(_build(question), 0.0) * HERE_SHARE)
    pool = pool_blocks(
        layout,
        memory_mib=question.memory_mib,
        utilization=question.gpu_memory_utilization,
        weights=sure,
        rest=rest,
    )
    if alike and alike[0].use == "here":
        pool = replace(pool, kind=_kind_here(question, alike), basis=rest.basis)
    return Pool(layout, pool, budget, weights, rest, question.max_model_len)


def _shifted(rest: Estimate, shift: float) -> Estimate:
    """Return the rest moved by what this machine's own starts left more, GiB; never below 0."""
    if shift == 0:
        return rest
    value = max(0.0, rest.value + shift)
    return replace(
        rest,
        value=value,
        low=min(value, max(0.0, rest.low + shift)),
        high=rest.high + shift if rest.high + shift > value else value,
        basis=f"{rest.basis}; {shift:+.2f} GiB from own starts on this machine",
    )


def _kind_here(question: PoolQuestion, starts: Sequence[BudgetRow]) -> Kind:
    """Return ``measured-here`` if a start of this machine had every setting of the question."""
    for row in starts:
        start = question_of(row)
        alike = replace(start, weights_gib=None, files_gib=question.files_gib)
        if alike == replace(question, weights_gib=None):
            return Kind.MEASURED_HERE
    return Kind.INTERPOLATED


def _alike(question: PoolQuestion, known: KnownStarts) -> Sequence[BudgetRow]:
    """Return the starts of the same kind, those at the same memory fraction alone if there are any.

    The draft length does not move the rest (BF16+DFlash with 4, 8 and 15 tokens: 5.87 GiB each),
    nor does prefix caching or the KV type, which only cut the pool differently. Seats and graphs
    may differ: the fit says what they change.
    """
    alike = known.by_kind.get(_key(question), [])
    alike = [row for row in alike if row.use == "here"] or alike
    same = [
        row
        for row in alike
        if abs(row.gpu_memory_utilization - question.gpu_memory_utilization) < SAME_UTILIZATION
    ]
    return same or alike


def _key(of: BudgetRow | PoolQuestion) -> tuple[object, ...]:
    return (
        of.memory_mib,
        of.compute_capability,
        of.tp,
        of.checkpoint,
        of.text_only or not of.has_vision,
        of.spec_method,
        of.fork,
        of.fork or _before_graph_accounting(of.engine_version),
        round(of.max_num_batched_tokens, -2),
    )


def _before_graph_accounting(version: str | None) -> bool:
    """Say whether the release sizes the pool without an estimate of graphs: up to 0.19."""
    parts = (version or "").split(".")
    return len(parts) > 1 and parts[0] == "0" and parts[1].isdigit() and int(parts[1]) < 20


def _known_rest(
    question: PoolQuestion, alike: Sequence[BudgetRow], weights: float, terms: RestCoefficients
) -> Estimate:
    """Return the rest from known starts, moved by what the fit says of differing seats and graphs.

    Weights and rest are known only as a sum there, so the question's weights are taken off it.
    """
    mine = rest_value(rest_inputs(question), terms)
    rests = []
    shifts = []
    for row in alike:
        start = question_of(row)
        kv_gib = row.blocks * layout_of(start).bytes_per_block / GIB
        shifts.append(mine - rest_value(rest_inputs(start), terms))
        rests.append(rest_from_pool(budget_gib(start), kv_gib, weights) + shifts[-1])
    value = statistics.median(rests)
    here = alike[0].use == "here"
    band = (HERE_BAND_GIB if here else KNOWN_BAND_GIB) + max(abs(shift) for shift in shifts) / 2
    return Estimate(
        value=value,
        low=min([*rests, value - band]),
        high=max([*rests, value + band]),
        kind=Kind.MEASURED_HERE if here else Kind.INTERPOLATED,
        n=len(rests),
        basis=f"memory besides weights and cache, as in {', '.join(row.id for row in alike)}"
        if here
        else f"memory besides weights and cache of {len(rests)} similar starts",
    )
