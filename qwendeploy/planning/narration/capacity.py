"""How many requests of which length run in a plan, and what would change that."""

from __future__ import annotations

from dataclasses import dataclass

from qwendeploy.documents import Option, Predictions
from qwendeploy.errors import UserError
from qwendeploy.evidence.memory_view import Load, Pool, Slots
from qwendeploy.planning.labels import draft_label
from qwendeploy.planning.ranking import Scored
from qwendeploy.planning.resolve import size_memory
from qwendeploy.planning.scene import Scene
from qwendeploy.planning.survey import Survey
from qwendeploy.tables.gpus import gpus
from qwendeploy.units import format_tokens

OLDEST = 8.0
"""Compute capability from which a larger card is proposed: Ampere, the first with bf16."""

FP8_KV = "fp8 KV"
"""The change that most often lets every request have the full length."""


@dataclass(frozen=True)
class Capacity:
    """Full-length requests at once, and the context at which all requests run."""

    full: int
    context: int

    def text(self, concurrency: int) -> str:
        """Return both in words."""
        most = f"all {concurrency} up to" if self.context else f"never all {concurrency}"
        reach = f"{most} {self.context:,} tokens" if self.context else most
        return f"{self.full} at full length, {reach}"


def capacity_lines(
    result: Survey, best: Scored, predictions: Predictions
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the capacity of the plan in words, and the headlines where it falls short.

    Falling short is said whenever not every request can have the longest context at once.
    """
    scene, candidate = result.scene, best.candidate
    workload, option = scene.workload, candidate.option
    if not isinstance(candidate.memory, Pool):
        return _slot_lines(candidate.memory, option, workload.concurrency)
    seats = candidate.servers.all_seats
    full = candidate.memory.running_at(candidate.memory.max_model_len) * option.replicas
    if seats < min(workload.concurrency, full):
        stated = scene.pins.max_num_seqs is not None
        return _few_seats(seats, full, workload.concurrency, stated=stated)
    fit = _capacity(candidate.memory, option, workload.concurrency, seats)
    length = format_tokens(candidate.memory.max_model_len)
    count = workload.concurrency
    if count == 1 and fit.full == 0:
        most = f"The request fits up to {fit.context:,} tokens, not at the full {length}."
        return (most,), (most,)
    own = " with separate contexts" if result.load.contexts == "shared" else ""
    lines = [
        f"{fit.full or 'No'} request{'s' if fit.full > 1 else ''} of {length} at once{own}; "
        + (
            f"all {count} fit up to {fit.context:,} tokens each; beyond that, requests queue "
            "until blocks are free."
            if fit.context
            else f"all {count} never fit: the rest queue until blocks are free."
        )
    ]
    if fit.full >= workload.concurrency:
        return (lines[0].split(";")[0] + ": every request can use the full length.",), ()
    others = [*_lighter_weights(result, best), *_variants(option, scene)]
    changes = [
        f"{label}: {other.text(workload.concurrency)}"
        for label, other in others
        if (other.full, other.context) != (fit.full, fit.context)
    ]
    if changes:
        lines.append("With " + "; ".join(changes) + ".")
    headline = f"{count} {'separate ' if own else ''}contexts of {length} do not fit at once: "
    headline += f"{fit.full or 'none'} {'fit' if fit.full > 1 else 'fits'}; "
    if fit.context:
        headline += (
            f"all {count} fit up to {fit.context:,} tokens each, beyond that requests queue."
        )
    else:
        headline += f"all {count} never fit: {_most(predictions, result.load)}the rest queue."
    if any(label == FP8_KV and other.full >= count for label, other in others):
        headline += " All fit with --kv-cache-dtype fp8."
    return tuple(lines), (headline,)


def _few_seats(
    seats: int, full: int, concurrency: int, *, stated: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return that seats, not memory, bind; memory would hold ``full`` requests of any length."""
    limit = "--max-num-seqs" if stated else "max-num-seqs"
    line = f"{limit} limits the plan to {seats} concurrent requests; memory would hold {full}."
    headline = f"{limit} lets {seats} of {concurrency} requests run at once: the rest queue."
    return (line,), (headline,)


def _most(predictions: Predictions, load: Load) -> str:
    """Return how many requests of the typical context run, where it is not all of them."""
    running = predictions.max_running_requests
    if running is None:
        return ""
    return f"{running.value:.0f} of {load.concurrency} run at {format_tokens(load.context)}, "


def _slot_lines(
    memory: Slots, option: Option, concurrency: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what llama-server's slots hold, and the headline where they are too few."""
    slots = memory.slots * option.replicas
    length = format_tokens(memory.max_model_len)
    parts = memory.parts
    line = (
        f"{slots} slot{'s' if slots > 1 else ''} of {length}, allocated at start: "
        f"{parts.weights_gib:.1f} GiB weights, {parts.cache_gib:.1f} cache, "
        f"{parts.states_gib:.1f} states, {parts.workspace.low:.1f} to {parts.workspace.high:.1f} "
        "working memory per GPU. If the server runs out of memory at start, lower --ctx-size."
    )
    if slots >= concurrency:
        return (line,), ()
    headline = (
        f"{concurrency} requests of {length} do not fit at once: {slots} run, the rest queue."
    )
    return (line,), (headline,)


def _capacity(memory: Pool, option: Option, concurrency: int, seats: int) -> Capacity:
    """Return what the memory holds of the requests with this many seats over all replicas."""
    share = -(-concurrency // option.replicas)
    full = memory.running_at(memory.max_model_len) * option.replicas
    return Capacity(min(full, seats), memory.longest_for(share) if seats >= concurrency else 0)


def _seats_of_others(option: Option, scene: Scene) -> int:
    """Return the seats that the plan would have if its memory held every request."""
    most = scene.pins.max_num_seqs or -(-scene.workload.concurrency // option.replicas)
    return most * option.replicas


def _lighter_weights(result: Survey, best: Scored) -> list[tuple[str, Capacity]]:
    """Return what the same option would hold with the best of the lighter weights, if any can."""
    option, workload = best.candidate.option, result.scene.workload
    seats = _seats_of_others(option, result.scene)
    for item in result.ranked:
        other, memory = item.candidate.option, item.candidate.memory
        same = {"checkpoint": option.checkpoint, "quant": option.quant}
        if other.quant == option.quant or not isinstance(memory, Pool):
            continue
        if other.model_copy(update=same) == option and memory.weights.value < _weights(best):
            return [
                (f"{other.quant} weights", _capacity(memory, other, workload.concurrency, seats))
            ]
    return []


def _weights(item: Scored) -> float:
    memory = item.candidate.memory
    return memory.weights.value if isinstance(memory, Pool) else 0.0


def _variants(option: Option, scene: Scene) -> list[tuple[str, Capacity]]:
    """Return what the neighbours of an option could hold, those that can be computed."""
    changes: list[tuple[str, dict[str, object], dict[str, object]]] = []
    if option.kv_cache_dtype != "fp8":
        changes.append((FP8_KV, {"kv_cache_dtype": "fp8"}, {}))
    if option.spec_method != "none":
        changes.append(
            (
                f"no draft instead of {draft_label(option)}",
                {"spec_method": "none", "spec_tokens": 0},
                {},
            )
        )
    if option.prefix_cache and option.spec_method == "none":
        changes.append(("prefix caching off", {"prefix_cache": False}, {}))
    changes.append(("a 16-bit state cache (numerics change)", {}, {"state_dtype": "float16"}))
    larger = _larger_card(scene)
    if larger is not None:
        changes.append((f"{larger[0]} cards", {}, {"memory_mib": larger[1]}))
    seats = _seats_of_others(option, scene)
    found = []
    for label, of_option, of_question in changes:
        try:
            memory = size_memory(option.model_copy(update=of_option), scene, **of_question)
        except UserError:
            continue
        if memory.count > 1:
            found.append((label, _capacity(memory, option, scene.workload.concurrency, seats)))
    return found


def _larger_card(scene: Scene) -> tuple[str, int] | None:
    """Return the smallest card with a quarter more memory, of those that anybody measured.

    Where all of those are smaller, any listed workstation or data-centre card counts.
    """
    larger = [
        (card.memory_mib, card.name, card.segment)
        for card in gpus()
        if card.memory_mib
        and card.vendor == "NVIDIA"
        and card.memory_mib > 1.25 * scene.box.vram_mib
        and not card.unified
        and float(card.compute_capability or 0) >= OLDEST
    ]
    measured = {row.gpu for row in scene.knowledge.rows if row.usable}
    known = [item for item in larger if item[1] in measured]
    found = known or [item for item in larger if item[2] in ("workstation", "datacenter")]
    return (min(found)[1], min(found)[0]) if found else None
