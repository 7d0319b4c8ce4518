"""The tables of ``data accuracy``: how wrong the models are on data they did not see.

Every table is computed from the shipped data when asked for, nothing is stored. A table is a
title, one line that says how to read it, columns and rows; text, Markdown and JSON are three views
of the same values. Fractions are kept in JSON and shown as per cent elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SCHEMA = "qwendeploy/accuracy"
SCHEMA_VERSION = "1.0"
Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Column:
    """A column: key in JSON, heading, and whether its numbers are fractions shown as per cent."""

    key: str
    heading: str
    percent: bool = False


@dataclass(frozen=True)
class AccuracyTable:
    """One table of the report."""

    name: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Goal:
    """What DESIGN asks of a figure and what was reached; smaller is better unless ``at_least``."""

    name: str
    limit: float
    reached: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """The figure is on the right side of its limit."""
        return self.reached >= self.limit if self.at_least else self.reached <= self.limit


@dataclass(frozen=True)
class AccuracyReport:
    """All tables asked for, and the goals that they answer."""

    tables: tuple[AccuracyTable, ...]
    goals: tuple[Goal, ...]


def as_document(report: AccuracyReport) -> dict[str, Any]:
    """Return the report as a JSON document; errors are fractions, not per cent."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "tables": {
            table.name: {
                "title": table.title,
                "note": table.note,
                "rows": [
                    {
                        column.key: _plain(cell)
                        for column, cell in zip(table.columns, row, strict=True)
                    }
                    for row in table.rows
                ],
            }
            for table in report.tables
        },
        "goals": [{**asdict(goal), "met": goal.met} for goal in report.goals],
    }


def _plain(cell: Cell) -> Cell:
    return round(cell, 6) if isinstance(cell, float) else cell


def _shown(cell: Cell, column: Column) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if column.percent:
        return f"{100 * float(cell):.1f}"
    return f"{cell:.0f}" if isinstance(cell, float) else str(cell)


def _heading(column: Column) -> str:
    return f"{column.heading} %" if column.percent else column.heading


def as_text(report: AccuracyReport, width: int = 48) -> str:
    """Return the tables for a terminal; texts longer than ``width`` are cut."""
    parts = []
    for table in report.tables:
        cells = [[_heading(column) for column in table.columns]]
        for row in table.rows:
            shown = [_shown(cell, column) for cell, column in zip(row, table.columns, strict=True)]
            cells.append([_cut(text, width) for text in shown])
        parts += [table.title, f"  {table.note}", *_aligned(cells), ""]
    if report.goals:
        parts.append("Goals")
        for goal in report.goals:
            sign = "≥" if goal.at_least else "≤"
            mark = "met   " if goal.met else "MISSED"
            reached, limit = f"{100 * goal.reached:.1f} %", f"{100 * goal.limit:.1f} %"
            parts.append(f"  {mark} {goal.name}: {reached} ({sign} {limit})")
    return "\n".join(parts).rstrip("\n") + "\n"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    numeric = [
        all(row[at] == "" or row[at][-1].isdigit() for row in cells[1:])
        for at in range(len(cells[0]))
    ]
    lines = []
    for row in cells:
        padded = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  " + "  ".join(padded).rstrip())
    return lines


_BAND = ("coverage", "half_width")
README_TABLES: Mapping[str, tuple[str, ...]] = {
    "speed_sessions": ("name", "n", "median", "p90", "max", *_BAND),
    "speed_cells": ("name", "n", "median", "p90", "max", *_BAND, "floor_median", "edge_median"),
    "memory": ("use", "n", "median", "max", "covered", "half_width"),
    "transfer": ("way", "rows", "n", "groups", "median", "p90", "worst", *_BAND),
    "latency": ("quantity", "way", "n", "groups", "median", "p90", *_BAND),
    "regret": ("name", "n", "mean", "worst", "constant_mean", "constant_worst"),
    "flips": (),
}
"""Columns of the tables that the README shows; a table without columns is its one line."""


def as_markdown(report: AccuracyReport) -> str:
    """Return the README's tables and goals as Markdown."""
    parts = []
    for table in report.tables:
        wanted = README_TABLES.get(table.name)
        if wanted is None:
            continue
        at = [index for index, column in enumerate(table.columns) if column.key in wanted]
        chosen = [table.columns[index] for index in at]
        parts += [f"**{table.title}**: {table.note}.", ""]
        if not wanted:
            continue
        parts.append("| " + " | ".join(_heading(column) for column in chosen) + " |")
        parts.append("|" + "---|" * len(chosen))
        for row in table.rows:
            texts = [_shown(row[index], table.columns[index]) for index in at]
            parts.append("| " + " | ".join(texts) + " |")
        parts.append("")
    missed = [goal for goal in report.goals if not goal.met]
    line = f"{len(report.goals) - len(missed)} of {len(report.goals)} goals met"
    misses = [
        f"{goal.name} {100 * goal.reached:.1f} % (goal {100 * goal.limit:.1f} %)" for goal in missed
    ]
    parts.append(line + ("; missed: " + "; ".join(misses) if misses else "") + ".")
    return "\n".join(parts) + "\n"
