"""The words of a plan: what comes first, why the option won, what is assumed, what to expect."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qwendeploy.documents import (
    Content,
    Gpu,
    Objective,
    Option,
    PlanWarning,
    Predictions,
    Quality,
)
from qwendeploy.figures import Figure, Kind
from qwendeploy.hardware.memory import serving_slice
from qwendeploy.planning.capacity import capacity_lines
from qwendeploy.planning.card_names import other_sizes
from qwendeploy.planning.knowledge import as_version
from qwendeploy.planning.latencies import request_lengths
from qwendeploy.planning.near_miss import TWIN, nearest_miss
from qwendeploy.planning.plan_warnings import plan_warnings
from qwendeploy.planning.ranking import Scored, rank, tie
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.reasons import reasons
from qwendeploy.planning.scene import Scene, stated_context
from qwendeploy.planning.stated_weights import STATED, is_folder
from qwendeploy.planning.survey import Survey
from qwendeploy.tables.boot import BootRow, boot_rows
from qwendeploy.units import format_tokens

LIKE = 0.03
"""Difference below which the low end of a band tells nothing that its middle does not."""


@dataclass(frozen=True)
class Story:
    """Everything of a plan that is told rather than computed."""

    headlines: tuple[str, ...]
    reasons: tuple[str, ...]
    capacity: tuple[str, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[PlanWarning, ...]


def tell(
    result: Survey,
    best: Scored,
    predictions: Predictions,
    lowered: Quality | None,
    rates: Rates,
) -> Story:
    """Return the story of the chosen option."""
    capacity, short = capacity_lines(result, best, predictions)
    return Story(
        headlines=(*_headlines(result, best, predictions, lowered), *short),
        reasons=reasons(result, best),
        capacity=capacity,
        assumptions=_assumptions(result, best, rates),
        warnings=(
            *plan_warnings(
                best, predictions, gated(best.candidate.option, result.scene), result.scene
            ),
            *_caching_price(result, best, predictions),
        ),
    )


def _headlines(
    result: Survey, best: Scored, predictions: Predictions, lowered: Quality | None
) -> list[str]:
    scene, option = result.scene, best.candidate.option
    machine = scene.box.machine
    lines = []
    if machine.origin == "assumed":
        lines.append(
            f"No GPU found here: planned for {scene.box.count} x {scene.box.name}, the card of the "
            "study. State yours with --gpu and --gpus."
        )
    lines += _meant(scene)
    if option.engine == "llama.cpp" and scene.pins.engine is None:
        lines.append(_llama_line(result))
    if lowered is not None:
        lines.append(_lowered_line(scene, option, lowered))
    if best.predictions.aggregate_decode_tps is None:
        lines.append(
            f"No speed can be predicted on {scene.box.name}: the order of the options is that of "
            "weights class and simplicity, not of speed."
        )
    lines.append(_fork_line(result, best) if option.fork else _unlisted_line(scene, option))
    lines += [line for gpu in machine.gpus if (line := _slice_line(scene, gpu))]
    if scene.box.unlike:
        lines.append(
            "Unlike cards: everything runs at the pace and memory of the weakest, "
            f"{scene.box.name} with {scene.box.vram_mib / 1024:.0f} GiB."
        )
    lines += [*_uncertain_limits(scene, predictions), *_held_memory(scene, option)]
    return [line for line in lines if line]


def _lowered_line(scene: Scene, option: Option, lowered: Quality) -> str:
    """Return why weights of a coarser class than the default are planned."""
    asked = scene.workload.quality
    if scene.pins.quant is not None:
        return (
            f"{option.quant} weights are of class {lowered}, coarser than the default {asked}; "
            "they are planned because they were asked for."
        )
    return (
        f"Nothing of class {asked} (8-bit or better) runs {_place(scene)} on {option.engine}: "
        f"class {lowered} is planned. State --quality to insist."
    )


def _unlisted_line(scene: Scene, option: Option) -> str:
    """Return what stands behind a plan in an image that no table has; nothing for one it has."""
    image, version = option.image or "", as_version(option.engine_version)
    if scene.knowledge.image(image) is not None or version is None or option.engine != "vllm":
        return ""
    newest = max(
        known
        for row in scene.knowledge.images
        if row.engine == "vllm" and not row.fork and (known := as_version(row.engine_version))
    )
    if version <= newest:
        return f"{image} is in no table here: by its tag it is taken for vLLM {version}."
    return (
        f"{image} is newer than anything known here (vLLM {newest}): flags, rules, memory and "
        "speed are those of earlier releases, not checked since."
    )


def _uncertain_limits(scene: Scene, predictions: Predictions) -> Iterator[str]:
    """Yield the latency limits that the middle of a band meets and its high end does not."""
    workload = scene.workload
    for name, limit, figure in (
        ("--tpot", workload.tpot_ms, predictions.tpot_ms),
        ("--ttft", workload.ttft_ms, predictions.ttft_cold_ms),
    ):
        if limit is not None and figure is not None and figure.high > limit:
            yield (
                f"{name} {limit:g} is met by the middle of the band ({figure.value:,.1f} ms), not "
                f"by its high end ({figure.high:,.1f})."
            )


def _meant(scene: Scene) -> Iterator[str]:
    """Yield which card a short name was taken for, where others of it have another memory."""
    stated, taken = scene.request.inputs.get("gpu"), scene.box.model
    if taken is None or scene.request.inputs.get("vram") or not isinstance(stated, str):
        return
    others = other_sizes(stated, taken)
    if others:
        yield (
            f"{stated!r} is taken to be the {taken.name}; name the card or --vram if it is "
            f"{' or '.join(others)}."
        )


def _place(scene: Scene) -> str:
    """Return where nothing runs: here, or on the cards chosen with how to take the others too."""
    usable, chosen = scene.box.machine.usable_gpu_indices, scene.box.indices
    if len(usable) <= len(chosen):
        return "here"
    cards = " and ".join(str(index) for index in chosen)
    every = ",".join(str(index) for index in usable)
    return f"on GPU {cards} alone (--devices {every} takes the unlike ones too)"


def _held_memory(scene: Scene, option: Option) -> Iterator[str]:
    """Yield the GPUs on which others hold memory that the engine will ask for at start."""
    share = option.gpu_memory_utilization
    for gpu in scene.box.machine.gpus:
        if gpu.index not in scene.box.serving(option.gpus_used) or share is None or gpu.mig:
            continue
        if gpu.memory_mib is None or gpu.memory_free_mib is None:
            continue
        needed = share * gpu.memory_mib
        if gpu.memory_free_mib < needed:
            yield (
                f"GPU {gpu.index} has {gpu.memory_free_mib / 1024:.1f} GiB free and the plan takes "
                f"{needed / 1024:.1f}: the start is refused until what holds the rest has ended."
            )


def _slice_line(scene: Scene, gpu: Gpu) -> str | None:
    """Return which slice of a GPU in MIG mode the plan is for."""
    device = serving_slice(scene.box.machine, gpu) if gpu.index in scene.box.indices else None
    if device is None:
        return None
    place = f" {device.profile}" if device.profile else ""
    place += f" ({device.uuid})" if device.uuid else ""
    return (
        f"GPU {gpu.index} is in MIG mode: planned for its slice{place} of "
        f"{scene.box.vram_mib / 1024:.0f} GiB, not for the whole card."
    )


def _llama_line(result: Survey) -> str:
    """Return why llama.cpp is planned: what vLLM's nearest option fell short of."""
    refused = [entry for entry in result.trace if "vllm" in entry.option.rsplit(" · ", 1)[-1]]
    miss = nearest_miss(refused) or next(iter(refused), None)
    why = ""
    if miss is not None:
        back = f"; would return with {miss.would_return}" if miss.would_return else ""
        why = f" (nearest: {miss.option}: {miss.reason}{back})"
    return (
        f"No vLLM option fits here{why}: llama.cpp with a GGUF is planned. Its speed is estimated "
        "from few runs of one request."
    )


