"""The first lines of a plan: what it is not, what it rests on, what may stop it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qwendeploy.documents import Gpu, Objective, Option, Predictions, Quality
from qwendeploy.hardware.memory import serving_slice
from qwendeploy.planning.labels import quality_label
from qwendeploy.planning.narration.card_names import other_sizes
from qwendeploy.planning.near_miss import nearest_miss
from qwendeploy.planning.plan_warnings import SMALL_POOL
from qwendeploy.planning.ranking import Scored, rank, tie
from qwendeploy.planning.scene import Scene
from qwendeploy.planning.survey import Survey
from qwendeploy.planning.unlisted import avoided_image, unlisted_image

LIKE = 0.03
"""Difference below which the low end of a band tells nothing that its middle does not."""


def headlines(
    result: Survey, best: Scored, predictions: Predictions, lowered: Quality | None
) -> list[str]:
    """Return what must be known before anything else of a plan is read."""
    scene, option = result.scene, best.candidate.option
    machine = scene.box.machine
    lines = []
    if machine.origin == "assumed":
        lines.append(
            f"No GPU found on this machine: the plan is for {scene.box.count} x {scene.box.name}, "
            "the card of the study. Name yours with --gpu and --gpus."
        )
    lines += meant(scene)
    if option.engine == "llama.cpp" and scene.pins.engine is None:
        lines.append(_llama_line(result, best))
    if lowered is not None:
        lines.append(_lowered_line(result, option, lowered))
    if best.predictions.aggregate_decode_tps is None:
        lines.append(
            f"No speed can be predicted on {scene.box.name}: options are ordered by quality class "
            "and simplicity, not by speed."
        )
    unlisted = unlisted_image(option, scene.knowledge)
    lines.append(unlisted or (_fork_line(result, best) if option.fork else ""))
    lines.append(avoided_image(option, scene.knowledge))
    lines += [line for gpu in machine.gpus if (line := _slice_line(scene, gpu))]
    if scene.box.unlike:
        lines.append(
            "Mixed GPUs: the weakest card limits speed and memory, "
            f"{scene.box.name} with {scene.box.vram_mib / 1024:.0f} GiB."
        )
    lines += [*_uncertain_limits(scene, predictions), *_held_memory(scene, option)]
    return [line for line in lines if line]


def _lowered_line(result: Survey, option: Option, lowered: Quality) -> str:
    """Return why weights of a coarser class than the default are planned."""
    scene, beside = result.scene, result.beside
    asked = scene.workload.quality
    if scene.pins.quant is not None:
        return (
            f"{option.quant} weights are in {quality_label(lowered)}, below the default {asked}; "
            "the plan uses them because --quant or --checkpoint names them."
        )
    asked_too = any("llama.cpp" in entry.option for entry in result.trace)
    engines = "vLLM or llama.cpp" if asked_too and scene.pins.engine is None else option.engine
    # why llama.cpp is planned is told with what vLLM fell short of
    miss = "" if option.engine == "llama.cpp" else _nearest_of_class(result, asked)
    text = f"No option in {quality_label(asked)} runs {_place(scene)} with {engines}{miss}: "
    if beside is not None and beside.quality.rank < lowered.rank:
        text = (
            f"The only option in {quality_label(asked)} {_place(scene)} is "
            f"{beside.candidate.option.quant} with llama.cpp, which runs {beside.running} of "
            f"{beside.concurrency} requests at once (select it with --quality "
            f"{beside.quality}): "
        )
        return f"{text}the plan uses {quality_label(lowered)}."
    return f"{text}the plan uses {quality_label(lowered)}. Set --quality to require a class."


def _uncertain_limits(scene: Scene, predictions: Predictions) -> Iterator[str]:
    """Yield the latency limits that the middle of a band meets and its high end does not."""
    workload = scene.workload
    for name, limit, figure in (
        ("--tpot", workload.tpot_ms, predictions.tpot_ms),
        ("--ttft", workload.ttft_ms, predictions.ttft_cold_ms),
    ):
        if limit is not None and figure is not None and figure.high > limit:
            yield (
                f"{name} {limit:g} is met at the median ({figure.value:,.1f} ms), but not at the "
                f"high end of the band ({figure.high:,.1f} ms)."
            )
    paused = predictions.tpot_end_to_end_ms
    stated = workload.isl is not None and workload.tpot_ms is not None
    if stated and paused is not None and paused.value > (workload.tpot_ms or 0):
        yield (
            f"--tpot {workload.tpot_ms:g} is met while no prompt is prefilled; with prompts of "
            f"--isl tokens in between, the mean is {paused.value:,.1f} ms."
        )


def _nearest_of_class(result: Survey, asked: Quality) -> str:
    """Return what the nearest option of a class that left nothing fell short of, if known."""
    known = [row for row in result.scene.knowledge.classes if row.quality_class != "unknown"]
    quants = {row.quant for row in known if Quality(row.quality_class).rank <= asked.rank}
    miss = nearest_miss(entry for entry in result.trace if entry.option.split(" · ")[0] in quants)
    if miss is None:
        return ""
    return f" (closest: {' · '.join(miss.option.split(' · ')[:3])}: {miss.reason})"


def meant(scene: Scene) -> Iterator[str]:
    """Yield which card a short name was taken for, where others of it have another memory."""
    stated, taken = scene.request.inputs.get("gpu"), scene.box.model
    if taken is None or scene.request.inputs.get("vram") or not isinstance(stated, str):
        return
    others = other_sizes(stated, taken)
    if others:
        yield (
            f"{stated!r} is read as the {taken.name}; name the card or set --vram if it is "
            f"{' or '.join(others)}."
        )


def _place(scene: Scene) -> str:
    """Return where nothing runs: here, or on the cards chosen with how to take the others too."""
    usable, chosen = scene.box.machine.usable_gpu_indices, scene.box.indices
    if len(usable) <= len(chosen):
        return "on this machine"
    cards = " and ".join(str(index) for index in chosen)
    every = ",".join(str(index) for index in usable)
    return f"on GPU {cards} alone (--devices {every} adds the other cards)"


def _held_memory(scene: Scene, option: Option) -> Iterator[str]:
    """Yield the GPUs on which others hold memory that the engine will ask for at start."""
    share = option.gpu_memory_utilization
    serving = scene.box.serving(option)
    for gpu in scene.box.machine.gpus:
        if gpu.index not in serving or share is None or gpu.mig:
            continue
        if gpu.memory_mib is None or gpu.memory_free_mib is None:
            continue
        needed = share * gpu.memory_mib
        if gpu.memory_free_mib < needed:
            yield (
                f"GPU {gpu.index} has {gpu.memory_free_mib / 1024:.1f} GiB free and the plan needs "
                f"{needed / 1024:.1f}: the server does not start until the processes that use the "
                "rest have ended."
            )


def _slice_line(scene: Scene, gpu: Gpu) -> str | None:
    """Return which slice of a GPU in MIG mode the plan is for."""
    device = serving_slice(scene.box.machine, gpu) if gpu.index in scene.box.indices else None
    if device is None:
        return None
    place = f" {device.profile}" if device.profile else ""
    place += f" ({device.uuid})" if device.uuid else ""
    return (
        f"GPU {gpu.index} is in MIG mode: the plan uses its slice{place} of "
        f"{scene.box.vram_mib / 1024:.0f} GiB, not the whole card."
    )


def _llama_line(result: Survey, best: Scored) -> str:
    """Return why llama.cpp is planned: what vLLM's nearest option fell short of."""
    refused = [entry for entry in result.trace if "vllm" in entry.option.rsplit(" · ", 1)[-1]]
    miss = nearest_miss(refused) or next(iter(refused), None)
    why = ""
    if miss is not None:
        back = f"; feasible with {miss.would_return}" if miss.would_return else ""
        why = f" (closest: {miss.option}: {miss.reason}{back})"
    stricter = result.beside is not None or result.scene.workload.quality_explicit
    in_class = f" in quality class {best.quality}" if stricter else ""
    fits = "is certain to fit" if miss is not None and miss.rule == SMALL_POOL else "fits"
    text = (
        f"No vLLM option{in_class} {fits} {_place(result.scene)}{why}: the plan uses llama.cpp "
        "with a GGUF. Its speed is estimated from a few single-request runs."
    )
    beside = result.beside
    if beside is None:
        return text
    offer = beside.candidate.option
    rate = beside.predictions.aggregate_decode_tps
    speed = f": {rate.value:,.0f} ({rate.low:,.0f}–{rate.high:,.0f}) tok/s" if rate else ""
    return f"{text} --quality {beside.quality} selects {offer.quant} with vLLM{speed}."


