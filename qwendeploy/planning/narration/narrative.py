"""The words of a plan: what comes first, why it won, what is assumed, what to expect."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qwendeploy.documents import (
    Content,
    Option,
    PlanWarning,
    Predictions,
    Quality,
)
from qwendeploy.figures import Figure, Kind
from qwendeploy.planning.latencies import request_lengths
from qwendeploy.planning.narration.capacity import capacity_lines
from qwendeploy.planning.narration.headlines import best_of, headlines
from qwendeploy.planning.narration.reasons import reasons
from qwendeploy.planning.near_miss import TWIN
from qwendeploy.planning.plan_warnings import plan_warnings
from qwendeploy.planning.ranking import Scored
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.scene import Scene, stated_context
from qwendeploy.planning.stated_weights import is_folder
from qwendeploy.planning.survey import Survey
from qwendeploy.planning.unlisted import unlisted_checkpoint
from qwendeploy.tables.boot import BootRow, boot_rows
from qwendeploy.units import format_tokens


@dataclass(frozen=True)
class Story:
    """Everything of a plan that is told rather than computed."""

    headlines: tuple[str, ...]
    reasons: tuple[str, ...]
    capacity: tuple[str, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[PlanWarning, ...]


def narrate(
    result: Survey,
    best: Scored,
    predictions: Predictions,
    lowered: Quality | None,
    rates: Rates,
) -> Story:
    """Return the story of the chosen option."""
    capacity, short = capacity_lines(result, best, predictions)
    return Story(
        headlines=(*headlines(result, best, predictions, lowered), *short),
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


def _assumptions(result: Survey, best: Scored, rates: Rates) -> tuple[str, ...]:
    scene, option = result.scene, best.candidate.option
    workload = scene.workload
    lines = []
    if workload.typical_context is None:
        why = "the prompt plus half of the output"
        if stated_context(workload) is None:
            why = "one eighth of --ctx, or what fits"
        lines.append(f"typical context {format_tokens(result.load.context)} ({why}; --typical-ctx)")
    shared = best.candidate.servers.contexts(result.load) == "shared"
    lines.append(
        "requests share one warm context (else --separate-contexts)"
        if shared
        else "separate contexts"
    )
    if weights := unlisted_checkpoint(option, scene.knowledge):
        lines.append(weights)
    if workload.content is Content.MIXED and option.spec_method != "none":
        source = "the study's prompts" if rates.of_study else "public benchmarks"
        lines.append(f"mixed content as in {source} (--content)")
    if not workload.vision:
        lines.append("text only (--vision keeps image input)")
    if workload.prefix_hit and not option.prefix_cache:
        lines.append("no prefix cache hits: prefix caching is off (--prefix-cache on)")
    if workload.isl is None or workload.osl is None:
        longest = option.max_model_len
        isl, osl = request_lengths(result.load.context, workload.isl, workload.osl, longest)
        lines.append(f"{isl:,} input and {osl:,} output tokens per request (--isl, --osl)")
    return tuple(lines)


def _caching_price(result: Survey, best: Scored, predictions: Predictions) -> Iterator[PlanWarning]:
    """Yield what it costs that prefix caching is left off with MTP, and what has it on."""
    option, cold = best.candidate.option, predictions.ttft_cold_ms
    left_off = option.spec_method == "mtp" and any(e.rule == TWIN for e in result.trace)
    if option.prefix_cache or cold is None or not left_off:
        return
    text = (
        "prefix caching is off with MTP until verify's prefix gate passes on this machine (enable "
        "it with --prefix-cache on): every turn prefills its whole prompt, "
        f"{cold.value / 1000:.1f} s for the prompt of this plan"
    )
    cached = [
        item
        for item in result.ranked
        if item.candidate.option.spec_method == "none"
        and item.candidate.option.quant == option.quant
        and item.candidate.option.prefix_cache
    ]
    first = best_of(result, cached)
    rate = first.predictions.aggregate_decode_tps if first else None
    if rate is not None:
        text += (
            f". For agents, --spec none enables it and decodes at {rate.value:,.0f} "
            f"({rate.low:,.0f}–{rate.high:,.0f}) tok/s"
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