def _fork_line(result: Survey, best: Scored) -> str:
    """Return the warning about a third party's image with upstream's price."""
    option, scene = best.candidate.option, result.scene
    if scene.knowledge.image(option.image or "") is None:
        return (
            f"{option.image} is in no table here: by its tag it is taken to be a third party's "
            f"build of vLLM {option.engine_version}, and nothing of it was measured."
        )
    seen = {
        -1: "the one measured on this machine",
        0: "the one measured on this card",
        1: "not measured as this option, sister images of it were on this card",
    }
    text = (
        f"{option.image} is a third party's image without public source; it is "
        f"{seen.get(best.tier, 'not measured as this option on this card')}."
    )
    if scene.pins.image:
        return text
    upstream = best_upstream(result)
    if upstream is None:
        return text + " No upstream option is feasible."
    price = _price(upstream, best, scene.workload.objective)
    return f"{text} --upstream-only takes {upstream.candidate.option.image}{price}."


def best_upstream(result: Survey) -> Scored | None:
    """Return what would be chosen among the options without a third party's image."""
    return _best_of(result, [item for item in result.ranked if not item.candidate.option.fork])


def _best_of(result: Survey, items: Sequence[Scored]) -> Scored | None:
    """Return what would be chosen if there were only these, ``None`` where there are none."""
    return next(iter(rank(items, result.scene.workload.objective)), None)


