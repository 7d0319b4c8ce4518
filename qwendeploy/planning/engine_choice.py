"""Which engine and which quality class a plan is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from qwendeploy.documents import Quality, TraceEntry
from qwendeploy.documents.request import Pins
from qwendeploy.planning.labels import option_label
from qwendeploy.planning.near_miss import nearest_miss, without_twins
from qwendeploy.planning.plan_warnings import SMALL_POOL, unsure_text
from qwendeploy.planning.ranking import Scored
from qwendeploy.planning.scene import Scene
from qwendeploy.planning.survey import Survey, survey


def best_survey(scene: Scene) -> tuple[Survey, Quality | None]:
    """Return the survey, and the quality class it was lowered to if the default left nothing.

    In each class llama.cpp is asked where vLLM has no option that surely starts, or where it is
    stated. It leaves something only if it has a slot for every request; fewer slots, and vLLM with
    a pool that may be too small, stand where no class leaves anything else. If nothing is feasible
    the last survey is of the loosest class, its trace of all engines.
    """
    pins = scene.pins
    engines = [] if pins.engine == "llama.cpp" else ["vllm"]
    if may_use_gguf(pins):
        engines.append("llama.cpp")
    asked = scene.workload.quality
    classes = [asked] if scene.workload.quality_explicit else list(Quality)[asked.rank :]
    last: dict[str, Survey] = {}
    second: dict[str, tuple[Survey, Quality]] = {}
    for quality, engine in product(classes, engines):
        if engine == "llama.cpp" and (engine in second or _own_limit_in_the_way(last)):
            continue
        result = _widest(scene, quality, engine)
        last[engine] = result
        if not result.ranked:
            continue
        if _only_second(result.ranked[0], len(engines) > 1, "vllm" in second):
            second.setdefault(engine, (result, quality))
            last[engine] = _put_out(result) if engine == "vllm" else result
            continue
        return _beside(result, last, quality), quality if quality is not asked else None
    if second:
        # the first of those that run the most requests; of llama.cpp it is known that it starts
        found = [second[engine] for engine in reversed(engines) if engine in second]
        result, quality = max(found, key=lambda each: each[0].ranked[0].running)
        return _beside(result, last, quality), quality if quality is not asked else None
    trace = tuple(entry for of_engine in last.values() for entry in of_engine.trace)
    return replace(result, trace=trace), None


def _only_second(best: Scored, of_two: bool, rival: bool) -> bool:
    """Say whether an engine's best option stands only where no other is left.

    ``of_two`` says that both engines are asked, ``rival`` that vLLM's may not start either.
    """
    if best.candidate.option.engine == "vllm":
        return not best.sure
    return of_two and (best.share < 1 or (rival and not best.sure))


def _put_out(result: Survey) -> Survey:
    """Return a survey of options that may not start as one that left none, each with the reason."""
    entries = tuple(
        TraceEntry(
            option=option_label(item.candidate.option),
            rule=SMALL_POOL,
            effect="rejected",
            reason=unsure_text(item.candidate),
            would_return="--engine vllm, to try it",
        )
        for item in result.ranked
    )
    return replace(result, ranked=(), trace=(*result.trace, *entries))


def _widest(scene: Scene, quality: Quality, engine: str) -> Survey:
    """Return the survey of the releases seen on the card, else of any."""
    result = survey(scene, quality, engine)
    if not result.ranked and (wider := _widened(scene, engine)) is not None:
        result = survey(wider, quality, engine)
    return result


def _beside(result: Survey, last: Mapping[str, Survey], quality: Quality) -> Survey:
    """Return the survey with what the other engine was refused for, and what it would offer."""
    engine = result.ranked[0].candidate.option.engine
    others = [other for name, other in last.items() if name != engine]
    refused = tuple(entry for other in others for entry in other.trace)
    offers = [other.ranked[0] for other in others if other.ranked]
    scene = result.scene
    if engine == "llama.cpp" and scene.pins.engine is None and not scene.workload.quality_explicit:
        for looser in list(Quality)[quality.rank + 1 :]:
            offers += survey(scene, looser, "vllm").ranked[:1]
            if offers:
                break
    return replace(result, trace=(*result.trace, *refused), beside=next(iter(offers), None))


def _own_limit_in_the_way(last: Mapping[str, Survey]) -> bool:
    """Say whether what came nearest fell short of a limit that the user stated, not of memory."""
    nearest = nearest_miss(without_twins(last["vllm"].trace)) if "vllm" in last else None
    return nearest is not None and nearest.rule in ("memory-seats", "memory-step")


def _widened(scene: Scene, engine: str) -> Scene | None:
    """Return the scene with releases that nobody ran on this card, ``None`` if there are none."""
    if engine != "vllm" or scene.pins.image:
        return None
    images = scene.knowledge.candidate_images
    if images(scene.box, scene.pins, any_release=True) == images(scene.box, scene.pins):
        return None
    return replace(scene, any_release=True)


def may_use_gguf(pins: Pins) -> bool:
    """Say whether what the user fixed leaves llama.cpp open."""
    if pins.engine not in (None, "llama.cpp") or pins.spec_method not in (None, "none"):
        return False
    if pins.engine == "llama.cpp":
        return True
    vllm_only = (pins.gpu_memory_utilization, pins.capture_size, pins.image)
    return not any(vllm_only) and (pins.quant is None or pins.quant.startswith("gguf"))
