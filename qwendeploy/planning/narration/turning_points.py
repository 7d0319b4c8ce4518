"""Where the answer would turn: the load at which drafting stops paying, and replicas start to.

Both compare neighbours of the chosen option at other concurrencies, at the load's own context and
at none, and say what the difference costs in memory. They go into the trace and the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qwendeploy.documents import Option, TraceEntry
from qwendeploy.errors import UserError
from qwendeploy.evidence.memory_view import Load, Pool
from qwendeploy.evidence.series_choice import image_of_both
from qwendeploy.image_names import image_name
from qwendeploy.models import speculation
from qwendeploy.models.estimate import Estimate
from qwendeploy.planning.labels import draft_label, layout_label, option_label
from qwendeploy.planning.ranking import Scored
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.resolve import size_memory
from qwendeploy.planning.scene import Scene
from qwendeploy.planning.survey import Survey
from qwendeploy.units import MIB, format_tokens

LINKS = {"nvlink": "NVLink", "pcie": "PCIe", "unified": "unified memory"}
LONG = 65536
"""Context from about which the memory of two 96 GB cards forbids replicas (DESIGN §5)."""
CONCURRENCIES = (1, 4, 8, 16, 32, 64, 128)
"""Loads that are compared; the plan's own is added."""


@dataclass(frozen=True)
class TurningPoints:
    """What is told of the chosen option's neighbours."""

    reasons: tuple[str, ...]
    trace: tuple[TraceEntry, ...]


def turning_points(result: Survey, best: Scored, rates: Rates) -> TurningPoints:
    """Return where drafting and the layout of the chosen option would lose, and their memory."""
    if not isinstance(best.candidate.memory, Pool):
        return TurningPoints((), ())
    found = [
        *_drafting(result, best, best.candidate.memory, rates),
        *_layout(result, best, rates),
    ]
    label = option_label(best.candidate.option)
    return TurningPoints(
        tuple(text for _, text in found),
        tuple(
            TraceEntry(option=label, rule=rule, effect="ranked", reason=text)
            for rule, text in found
        ),
    )


def _levels(concurrency: int) -> list[int]:
    return sorted({*CONCURRENCIES, concurrency})


def _rates(
    rates: Rates, option: Option, levels: Sequence[int], load: Load, context: int
) -> dict[int, Estimate]:
    """Return the known rates of an option over concurrency, graphs and seats as large as needed."""
    roomy = option.model_copy(update={"max_num_seqs": max(levels), "capture_size": None})
    contexts = load.contexts if option.prefix_cache else "separate"
    answers = rates.aggregate_many([(roomy, level, context, contexts) for level in levels])
    return {
        level: answer for level, answer in zip(levels, answers, strict=True) if answer is not None
    }


def _of_one_image(rates: Rates, one: Option, other: Option) -> tuple[Option, Option, str]:
    """Return both options in an image that measured both, and its name where it is another."""
    image = image_of_both(rates.series, one, other)
    if image is None or image == one.image:
        return one, other, ""
    update = {"image": image}
    name = image_name(image).short
    return one.model_copy(update=update), other.model_copy(update=update), f" (measured in {name})"


# --- drafting ---


def _drafting(result: Survey, best: Scored, memory: Pool, rates: Rates) -> list[tuple[str, str]]:
    """Return up to which load the chosen draft pays, and what it holds of every sequence."""
    option, load = best.candidate.option, result.load
    if option.spec_method == "none":
        return []
    levels = _levels(load.concurrency)
    plain = option.model_copy(update={"spec_method": "none", "spec_tokens": 0})
    one, other, image = _of_one_image(rates, option, plain)
    drafted = _rates(rates, one, levels, load, load.context)
    bare = _rates(rates, other, levels, load, load.context)
    if not set(drafted) & set(bare):
        return []
    turn = speculation.crossover(drafted, bare)
    text = f"{draft_label(option)} {_turn_words(turn, load.context)}{image}"
    text += _draft_memory(plain, memory, result.scene)
    return [("draft-crossover", text)]


