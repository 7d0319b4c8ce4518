"""Why a plan is as it is: its settings with their rules, its trace by rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qwendeploy.documents import Plan
from qwendeploy.errors import UserError
from qwendeploy.reporting.explain_parts import Explanation, Fact


def explain_plan(plan: Plan, name: str | None) -> tuple[Explanation, ...]:
    """Return why a plan is as it is; with ``name`` only what concerns that option, rule or flag.

    Raises:
        UserError: the plan says nothing about ``name``.
    """
    wanted = (name or "").lower()
    found = [*_settings_of(plan, wanted), *_trace_of(plan, wanted)]
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
            f"the plan says nothing about {name!r}",
            where="explain --plan",
            hint="leave the name out to see every decision",
        )
    return tuple(found)


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
        for label, value in (("missed by", first.missed_by), ("returns with", first.would_return)):
            if value:
                facts.append(Fact(label=label, value=value))
        yield Explanation(
            topic=rule,
            kind=effect,
            title=f"{len(entries)} option{'s' if len(entries) > 1 else ''} {effect} by {rule}",
            text=(first.reason,),
            facts=tuple(facts),
        )