def _price(other: Scored, best: Scored, objective: Objective) -> str:
    """Return what another option costs, in the middle of the band and at its low end."""
    mine, rate = best.predictions.aggregate_decode_tps, other.predictions.aggregate_decode_tps
    if mine is None or rate is None:
        return ""
    middle, low = rate.value / mine.value - 1, rate.low / mine.low - 1
    tied = objective is not Objective.CAPACITY and tie(other, best, objective)
    told = f"{middle:+.0%}" if round(middle, 2) else "as fast"
    if abs(middle - low) > LIKE:
        told += f" in the middle of the band, {low:+.0%} at its low end"
    return f": {told} ({rate.kind}{', a tie' if tied else ''})"


def _assumptions(result: Survey, best: Scored, rates: Rates) -> tuple[str, ...]:
    scene, option = result.scene, best.candidate.option
    workload = scene.workload
    lines = []
    if workload.typical_context is None:
        why = "the prompt and half of the answer"
        if stated_context(workload) is None:
            why = "an eighth of the longest, or what fits"
        lines.append(f"typical context {format_tokens(result.load.context)} ({why}; --typical-ctx)")
    shared = result.load.shared_by(best.candidate) == "shared"
    lines.append(
        "requests share one warm context (--separate-contexts if not)"
        if shared
        else "every request has a context of its own"
    )
    row = scene.knowledge.checkpoint(option.checkpoint, option.quant)
    if row.source.startswith(STATED):
        lines.append(f"{row.name}, which no table has, holds {row.quant} weights of this model")
    if workload.content is Content.MIXED and option.spec_method != "none":
        whose = "the study's prompts" if rates.of_study else "public benchmarks send"
        lines.append(f"mixed text such as {whose} (--content)")
    if not workload.vision:
        lines.append("text only (--vision keeps images)")
    if workload.prefix_hit and not option.prefix_cache:
        lines.append("no prompt is found in a cache: prefix caching is off (--prefix-cache on)")
    if workload.isl is None or workload.osl is None:
        longest = option.max_model_len
        isl, osl = request_lengths(result.load.context, workload.isl, workload.osl, longest)
        lines.append(f"{isl:,} tokens in, {osl:,} out a request (--isl, --osl)")
    return tuple(lines)