def _turn_words(turn: speculation.Crossover, context: int) -> str:
    where = f"at {format_tokens(context)}"
    if turn.pays_up_to is None:
        return f"is not faster than no draft at any concurrency {where}"
    if turn.loses_from is None:
        return f"is faster than no draft {where} at every concurrency up to {turn.pays_up_to}"
    sure = "" if turn.certain else " (the bands overlap)"
    return (
        f"is faster than no draft {where} up to concurrency {turn.pays_up_to} and slower from "
        f"{turn.loses_from}{sure}"
    )


def _draft_memory(plain: Option, memory: Pool, scene: Scene) -> str:
    """Return the state that a running request holds with the draft and without, MiB a card."""
    try:
        other = size_memory(plain, scene).layout
    except UserError:
        return "."
    mine = memory.layout

    def mib(blocks: int, size: int) -> float:
        return blocks * size / MIB

    drafting = mib(mine.state_blocks_reserved, mine.bytes_per_block)
    without = mib(other.state_blocks_reserved, other.bytes_per_block)
    return (
        f"; each running request holds {drafting:,.0f} MiB of state per GPU with it, "
        f"{without:,.0f} MiB without."
    )


# --- layout ---


def _layout(result: Survey, best: Scored, rates: Rates) -> list[tuple[str, str]]:
    """Return from which load replicas of fewer cards win, and what their memory forbids."""
    scene, load, option = result.scene, result.load, best.candidate.option
    gpus = option.gpus_used
    if gpus < 2:
        return []
    pair = (option.tp, option.tp // 2) if option.tp > 1 else (2, 1)
    large, small = (option.model_copy(update={"tp": tp, "replicas": gpus // tp}) for tp in pair)
    large, small, image = _of_one_image(rates, large, small)
    levels = [level for level in _levels(load.concurrency) if level >= small.replicas]
    parts = []
    for context in dict.fromkeys((0, load.context)):
        text = _gains(rates, large, small, levels, load, context)
        if text:
            where = "at short context" if context == 0 else f"at {format_tokens(context)}"
            parts.append(f"{text} {where}")
    if not parts:
        return []
    link = LINKS.get(scene.box.joined(large.tp, large.replicas)[0], "links unknown")
    text = f"{layout_label(small)} vs {layout_label(large)} ({link}){image}: "
    return [("layout-crossover", f"{text}{'; '.join(parts)}.{_layout_memory(large, small, scene)}")]


def _gains(
    rates: Rates, large: Option, small: Option, levels: Sequence[int], load: Load, context: int
) -> str:
    """Return the gain of the smaller servers at a few loads, and from where it lasts."""
    totals: dict[int, Mapping[int, Estimate]] = {
        option.tp: _rates(rates, option, levels, load, context) for option in (large, small)
    }
    known = [level for level in levels if all(level in total for total in totals.values())]
    if not known:
        return ""
    gains = {
        level: totals[small.tp][level].value / totals[large.tp][level].value - 1 for level in known
    }
    shown = [level for level in (4, load.concurrency, 64) if level in gains] or known[-1:]
    figures = ", ".join(
        f"{gains[level]:+.0%} at c={level}" for level in dict.fromkeys(sorted(shown))
    )
    wins = next(
        (level for level in known if all(gains[later] >= 0 for later in known if later >= level)),
        None,
    )
    return f"{figures}, " + (f"faster from c={wins}" if wins else "never faster")


def _layout_memory(large: Option, small: Option, scene: Scene) -> str:
    """Return what both layouts hold: the context of all requests, and how many run at 64k."""
    workload = scene.workload
    if workload.concurrency == 1:
        return ""
    reach, running = [], []
    for option in (large, small):
        seats = -(-workload.concurrency // option.replicas)
        try:
            memory = size_memory(option.model_copy(update={"max_num_seqs": seats}), scene)
        except UserError:
            return ""
        name = layout_label(option)
        reach.append(f"{memory.longest_for(seats):,} tokens with {name}")
        most = min(workload.concurrency, memory.running_at(LONG) * option.replicas)
        running.append(f"{most} with {name}")
    text = f" All {workload.concurrency} requests fit up to {', '.join(reach)}"
    if workload.max_context >= LONG:
        text += f"; concurrent requests at {format_tokens(LONG)}: {', '.join(running)}"
    return f"{text}."