def _fork_line(result: Survey, best: Scored) -> str:
    """Return the warning about a third party's image with upstream's price."""
    option, scene = best.candidate.option, result.scene
    seen = {
        -1: "this option is measured on this machine",
        0: "this option is measured on this card",
        1: "this option is measured on this card in sibling images only",
    }
    text = (
        f"{option.image} is a third-party image without public source; "
        f"{seen.get(best.tier, 'this option is not measured on this card')}."
    )
    if scene.pins.image:
        return text
    upstream = best_upstream(result)
    if upstream is None:
        return text + " No upstream option is feasible."
    price = _price(upstream, best, scene.workload.objective)
    return f"{text} --upstream-only selects {upstream.candidate.option.image}{price}."


def best_upstream(result: Survey) -> Scored | None:
    """Return what would be chosen among the options without a third party's image."""
    return best_of(result, [item for item in result.ranked if not item.candidate.option.fork])


def best_of(result: Survey, items: Sequence[Scored]) -> Scored | None:
    """Return what would be chosen if there were only these, ``None`` where there are none."""
    return next(iter(rank(items, result.scene.workload.objective)), None)


def _price(other: Scored, best: Scored, objective: Objective) -> str:
    """Return what another option costs, in the middle of the band and at its low end."""
    by = Objective.THROUGHPUT if objective is Objective.CAPACITY else objective
    mine, rate = best.figure(by), other.figure(by)
    if mine is None or rate is None:
        return ""
    middle, low = rate.value / mine.value - 1, rate.low / mine.low - 1
    tied = objective is not Objective.CAPACITY and tie(other, best, objective)
    change = f"{middle:+.0%}" if round(middle, 2) else "the same speed"
    change += " end to end" if best.end_to_end else ""
    if abs(middle - low) > LIKE:
        change += f" at the median, {low:+.0%} at the low end of the band"
    return f": {change} ({rate.kind}{', a tie' if tied else ''})"
