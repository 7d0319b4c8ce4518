"""The words of a plan: what comes first, why the option won, what is assumed, what to expect."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from qwendeploy.documents import (
    Content,
    Gpu,
    Objective,
    Option,
    PlanWarning,
    Predictions,
    Quality,
    TraceEntry,
)
from qwendeploy.figures import Figure, Kind
from qwendeploy.hardware.memory import serving_slice
from qwendeploy.planning.capacity import capacity_lines
from qwendeploy.planning.card_names import other_sizes
from qwendeploy.planning.labels import draft_label, layout_label, option_label
from qwendeploy.planning.latencies import request_lengths
from qwendeploy.planning.near_miss import nearest_miss
from qwendeploy.planning.plan_warnings import plan_warnings
from qwendeploy.planning.ranking import Scored, tie
from qwendeploy.planning.scene import Scene, stated_context
from qwendeploy.planning.stated_weights import STATED, is_folder
from qwendeploy.planning.survey import Survey
from qwendeploy.tables.boot import BootRow, boot_rows
from qwendeploy.units import format_tokens

MOST_REASONS = 3


@dataclass(frozen=True)
class Story:
    """Everything of a plan that is told rather than computed."""

    headlines: tuple[str, ...]
    reasons: tuple[str, ...]
    capacity: tuple[str, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[PlanWarning, ...]


def tell(result: Survey, best: Scored, predictions: Predictions, lowered: Quality | None) -> Story:
    """Return the story of the chosen option."""
    capacity, short = capacity_lines(result, best, predictions)
    return Story(
        headlines=(*_headlines(result, best, predictions, lowered), *short),
        reasons=_reasons(result, best),
        capacity=capacity,
        assumptions=_assumptions(result, best),
        warnings=plan_warnings(
            best, predictions, gated(best.candidate.option, result.scene), result.scene
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
        lines.append(
            f"Nothing of class {scene.workload.quality} (8-bit or better) runs {_place(scene)}: "
            f"class {lowered} is planned. State --quality to insist."
        )
    if best.predictions.aggregate_decode_tps is None:
        lines.append(
            f"No speed can be predicted on {scene.box.name}: the order of the options is that of "
            "weights class and simplicity, not of speed."
        )
    if option.fork:
        lines.append(_fork_line(result, best))
    lines += [line for gpu in machine.gpus if (line := _slice_line(scene, gpu))]
    if scene.box.unlike:
        lines.append(
            "Unlike cards: everything runs at the pace and memory of the weakest, "
            f"{scene.box.name} with {scene.box.vram_mib / 1024:.0f} GiB."
        )
    return [*lines, *_uncertain_limits(scene, predictions), *_held_memory(scene, option)]


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
        if gpu.index not in scene.box.indices[: option.gpus_used] or share is None or gpu.mig:
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
    why = f" (nearest: {miss.option}: {miss.reason})" if miss is not None else ""
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
    seen = {-1: "the one measured on this machine", 0: "the one measured on this card"}
    text = (
        f"{option.image} is a third party's image without public source; it is "
        f"{seen.get(best.tier, 'not measured as this option on this card')}."
    )
    if scene.pins.image:
        return text
    upstream = next((item for item in result.ranked if not item.candidate.option.fork), None)
    if upstream is None:
        return text + " No upstream option is feasible."
    mine = best.predictions.aggregate_decode_tps
    other = upstream.predictions.aggregate_decode_tps
    price = ""
    if mine is not None and other is not None:
        change = (other.value - mine.value) / mine.value
        objective = scene.workload.objective
        by_speed = objective is not Objective.CAPACITY
        tied = ", a tie" if by_speed and tie(upstream, best, objective) else ""
        price = f": {change:+.0%} ({other.kind}{tied})" if round(change, 2) else ": as fast"
    return f"{text} --upstream-only takes {upstream.candidate.option.image}{price}."


def _reasons(result: Survey, best: Scored) -> tuple[str, ...]:
    """Return what the option gains over its nearest neighbours in each respect, largest first."""
    option = best.candidate.option
    found: list[tuple[float, str]] = []
    own = _own_runs_line(result, option)
    respects: list[tuple[str, Callable[[Option], object]]] = [
        (option.quant, lambda other: other.quant),
        (draft_label(option), lambda other: draft_label(other)),
        (layout_label(option), lambda other: layout_label(other)),
        (f"{option.kv_cache_dtype} KV", lambda other: other.kv_cache_dtype),
    ]
    for label, respect in respects:
        reason = _against_neighbour(result, best, label, respect)
        if reason is not None:
            found.append(reason)
    found.sort(key=lambda item: -item[0])
    texts = [text for _, text in found]
    if not texts:
        texts.append("It is the only option that the rules and the memory leave.")
    return (*own, *texts[:MOST_REASONS])


def _own_runs_line(result: Survey, option: Option) -> tuple[str, ...]:
    """Return which own runs of this machine stand above the tables, if there are any."""
    own = result.scene.knowledge.own
    if own is None:
        return ()
    labels = [*own.labels, *(start.label for start in own.starts if start.label not in own.labels)]
    if not labels:
        return ()
    about = "this option" if own.measured_here(option) else "other options"
    return (
        f"Own runs of this machine ({about}) outrank the tables: {', '.join(labels)}; "
        "qwendeploy data forget ID takes one back.",
    )


def _against_neighbour(
    result: Survey, best: Scored, label: str, respect: Callable[[Option], object]
) -> tuple[float, str] | None:
    """Return (gain, text) against the best option that differs in this respect."""
    objective = result.scene.workload.objective
    option = best.candidate.option
    mine = best.score(objective)
    rivals = [item for item in result.ranked if respect(item.candidate.option) != respect(option)]
    if rivals:
        rival = max(rivals, key=lambda item: item.score(objective))
        other = rival.score(objective)
        if other <= 0 or mine <= 0:
            return None
        gain = mine / other - 1
        name = _respect_name(rival.candidate.option, option, respect)
        evidence = rival.predictions.aggregate_decode_tps
        kind = f" ({evidence.kind})" if evidence else ""
        if tie(rival, best, objective) or (tie(best, rival, objective) and gain < 0):
            return 0.0, f"{label} ties with {name}{kind} and is simpler or better measured."
        return gain, f"{label}: {gain:+.0%} on the low end of the band against {name}{kind}."
    return _only_one(result.trace, label, option, respect)


def _respect_name(rival: Option, option: Option, respect: Callable[[Option], object]) -> str:
    changed = [
        text
        for text, before in (
            (rival.quant, option.quant),
            (draft_label(rival), draft_label(option)),
            (layout_label(rival), layout_label(option)),
            (f"{rival.kv_cache_dtype} KV", f"{option.kv_cache_dtype} KV"),
        )
        if text != before
    ]
    return " + ".join(changed) or str(respect(rival))


def _only_one(
    trace: Sequence[TraceEntry], label: str, option: Option, respect: Callable[[Option], object]
) -> tuple[float, str] | None:
    """Return why nothing else was left in this respect, from the trace."""
    own = set(option_label(option).split(" · "))
    del respect
    for entry in trace:
        parts = set(entry.option.split(" · "))
        if entry.effect == "rejected" and label in own - parts and len(own - parts) == 1:
            return 1.0, f"{label}: {' '.join(parts - own)} is out, {entry.reason}."
    return None


def _assumptions(result: Survey, best: Scored) -> tuple[str, ...]:
    scene, option = result.scene, best.candidate.option
    workload = scene.workload
    lines = []
    if workload.typical_context is None:
        why = "the prompt and half of the answer"
        if stated_context(workload) is None:
            why = "an eighth of the longest, or what fits"
        lines.append(f"typical context {format_tokens(result.load.context)} ({why}; --typical-ctx)")
    shared = option.prefix_cache and workload.contexts == "shared"
    lines.append(
        "requests share one warm context (--separate-contexts if not)"
        if shared
        else "every request has a context of its own"
    )
    row = scene.knowledge.checkpoint(option.checkpoint, option.quant)
    if row.source.startswith(STATED):
        lines.append(f"{row.name}, which no table has, holds {row.quant} weights of this model")
    if workload.content is Content.MIXED and option.spec_method != "none":
        lines.append("mixed text such as the study's prompts (--content)")
    if not workload.vision:
        lines.append("text only (--vision keeps images)")
    if workload.prefix_hit and not option.prefix_cache:
        lines.append("no prompt is found in a cache: prefix caching is off (--prefix-cache on)")
    if workload.isl is None or workload.osl is None:
        longest = option.max_model_len
        isl, osl = request_lengths(result.load.context, workload.isl, workload.osl, longest)
        lines.append(f"{isl:,} tokens in, {osl:,} out a request (--isl, --osl)")
    return tuple(lines)


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
