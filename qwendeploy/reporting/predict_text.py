"""A prediction grid as a table: one row per concurrency and context."""

from __future__ import annotations

import io
import textwrap

from rich.console import Console
from rich.table import Table

from qwendeploy.documents import PredictDocument
from qwendeploy.figures import Figure
from qwendeploy.planning.labels import option_label
from qwendeploy.reporting.plan_text import figure_text
from qwendeploy.reporting.width import USUAL, text_width
from qwendeploy.units import format_count, format_tokens

LONG_MS = 100_000
"""Time to the first token from which a column of milliseconds would not fit: then seconds."""


def predict_text(document: PredictDocument) -> str:
    """Return option, pool and grid as text as wide as ``text_width`` allows."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    first = [cell.figures.ttft_cold_ms for cell in document.cells]
    seconds = any(figure is not None and figure.high >= LONG_MS for figure in first)
    ttft = f"cold TTFT {'s' if seconds else 'ms'}"
    for name in ("c", "context", "decode tok/s", "per request", "TPOT ms", ttft, "running"):
        table.add_column(name, justify="right")
    table.add_column("kind")
    reasons: dict[str, None] = {}
    for cell in document.cells:
        figures = cell.figures
        rate = figures.aggregate_decode_tps
        running = figures.max_running_requests
        table.add_row(
            str(cell.concurrency),
            format_tokens(cell.context),
            _short(rate),
            _short(figures.per_user_decode_tps),
            _short(figures.tpot_ms),
            _short(_in_seconds(figures.ttft_cold_ms) if seconds else figures.ttft_cold_ms),
            str(min(cell.concurrency, int(running.value))) if running else "?",
            rate.kind.value if rate else "no figure",
        )
        reasons.update(dict.fromkeys(f"{name}: {why}" for name, why in figures.reasons.items()))
    stream = io.StringIO()
    # a figure is not cut: a narrower terminal folds the row
    Console(file=stream, width=max(USUAL, text_width()), color_system=None).print(table)
    memory = document.memory
    lines = [
        option_label(document.option),
        f"{document.contexts} contexts, 90% bands",
        "",
        *(line.rstrip() for line in stream.getvalue().splitlines()),
        "",
        f"KV cache     {figure_text(memory.get('kv_pool_blocks') or memory.get('kv_pool_tokens'))}",
        f"full length  {figure_text(memory.get('max_full_length_requests'))}",
    ]
    for reason in reasons:
        lines += _wrapped("no figure", reason)
    for item in document.warnings:
        lines += _wrapped("warning", f"[{item.rule}] {item.text}")
    return "\n".join(lines) + "\n"


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        text_width(),
        initial_indent=f"{label:<13}",
        subsequent_indent=" " * 13,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _in_seconds(figure: Figure | None) -> Figure | None:
    return figure.scaled(1 / 1000, unit="s") if figure is not None else None


def _short(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    if figure.low == figure.high:
        return format_count(figure.value)
    return f"{format_count(figure.value)} ({format_count(figure.low)}–{format_count(figure.high)})"
