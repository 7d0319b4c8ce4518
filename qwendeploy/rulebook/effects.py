"""What fired rules set together: disagreements, settings as facts, deviations of a command."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from qwendeploy.rulebook.fields import (
    ABSENT,
    FactValue,
    env_field,
    find_field,
    flag_field,
    lookup,
)
from qwendeploy.rulebook.firing import Fired
from qwendeploy.rulebook.rule import Effect


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two fired rules that set one thing differently."""

    what: str
    first: str
    first_value: str
    second: str
    second_value: str

    def __str__(self) -> str:
        return (
            f"{self.what}: rule {self.first} sets {self.first_value}, "
            f"rule {self.second} sets {self.second_value}"
        )


def violated(fired: Fired, facts: Mapping[str, FactValue], flags_known: bool) -> bool:
    """Say whether the command differs from what the fired rule asks."""
    for effect in fired.effects:
        if effect.kind in ("reject", "warn"):
            return True
        if effect.kind == "limit" and effect.field is not None:
            value = lookup(facts, effect.field)
            if isinstance(value, int | float) and not _within(value, effect):
                return True
        if effect.kind in ("flag", "env"):
            name, asked = _switch(str(effect.name), effect.value)
            family = flag_field(name) if effect.kind == "flag" else env_field(name)
            value = facts.get(family, ABSENT if flags_known else None)
            if value is not None and str(value) != asked:
                return True
    return False


def _within(value: float, effect: Effect) -> bool:
    if effect.max is not None:
        return value <= float(effect.max)
    return effect.min is None or value >= float(effect.min)


def conflicts(fired: Iterable[Fired]) -> tuple[Conflict, ...]:
    """Return every pair of fired rules that set one flag, variable or default differently.

    Limits never disagree unless a maximum lies below a minimum.
    """
    found: list[Conflict] = []
    seen: dict[str, tuple[str, str]] = {}
    bounds: dict[str, dict[str, tuple[float, str]]] = {}
    for result in fired:
        for effect in result.effects:
            if effect.kind == "limit" and effect.field is not None:
                bound = bounds.setdefault(effect.field, {})
                if effect.max is not None:
                    bound["max"] = min(
                        bound.get("max", (float("inf"), "")), (float(effect.max), result.rule.id)
                    )
                elif effect.min is not None:
                    bound["min"] = max(
                        bound.get("min", (float("-inf"), "")), (float(effect.min), result.rule.id)
                    )
                continue
            if effect.kind not in ("flag", "env", "prefer"):
                continue
            what = str(effect.name if effect.kind != "prefer" else effect.field)
            key, value = _switch(what, effect.value)
            before = seen.setdefault(key, (result.rule.id, value))
            if before[1] != value:
                found.append(Conflict(key, before[0], before[1], result.rule.id, value))
    for name, bound in bounds.items():
        low, high = bound.get("min"), bound.get("max")
        if low and high and high[0] < low[0]:
            found.append(
                Conflict(name, low[1], f"at least {low[0]:g}", high[1], f"at most {high[0]:g}")
            )
    return tuple(found)


def _switch(name: str, value: object) -> tuple[str, str]:
    """Return the flag and value; ``--no-x`` is ``--x`` with value false."""
    if name.startswith("--no-") and value is None:
        return f"--{name.removeprefix('--no-')}", "false"
    return name, "true" if value is None else str(value)


def setting_facts(
    flags: Iterable[tuple[str, str | None]], env: Mapping[str, str]
) -> dict[str, FactValue]:
    """Return flags and variables as facts; keys of JSON values become dotted flags beside them."""
    facts: dict[str, FactValue] = {}
    for name, value in flags:
        key, text = _switch(name, value)
        stem = flag_field(key)
        facts[stem] = text
        if text.startswith("{"):
            try:
                parsed = json.loads(text)
            except ValueError:
                continue
            facts.update(_dotted(stem, parsed))
    facts.update({env_field(name): value for name, value in env.items()})
    return {name: value for name, value in facts.items() if find_field(name) is not None}


def _dotted(stem: str, value: Mapping[str, Any], depth: int = 4) -> dict[str, FactValue]:
    facts: dict[str, FactValue] = {}
    for key, item in value.items():
        name = f"{stem}.{key}"
        if isinstance(item, Mapping):
            facts.update(_dotted(name, item, depth - 1) if depth else {})
        elif isinstance(item, bool):
            facts[name] = "true" if item else "false"
        else:
            facts[name] = str(item)
    return facts
