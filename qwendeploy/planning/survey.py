"""Every option of a situation: what rejected it, or its predictions and its place in the order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qwendeploy.documents import Objective, Option, Quality, TraceEntry
from qwendeploy.planning.facts import shared_facts
from qwendeploy.planning.labels import option_label
from qwendeploy.planning.options import enumerate_options
from qwendeploy.planning.predictions import Load, fitting, predict_all, running
from qwendeploy.planning.ranking import Scored, rank
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.resolve import Candidate, Rejection, resolve
from qwendeploy.planning.scene import Scene

TYPICAL_SHARE = 8
"""The typical context is an eighth of the longest one unless stated (DESIGN: operating point)."""


@dataclass(frozen=True)
class Survey:
    """Feasible options best first, everything that was rejected, and the load they met."""

    scene: Scene
    load: Load
    ranked: tuple[Scored, ...]
    trace: tuple[TraceEntry, ...]


def survey(scene: Scene, quality: Quality) -> Survey:
    """Return every option judged under the weakest quality class that is accepted."""
    trace: list[TraceEntry] = []
    candidates = _resolved(scene, quality, trace)
    scene, load = _load(scene, candidates)
    candidates = _needed_kv_types(candidates, load, scene, trace)
    rates = Rates(scene)
    scored = [
        Scored(
            candidate,
            figures,
            scene.knowledge.quality(candidate.option),
            running(candidate, load),
            scene.knowledge.support(candidate.option, scene.box),
            rates.tier(candidate.option),
        )
        for candidate, figures in zip(
            candidates,
            predict_all(candidates, load, rates, with_latencies=scene.workload.ttft_ms is not None),
            strict=True,
        )
    ]
    kept = [item for item in scored if _meets_limits(item, scene, trace)]
    return Survey(scene, load, tuple(rank(kept, scene.workload.objective)), tuple(trace))


def rejected(option: Option, rejection: Rejection) -> TraceEntry:
    """Return the trace of an option that is out."""
    return TraceEntry(
        option=option_label(option),
        rule=rejection.rule,
        effect="rejected",
        reason=rejection.reason,
        missed_by=rejection.missed_by,
        would_return=rejection.would_return,
    )


def _resolved(scene: Scene, quality: Quality, trace: list[TraceEntry]) -> list[Candidate]:
    found: list[Candidate] = []
    too_coarse: set[tuple[str, str, str]] = set()
    whole = scene.for_options(scene.facts)
    narrowed: dict[tuple[object, ...], Scene] = {}
    for option in enumerate_options(scene.box, scene.workload, scene.pins, scene.knowledge):
        weights = (option.checkpoint, option.quant, option.kv_cache_dtype)
        if weights in too_coarse:
            continue
        own = scene.knowledge.quality_of(*weights)
        if own.rank > quality.rank and not scene.pins.checkpoint:
            too_coarse.add(weights)
            trace.append(_coarse(weights, own, quality))
            continue
        kind = (option.image, option.checkpoint, option.quant, option.spec_method)
        if kind not in narrowed:
            narrowed[kind] = whole.for_options(shared_facts(option))
        result = resolve(option, narrowed[kind])
        if isinstance(result, Rejection):
            trace.append(rejected(option, result))
        else:
            found.append(result)
    return found


def _coarse(weights: tuple[str, str, str], own: Quality, asked: Quality) -> TraceEntry:
    """Return the one entry that stands for every option with these weights and KV type."""
    checkpoint, quant, kv_cache_dtype = weights
    return TraceEntry(
        option=f"{quant} · {kv_cache_dtype} KV · {checkpoint}",
        rule="quality-class",
        effect="rejected",
        reason=f"{checkpoint} with {kv_cache_dtype} KV is of class {own}, {asked} is asked",
        would_return=f"--quality {own}",
    )


def _load(scene: Scene, candidates: Sequence[Candidate]) -> tuple[Scene, Load]:
    """Return the load that options are ranked at, and the scene with its typical context.

    Contexts count as shared only where every option shares them: prefix caching was asked for and
    separate contexts were not. The assumed context is what all requests can have at once.
    """
    workload = scene.workload
    sharing = workload.prefix_cache == "on" and workload.contexts == "shared"
    contexts = "shared" if sharing else "separate"
    typical = workload.typical_context
    if typical is None:
        typical = max(1, workload.max_context // TYPICAL_SHARE)
        longest = [
            candidate.memory.longest_for(-(-workload.concurrency // candidate.option.replicas))
            for candidate in candidates
        ]
        if longest and max(longest) > 0:
            typical = min(typical, max(longest))
    typical = min(typical, workload.max_context)
    return replace(scene, typical_context=typical), Load(workload.concurrency, typical, contexts)


def _needed_kv_types(
    candidates: Sequence[Candidate], load: Load, scene: Scene, trace: list[TraceEntry]
) -> list[Candidate]:
    """Return the candidates without fp8 KV where 16-bit KV holds the load with the same draft."""
    if scene.pins.kv_cache_dtype or scene.workload.objective is Objective.CAPACITY:
        return list(candidates)
    enough = {
        _weights_and_draft(candidate.option)
        for candidate in candidates
        if candidate.option.kv_cache_dtype == "bf16"
        and fitting(candidate, load) >= load.concurrency
    }
    kept = []
    for candidate in candidates:
        option = candidate.option
        if option.kv_cache_dtype == "fp8" and _weights_and_draft(option) in enough:
            trace.append(
                rejected(
                    option,
                    Rejection(
                        "kv-dtype-not-needed",
                        "16-bit KV holds the load at its typical context; no measurement shows "
                        "fp8 KV to be faster",
                        would_return="--kv-cache-dtype fp8, a longer context or more requests",
                    ),
                )
            )
        else:
            kept.append(candidate)
    return kept


def _weights_and_draft(option: Option) -> tuple[str, str, int]:
    return option.checkpoint, option.spec_method, option.spec_tokens


def _meets_limits(item: Scored, scene: Scene, trace: list[TraceEntry]) -> bool:
    """Say whether the latency limits hold; a miss goes into the trace with its size."""
    figures, workload = item.predictions, scene.workload
    for name, limit in (("tpot_ms", workload.tpot_ms), ("ttft_cold_ms", workload.ttft_ms)):
        figure = getattr(figures, name)
        if limit is None:
            continue
        if figure is None:
            reason = f"no figure for {name}: {figures.reasons.get(name, 'not known')}"
            rejection = Rejection(f"limit-{name.partition('_')[0]}", reason)
        elif figure.value > limit:
            rejection = Rejection(
                f"limit-{name.partition('_')[0]}",
                f"{figure.value:.1f} ms predicted, {limit:g} ms allowed",
                missed_by=f"{figure.value - limit:.1f} ms",
                would_return="fewer requests in flight or a looser limit",
            )
        else:
            continue
        trace.append(rejected(item.candidate.option, rejection))
        return False
    if item.running == 0:
        trace.append(
            rejected(
                item.candidate.option,
                Rejection(
                    "memory-context",
                    f"no request of {scene.typical_context:,} tokens fits the pool",
                ),
            )
        )
        return False
    return True
