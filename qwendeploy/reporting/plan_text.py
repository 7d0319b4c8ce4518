"""A plan on one screen: what to run, what it will do, why, and the next command."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from qwendeploy.documents import Gpu, Plan, Predictions, TraceEntry
from qwendeploy.figures import WIDE, Figure
from qwendeploy.hardware.choose import choice_text
from qwendeploy.hardware.memory import serving_slice
from qwendeploy.planning.labels import draft_label, layout_label, shortfall
from qwendeploy.planning.near_miss import nearest_miss, without_twins
from qwendeploy.planning.scene import ranks_end_to_end
from qwendeploy.reporting.width import text_width
from qwendeploy.tables.gpus import find_gpu
from qwendeploy.units import format_count, format_tokens

MOST_ALTERNATIVES = 2
MOST_REASONS = 3
MOST_WARNINGS = 6
LABEL = 14
"""Columns of a section's label."""
OTHER_MEMORY = 0.15
"""Share by which a card's memory differs from its model's where it is another build; drivers and
ECC take up to a tenth."""


def figure_text(figure: Figure | None, unit: str | None = None, reason: str = "") -> str:
    """Return ``1,350 (1,240–1,460) tok/s, interpolated``, or ``no figure: reason``."""
    if figure is None:
        return f"no figure: {reason or 'not known'}"
    suffix = f" {unit if unit is not None else figure.unit}".rstrip()
    if figure.low == figure.high:
        return f"{format_count(figure.value)}{suffix}, {figure.kind}"
    band = f"{format_count(figure.low)}–{format_count(figure.high)}"
    return f"{format_count(figure.value)} ({band}){suffix}, {figure.kind}"


def plan_text(plan: Plan, *, next_command: str = "") -> str:
    """Return the plan as text of about one screen, as wide as ``text_width`` allows."""
    option = plan.option
    lines: list[str] = []
    for headline in plan.headlines:
        lines += _wrapped("! ", headline)
    lines.append("")
    lines += _wrapped(
        f"{'Run':<{LABEL}}",
        f"{option.checkpoint} ({option.quant}) · {draft_label(option)} · {layout_label(option)} · "
        f"{option.kv_cache_dtype} KV · prefix cache {'on' if option.prefix_cache else 'off'}",
    )
    fraction = option.gpu_memory_utilization
    parts = [
        option.image or option.engine,
        machine_line(plan),
        f"{'slots' if option.engine == 'llama.cpp' else 'max-num-seqs'} {option.max_num_seqs}",
        *([f"gpu-memory-utilization {fraction:g}"] if fraction is not None else []),
        f"max-num-batched-tokens {option.max_num_batched_tokens}",
        f"max-model-len {format_tokens(option.max_model_len or 0)}",
    ]
    lines += _wrapped(" " * LABEL, " · ".join(parts))
    if chosen := choice_text(plan.machine, plan.gpu_indices):
        lines += _wrapped(f"{'GPUs':<{LABEL}}", chosen)
    lines += _figures(plan)
    lines += ["", *_list("Why", plan.reasons[:MOST_REASONS])]
    lines += _list("Capacity", _capacity(plan))
    lines += _list("Alternatives", _alternatives(plan))
    lines += _list("Warnings", _warnings(plan))
    lines += _list("Assumptions", ["; ".join(plan.assumptions) + "."])
    if next_command:
        lines.append(f"{'Next':<{LABEL}}{next_command}")
    return "\n".join(lines).strip("\n") + "\n"


def machine_line(plan: Plan) -> str:
    """Return count and name of the GPUs that the plan uses."""
    used = plan.option.gpus_used
    names = {gpu.index: _card_name(gpu) for gpu in plan.machine.gpus}
    kinds = Counter(names[index] for index in plan.gpu_indices[:used] if index in names)
    slices = [
        device.profile or "slice"
        for gpu in plan.machine.gpus
        if gpu.index in plan.gpu_indices and (device := serving_slice(plan.machine, gpu))
    ]
    text = " + ".join(f"{count} x {name}" for name, count in kinds.items()) or f"{used} x GPU"
    text += f" MIG {slices[0]}" if slices else ""
    idle = len(plan.machine.usable_gpu_indices) - used
    return f"{text} ({idle} idle)" if idle > 0 else text


