"""Why a plan is as it is: its settings with their rules, its trace by rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qwendeploy.documents import Plan, Predictions
from qwendeploy.errors import UserError
from qwendeploy.figures import Figure
from qwendeploy.reporting.explain_parts import Explanation, Fact
from qwendeploy.reporting.explain_topics import topics
from qwendeploy.reporting.verify_text import figure_text
from qwendeploy.units import format_count, format_tokens

FIGURES = tuple(name for name in Predictions.model_fields if name != "reasons")
OF_THE_PLAN = ("download_gib", "boot_first_s", "boot_warm_s")
"""Figures of a plan that no concurrency or context changes."""


def explain_plan(plan: Plan, name: str | None) -> tuple[Explanation, ...]:
    """Return why a plan is as it is; with ``name`` only what concerns that option, rule, flag
    or figure.

    Raises:
        UserError: the plan says nothing about ``name``.
    """
    wanted = (name or "").lower()
    found = [
        *_figures_of(plan, wanted),
        *_settings_of(plan, wanted),
        *_trace_of(plan, wanted),
    ]
    if not wanted:
        found.insert(
            0,
            Explanation(
                topic=plan.plan_id,
                kind="plan",
                title="Why this option",
                text=(*plan.headlines, *plan.reasons),
            ),
        )
    if not found:
        raise UserError(
            f"the plan contains nothing about {name!r}",
            where="explain --plan",
            hint="omit NAME to list every decision",
        )
    return tuple(found)


def _figures_of(plan: Plan, wanted: str) -> Iterable[Explanation]:
    """Return the figure of that name: at the plan's point, then at the rows beside it."""
    name = wanted.strip().replace("-", "_").replace(" ", "_")
    if name in OF_THE_PLAN:
        yield _figure(name, getattr(plan, name), f"no {name} is known for this plan", ())
    elif name in FIGURES:
        point = plan.operating_point
        beside = [
            Fact(label=f"c={cell.concurrency}", value=f"{text} at {format_tokens(cell.context)}")
            for cell in plan.cells
            if (cell.concurrency, cell.context) != (point.concurrency, point.context)
            and (figure := getattr(cell.figures, name)) is not None
            and (text := figure_text(figure)) != figure_text(getattr(plan.predictions, name))
        ]
        reason = plan.predictions.reasons.get(name, "the plan has neither a figure nor a reason")
        yield _figure(name, getattr(plan.predictions, name), reason, beside)


def _figure(name: str, figure: Figure | None, reason: str, beside: Iterable[Fact]) -> Explanation:
    """Return what the plan says of a figure, and what it means."""
    topic = topics().get(name)
    text = topic.text if topic else ()
    if figure is None:
        return Explanation(
            topic=name, kind="figure", title="no figure", text=(reason, *text), facts=tuple(beside)
        )
    band = f"[{format_count(figure.low)}, {format_count(figure.high)}] {figure.unit}"
    exact = figure.low == figure.value == figure.high
    facts = (
        Fact(label="value", value=f"{format_count(figure.value)} {figure.unit}"),
        Fact(label="band", value="none: it is exact" if exact else f"{band}, {figure.level:.0%}"),
        Fact(label="kind", value=figure.kind.value),
        Fact(label="n", value=str(figure.n)),
        *beside,
    )
    return Explanation(
        topic=name,
        kind="figure",
        title=f"{name} {figure_text(figure)}",
        text=text,
        facts=facts,
        sources=(figure.source,) if figure.source else (),
        see_also=("kind",),
    )


def _settings_of(plan: Plan, wanted: str) -> Iterable[Explanation]:
    for kind, settings in (("flag", plan.flags), ("variable", plan.env)):
        for setting in settings:
            if wanted and wanted not in f"{setting.name} {setting.rule}".lower():
                continue
            if not wanted and setting.rule == "option":
                continue
            value = "" if setting.value is None else f" {setting.value}"
            yield Explanation(
                topic=setting.name,
                kind=kind,
                title=f"{setting.name}{value}",
                text=(setting.reason,),
                facts=(Fact(label="rule", value=setting.rule),),
            )


def _trace_of(plan: Plan, wanted: str) -> Iterable[Explanation]:
    grouped: dict[tuple[str, str], list[Any]] = {}
    for entry in plan.trace:
        if wanted and wanted not in f"{entry.option} {entry.rule}".lower():
            continue
        if not wanted and entry.effect != "rejected":
            continue
        grouped.setdefault((entry.rule, entry.effect), []).append(entry)
    for (rule, effect), entries in grouped.items():
        first = entries[0]
        facts = [Fact(label="option", value=entry.option) for entry in entries[:5]]
        if len(entries) > 5:
            facts.append(Fact(label="and", value=f"{len(entries) - 5} more options"))
        for label, value in (("missed by", first.missed_by), ("feasible with", first.would_return)):
            if value:
                facts.append(Fact(label=label, value=value))
        yield Explanation(
            topic=rule,
            kind=effect,
            title=f"{len(entries)} option{'s' if len(entries) > 1 else ''} {effect} by {rule}",
            text=(first.reason,),
            facts=tuple(facts),
        )
