"""Every option of a situation: what rejected it, or its predictions and its place in the order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qwendeploy.documents import Objective, Option, Quality, TraceEntry
from qwendeploy.evidence.memory_view import Load
from qwendeploy.models.kernels import gguf_bits
from qwendeploy.planning.candidate import Candidate, Rejection
from qwendeploy.planning.labels import option_label
from qwendeploy.planning.options import enumerate_options
from qwendeploy.planning.predictions import predict_all
from qwendeploy.planning.ranking import Scored, rank
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.resolve import resolve
from qwendeploy.planning.scene import (
    TYPICAL_SHARE,
    Scene,
    SceneCache,
    longest_request,
    ranks_end_to_end,
    stated_context,
)
from qwendeploy.planning.seats import seated


@dataclass(frozen=True)
class Survey:
    """Feasible options best first, everything that was rejected, and the load they met."""

    scene: Scene
    load: Load
    ranked: tuple[Scored, ...]
    trace: tuple[TraceEntry, ...]
    beside: Scored | None = None
    """The best option of the other engine, in a class that was not asked for or short of slots."""


def survey(scene: Scene, quality: Quality, engine: str = "vllm") -> Survey:
    """Return every option of an engine judged under the weakest quality class accepted.

    An assumed context is one at which the first option runs all requests at once: where it is too
    long for that, the options that run all at the first one's context go first.
    """
    trace: list[TraceEntry] = []
    scenes = SceneCache(scene)
    candidates = _resolved(scenes, quality, trace, engine)
    scene, load = _load(scene, candidates)
    if scene.typical_context != scenes.scene.typical_context:
        scenes = SceneCache(scene)
    result = _judged(scenes, load, candidates, trace, engine)
    context = _context_of_all(result)
    if context is None:
        return result
    shorter = replace(scene, typical_context=context)
    again = _judged(SceneCache(shorter), replace(load, context=context), candidates, trace, engine)
    return replace(again, ranked=tuple(sorted(again.ranked, key=lambda item: item.share < 1)))


def _context_of_all(result: Survey) -> int | None:
    """Return the longest context at which the first option runs all, if the assumed is longer."""
    workload, load = result.scene.workload, result.load
    if stated_context(workload) is not None or not result.ranked or result.ranked[0].share >= 1:
        return None
    best = result.ranked[0].candidate
    longest = best.memory.longest_for(-(-workload.concurrency // best.option.replicas))
    return longest if 0 < longest < load.context else None


def _judged(
    scenes: SceneCache,
    load: Load,
    resolved: Sequence[Candidate],
    rejections: Sequence[TraceEntry],
    engine: str,
) -> Survey:
    """Return the survey of resolved options at one load."""
    trace, scene = list(rejections), scenes.scene
    candidates = [seated(item, load, scenes) for item in resolved]
    candidates = _needed_kv_types(candidates, load, scene, trace)
    rates = Rates(scene)
    by_loop = ranks_end_to_end(scene.workload)
    figures = predict_all(
        candidates, load, rates, with_latencies=by_loop or scene.workload.ttft_ms is not None
    )
    full = replace(load, context=longest_request(scene.workload))
    counts = [candidate.servers.running(load) for candidate in candidates]
    scored = [
        Scored(
            candidate,
            predictions,
            scene.knowledge.quality(candidate.option),
            count,
            scene.knowledge.support(candidate.option, scene.box),
            rates.tier(candidate.option, max(1, count), load.context),
            load.concurrency,
            (candidate.servers.running_band(load), candidate.servers.running_band(full)),
            by_loop,
        )
        for candidate, predictions, count in zip(candidates, figures, counts, strict=True)
    ]
    kept = [item for item in scored if _meets_limits(item, scene, trace)]
    if engine == "llama.cpp":
        kept = _nearest_to_reference(kept, scene, trace)
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


def _nearest_to_reference(
    items: list[Scored], scene: Scene, trace: list[TraceEntry]
) -> list[Scored]:
    """Return the options of the largest GGUF among those that run the most requests.

    Fewer bits are always faster, and further from the reference: 4 bits diverge by 0.02 nats a
    token, 3 bits by 0.046 and more (kl.csv).
    """

    def nearness(option: Option) -> tuple[float, float]:
        row = scene.knowledge.checkpoint(option.checkpoint, option.quant)
        return gguf_bits(option.quant) or 0.0, scene.knowledge.files_gib(row)

    most = max((item.running for item in items), default=0)
    enough = [nearness(item.candidate.option) for item in items if item.running == most]
    kept = []
    for item in items:
        option = item.candidate.option
        if item.running < most:
            why = f"runs {item.running} requests at once, another GGUF runs {most}"
        elif nearness(option) < max(enough):
            why = "a GGUF with more bits per weight also fits the workload"
        else:
            kept.append(item)
            continue
        trace.append(rejected(option, Rejection("gguf-bits", why, would_return="--quant")))
    return kept


def _resolved(
    scenes: SceneCache, quality: Quality, trace: list[TraceEntry], engine: str
) -> list[Candidate]:
    scene = scenes.scene
    if engine == "llama.cpp":
        return _resolved_gguf(scene, quality, trace)
    found: list[Candidate] = []
    too_coarse: set[tuple[str, str, str]] = set()
    known = scene.knowledge
    for option in enumerate_options(
        scene.box, scene.workload, scene.pins, known, any_release=scene.any_release
    ):
        weights = (option.checkpoint, option.quant, option.kv_cache_dtype)
        if weights in too_coarse:
            continue
        own = known.quality_of(*weights)
        if own.rank > quality.rank and not scene.pins.checkpoint:
            too_coarse.add(weights)
            trace.append(_coarse(weights, own, quality))
            continue
        result = resolve(option, scenes.scene_for(option))
        if isinstance(result, Rejection):
            trace.append(rejected(option, result))
        else:
            found.append(result)
    return found


def _resolved_gguf(scene: Scene, quality: Quality, trace: list[TraceEntry]) -> list[Candidate]:
    from qwendeploy.planning.gguf import gguf_options, resolve_gguf

    found: list[Candidate] = []
    for option in gguf_options(scene.box, scene.workload, scene.pins, scene.knowledge):
        own = scene.knowledge.quality(option)
        result: Candidate | Rejection
        if own.rank > quality.rank and not scene.pins.checkpoint:
            reason = f"{option.checkpoint} {option.quant} is in quality class {own}, not {quality}"
            result = Rejection("quality-class", reason, would_return=f"--quality {own}")
        else:
            result = resolve_gguf(option, scene)
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
        reason=f"{checkpoint} with {kv_cache_dtype} KV is in quality class {own}, not {asked}",
        would_return=f"--quality {own}",
    )


def _load(scene: Scene, candidates: Sequence[Candidate]) -> tuple[Scene, Load]:
    """Return the load that options are ranked at, and the scene with its typical context.

    Contexts count as shared only where every option shares them: all of them cache prefixes and
    separate contexts were not asked for. The assumed context is what all requests can have at once.
    """
    workload = scene.workload
    cached = all(candidate.option.prefix_cache for candidate in candidates)
    sharing = cached and workload.contexts == "shared"
    contexts = "shared" if sharing else "separate"
    typical = stated_context(workload)
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
        and candidate.servers.fitting(load) >= load.concurrency
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
                        "16-bit KV fits the workload at its typical context; no measurement shows "
                        "that fp8 KV is faster",
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
    for name, limit, ease in (
        ("tpot_ms", workload.tpot_ms, "fewer requests in flight"),
        ("ttft_cold_ms", workload.ttft_ms, "shorter prompts"),
    ):
        figure, flag = getattr(figures, name), name.partition("_")[0]
        if limit is None:
            continue
        if figure is None:
            reason = f"no figure for {name}: {figures.reasons.get(name, 'not known')}"
            rejection = Rejection(f"limit-{flag}", reason)
        elif figure.value > limit:
            rejection = Rejection(
                f"limit-{flag}",
                f"{figure.value:.1f} ms predicted, the limit is {limit:g} ms",
                missed_by=f"{figure.value - limit:.1f} ms",
                would_return=f"--{flag} {math.ceil(figure.value)}, or {ease}",
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
                    f"no request of {scene.typical_context:,} tokens fits in the KV cache",
                ),
            )
        )
        return False
    return True