def _card_name(gpu: Gpu) -> str | None:
    """Return the name of a card, with its memory where it has not that of its model."""
    name = gpu.model or gpu.name
    listed = find_gpu(name) if name else None
    if listed is None or gpu.memory_mib is None or gpu.mig or not listed.memory_mib:
        return name
    if abs(gpu.memory_mib / listed.memory_mib - 1) < OTHER_MEMORY:
        return name
    return f"{name} with {gpu.memory_mib / 1024:.0f} GiB"


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        text_width(),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]


def _list(title: str, items: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for item in items:
        lines += _wrapped(f"{title:<{LABEL}}" if not lines else " " * LABEL, item)
    return lines


def _rate_row(concurrency: int, context: int, figures: Predictions) -> str:
    return (
        f"{concurrency:>4} x {format_tokens(context):<8} "
        f"{figure_text(figures.aggregate_decode_tps, reason=_why(figures, 'aggregate_decode_tps'))}"
    )


def _why(figures: Predictions, name: str) -> str:
    return figures.reasons.get(name, "")


def _figures(plan: Plan) -> list[str]:
    point, figures = plan.operating_point, plan.predictions
    shared = "one shared warm context" if point.contexts == "shared" else "separate contexts"
    ranked = "; ranked end to end" if ranks_end_to_end(plan.workload) else ""
    lines = [f"{'Expect':<{LABEL}}90% bands; {shared}{ranked}"]
    rows = [
        (
            "decode",
            _rate_row(point.concurrency, point.context, figures)
            + _running(point.concurrency, figures),
        ),
        *_over_content(figures),
        *_undecided(plan),
        (
            "per request",
            f"{figure_text(figures.per_user_decode_tps)}; TPOT {figure_text(figures.tpot_ms)}",
        ),
        ("cold TTFT", figure_text(figures.ttft_cold_ms, reason=_why(figures, "ttft_cold_ms"))),
        ("end to end", _end_to_end(plan)),
    ]
    rows += [
        (
            "decode",
            _rate_row(cell.concurrency, cell.context, cell.figures)
            + _running(cell.concurrency, cell.figures),
        )
        for cell in plan.cells
    ]
    rows.append(("KV cache", f"{_pool(figures)}; {_at_once(point.concurrency, figures)}"))
    if plan.download_gib is not None:
        rows.append(("download", figure_text(plan.download_gib)))
    boots = [
        f"{name} {figure_text(figure)}"
        for name, figure in (("first", plan.boot_first_s), ("warm", plan.boot_warm_s))
        if figure is not None
    ]
    if boots:
        rows.append(("startup", "; ".join(boots)))
    for name, text in rows:
        lines += _wrapped(f"  {name:<{LABEL - 2}}", text)
    return lines


def _over_content(figures: Predictions) -> list[tuple[str, str]]:
    """Return the row of the rate from prose to code, if it differs from the rate itself."""
    span, rate = figures.aggregate_decode_tps_over_content, figures.aggregate_decode_tps
    if span is None or rate is None or (span.low, span.high) == (rate.low, rate.high):
        return []
    band = f"{format_count(span.low)}–{format_count(span.high)}"
    return [("by content", f"{band} {span.unit} from prose to code (set --content)")]


def _undecided(plan: Plan) -> list[tuple[str, str]]:
    """Return the row that says that ``verify`` cannot confirm what it judges by: too wide a band.

    It judges by the rate and by the quantities that the workload limits.
    """
    figures, workload = plan.predictions, plan.workload
    judged = [("the decode rate", figures.aggregate_decode_tps)]
    judged += [("the TPOT", figures.tpot_ms)] if workload.tpot_ms is not None else []
    judged += [("the TTFT", figures.ttft_cold_ms)] if workload.ttft_ms is not None else []
    for name, figure in judged:
        if figure is not None and figure.half_width > WIDE:
            digits = 0 if round(figure.half_width, 2) > WIDE else 1
            text = (
                f"can refute but not confirm {name}: its band of ±{figure.half_width:.{digits}%} "
                f"is wider than ±{WIDE:.0%}; your own runs narrow it (qwendeploy data import)"
            )
            return [("verify", text)]
    return []


def _capacity(plan: Plan) -> tuple[str, ...]:
    """Return what the memory holds, without what the headlines say of it already."""
    stated = any("do not fit at once" in headline for headline in plan.headlines)
    return plan.capacity[1:] if stated and len(plan.capacity) > 1 else plan.capacity


def _pool(figures: Predictions) -> str:
    """Return the pool in blocks, or in tokens for an engine without blocks."""
    return figure_text(figures.kv_pool_blocks or figures.kv_pool_tokens)


def _at_once(concurrency: int, figures: Predictions) -> str:
    """Return how many of the requests run at once; more than there are is all of them."""
    running = figures.max_running_requests
    if running is None or running.low < concurrency:
        return figure_text(running, f"of {concurrency} requests at once")
    return f"{concurrency} of {concurrency} requests at once, {running.kind}"


def _running(concurrency: int, figures: Predictions) -> str:
    """Return how many of the requests run where not all do."""
    running = figures.max_running_requests
    if running is None or running.value >= concurrency:
        return ""
    return f"; {running.value:.0f} of {concurrency} running"


def _end_to_end(plan: Plan) -> str:
    point = plan.operating_point
    figures = plan.predictions
    text = figure_text(figures.output_tps_end_to_end, reason=_why(figures, "output_tps_end_to_end"))
    hit = f" ({point.prefix_hit:.0%} cached)" if point.prefix_hit else ""
    text += f" ({point.isl} input{hit} and {point.osl} output tokens"
    for name, figure in (
        ("TTFT", figures.ttft_end_to_end_ms),
        ("TPOT", figures.tpot_end_to_end_ms),
    ):
        if figure is not None:
            text += f"; {name} {format_count(figure.value)} ms"
            if name == "TTFT" and _running(point.concurrency, figures):
                text += " with queueing"
    if figures.stall_ms is not None:
        text += f"; decode pauses up to {format_count(figures.stall_ms.value)} ms"
    return f"{text})"


def _alternatives(plan: Plan) -> list[str]:
    rows = []
    for other in plan.alternatives[:MOST_ALTERNATIVES]:
        option = other.option
        speed = figure_text(other.predictions.aggregate_decode_tps)
        if ranks_end_to_end(plan.workload):
            speed += f", end to end {figure_text(other.predictions.output_tps_end_to_end)}"
        rows.append(
            f"{option.quant} · {draft_label(option)} · {layout_label(option)} · "
            f"{option.kv_cache_dtype} KV · {(option.image or option.engine).rsplit('/', 1)[-1]}: "
            f"{speed}; {other.why_not}"
        )
    return rows


def _warnings(plan: Plan) -> list[str]:
    rows = [f"[{warning.rule}] {warning.text}" for warning in plan.warnings[:MOST_WARNINGS]]
    left = len(plan.warnings) - len(rows)
    if left > 0:
        rows.append(f"{left} more in the plan document")
    return rows


def no_plan_text(trace: Sequence[TraceEntry]) -> str:
    """Return the rejections of a refused plan, one line per rule with how many options it took."""
    by_rule: dict[str, list[TraceEntry]] = {}
    for entry in without_twins(trace):
        by_rule.setdefault(entry.rule, []).append(entry)
    lines = ["No feasible option. Rejections, by rule:"] if by_rule else []
    for rule, entries in sorted(by_rule.items(), key=lambda item: -len(item[1])):
        first = nearest_miss(entries) or entries[0]
        text = f"{first.reason}"
        if first.missed_by:
            text += f"; {shortfall(first.missed_by)}"
        if first.would_return:
            text += f"; feasible with {first.would_return}"
        lines += _wrapped(f"{len(entries):>5}  ", f"[{rule}] {first.option}: {text}")
    return "\n".join(lines) + "\n" if lines else ""