def _caching_price(result: Survey, best: Scored, predictions: Predictions) -> Iterator[PlanWarning]:
    """Yield what it costs that prefix caching is left off with MTP, and what has it on."""
    option, cold = best.candidate.option, predictions.ttft_cold_ms
    left_off = option.spec_method == "mtp" and any(e.rule == TWIN for e in result.trace)
    if option.prefix_cache or cold is None or not left_off:
        return
    text = (
        "prefix caching stays off with MTP until verify's prefix gate has passed here "
        f"(--prefix-cache on): every turn prefills its whole prompt again, {cold.value / 1000:.1f} "
        "s for that of this plan"
    )
    cached = [
        item
        for item in result.ranked
        if item.candidate.option.spec_method == "none"
        and item.candidate.option.quant == option.quant
        and item.candidate.option.prefix_cache
    ]
    first = _best_of(result, cached)
    rate = first.predictions.aggregate_decode_tps if first else None
    if rate is not None:
        text += (
            f". For agents: --spec none has caching on and decodes at {rate.value:,.0f} "
            f"({rate.low:,.0f}–{rate.high:,.0f}) tok/s with separate contexts"
        )
    yield PlanWarning(rule=TWIN, text=text)


# --- download and start ---

_SIZE_KIND = {
    "exact": Kind.MEASURED,
    "published": Kind.MEASURED,
    "computed": Kind.ESTIMATED,
    "unknown": Kind.ESTIMATED,
}


def download(option: Option, scene: Scene) -> Figure | None:
    """Return what is downloaded beside the image, GiB: weights and drafter."""
    row = scene.knowledge.checkpoint(option.checkpoint, option.quant)
    if is_folder(row.name):
        return None
    size = scene.knowledge.files_gib(row)
    source = row.source
    drafter = scene.knowledge.drafter(option)
    if drafter is not None:
        size += drafter.gib_on_disk or 0.0
        source += f"; {drafter.source}"
    spread = 0.02 if row.kind in ("exact", "published") else 0.10
    return Figure(
        value=size,
        unit="GiB",
        low=size * (1 - spread),
        high=size * (1 + spread),
        kind=_SIZE_KIND[row.kind],
        source=source,
        n=1,
    )


def boot(option: Option, scene: Scene, start: str) -> Figure | None:
    """Return seconds from start to serving, from the most similar measured starts.

    Starts whose cache state no source states count for both kinds.
    """
    if option.engine != "vllm":
        return None
    rows = [row for row in boot_rows() if row.start in (start, "unstated")]
    for alike in (
        lambda row: row.gpu == scene.box.name and row.quant == option.quant and row.tp == option.tp,
        lambda row: row.gpu == scene.box.name,
        lambda _row: True,
    ):
        found = [row for row in rows if alike(row)]
        if len(found) >= 2:
            return _boot_figure(found, own=found[0].gpu == scene.box.name)
    return None


def _boot_figure(rows: Sequence[BootRow], *, own: bool) -> Figure:
    lows = [row.seconds for row in rows]
    highs = [row.seconds_max or row.seconds for row in rows]
    middle = statistics.median([(low + high) / 2 for low, high in zip(lows, highs, strict=True)])
    return Figure(
        value=middle,
        unit="s",
        low=min(lows),
        high=max(highs),
        kind=Kind.TRANSFERRED if own else Kind.ESTIMATED,
        source=f"{len(rows)} measured starts, {rows[0].gpu if own else 'all cards'}",
        n=sum(row.n for row in rows),
    )


def gated(option: Option, scene: Scene) -> tuple[str, ...]:
    """Return the repositories that need an accepted licence and a token."""
    row = scene.knowledge.checkpoint(option.checkpoint, option.quant)
    drafter = scene.knowledge.drafter(option)
    return tuple(part.name for part in (row, drafter) if part is not None and part.gated)


def objective_words(objective: Objective) -> str:
    """Return what the ranking maximised."""
    return {
        Objective.THROUGHPUT: "output tokens/s over all requests",
        Objective.LATENCY: "tokens/s of one request",
        Objective.CAPACITY: "context that all requests can have",
    }[objective]
