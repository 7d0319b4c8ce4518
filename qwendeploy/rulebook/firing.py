"""Conditions compiled to tests, and the firing of one rule on facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from qwendeploy.rulebook.fields import (
    ABSENT,
    FactValue,
    FieldType,
    Pass,
    find_field,
    is_family,
    lookup,
    sources_of,
)
from qwendeploy.rulebook.rule import (
    REFERENCE,
    Effect,
    Rule,
    conditions_of,
    fill,
    resolve_value,
)
from qwendeploy.versions import parse_version, release_of

_LONGEST_TEXT = 4096
"""Characters of a foreign value that a pattern looks at, so that matching stays bounded."""


@dataclass(frozen=True, slots=True)
class Fired:
    """A rule whose condition holds, its effects with values filled in."""

    rule: Rule
    effects: tuple[Effect, ...]
    reason: str
    missed_by: str | None = None
    would_return: str | None = None
    stale: bool = False
    """The engine is newer than the fact was checked on: the effects are one warning."""

    @property
    def rejects(self) -> bool:
        """Whether the option is out."""
        return any(effect.kind == "reject" for effect in self.effects)


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule with its conditions as tests; the rule speaks only where all hold."""

    rule: Rule
    tests: tuple[tuple[str, Callable[[FactValue, Mapping[str, FactValue]], bool], bool], ...]
    """Field, test, and whether the test compares with another field."""
    checked_to: Version | None
    reads: frozenset[str]
    """Every fact that the firing, its effects or its words depend on."""
    gates: tuple[str, ...] = ()
    """Facts without which it cannot fire, those that are seldom there first."""
    settled: bool = False
    """Whether engine, fork and version are known to suit it."""


def _comparable(kind: FieldType, value: Any) -> Any:
    """Return a value that orders; ``None`` if it does not fit the field's type."""
    if kind is FieldType.VERSION:
        return parse_version(str(value))
    if kind is FieldType.NUMBER:
        return float(value) if isinstance(value, int | float) else None
    if kind is FieldType.BOOLEAN:
        return value if isinstance(value, bool) else None
    return str(value)


_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def _test(
    name: str, operator: str, operand: Any
) -> Callable[[FactValue, Mapping[str, FactValue]], bool]:
    """Return the test of one condition; what cannot be compared does not hold."""
    spec = find_field(name)
    assert spec is not None
    kind = spec.type
    if operator == "matches":
        pattern = re.compile(operand, re.IGNORECASE)
        return lambda fact, _facts: bool(pattern.search(str(fact)[:_LONGEST_TEXT]))
    if operator in ("in", "not_in"):
        wanted = {_comparable(kind, value) for value in operand}
        inside = operator == "in"

        def member(fact: FactValue, _facts: Mapping[str, FactValue]) -> bool:
            value = _comparable(kind, fact)
            return value is not None and (value in wanted) is inside

        return member
    compare = _COMPARE[operator]
    if not _refers(operand):
        return _with_fixed(kind, compare, _comparable(kind, operand))

    def order(fact: FactValue, facts: Mapping[str, FactValue]) -> bool:
        value = _comparable(kind, fact)
        known = lookup(facts, operand[1:-1])
        other = None if known is None else _comparable(kind, known)
        return value is not None and other is not None and bool(compare(value, other))

    return order


def _with_fixed(
    kind: FieldType, compare: Callable[[Any, Any], bool], fixed: Any
) -> Callable[[FactValue, Mapping[str, FactValue]], bool]:
    """Return the test against a value that the rule states: asked most often, so kept short."""
    if fixed is None:
        return lambda _fact, _facts: False
    if kind is FieldType.NUMBER:
        return lambda fact, _facts: isinstance(fact, int | float) and compare(fact, fixed)
    if kind is FieldType.BOOLEAN:
        return lambda fact, _facts: isinstance(fact, bool) and compare(fact, fixed)

    def order(fact: FactValue, _facts: Mapping[str, FactValue]) -> bool:
        value = _comparable(kind, fact)
        return value is not None and compare(value, fixed)

    return order


def _refers(operand: Any) -> bool:
    return isinstance(operand, str) and operand.startswith("{")


def compile_rule(rule: Rule) -> CompiledRule:
    """Return a rule with its conditions as tests."""
    tests = tuple(
        (name, _test(name, operator, operand), _refers(operand))
        for name, condition in rule.when.items()
        for operator, operand in conditions_of(condition)
    )
    applies = rule.applies
    return CompiledRule(
        rule,
        tests,
        release_of(applies.checked_to),
        _fields_read(rule),
        _gates(tests),
    )


def _gates(
    tests: tuple[tuple[str, Callable[[FactValue, Mapping[str, FactValue]], bool], bool], ...],
) -> tuple[str, ...]:
    """Return the facts that must be known for all tests to hold, even of a complete command."""
    found = {
        name
        for name, test, refers in tests
        if sources_of(name) == (name,) and not (is_family(name) and (refers or test(ABSENT, {})))
    }
    return tuple(sorted(found, key=lambda name: (_FREQUENT.get(name.partition(".")[0], 0), name)))


_FREQUENT = {"option": 2, "resolved": 1, "memory": 1, "workload": 2}
"""Groups of facts that most options have; a flag or variable is ``resolved`` too."""


@cache
def _fields_in(text: str) -> tuple[str, ...]:
    return tuple(REFERENCE.findall(text)) if "{" in text else ()


def _fields_read(rule: Rule) -> frozenset[str]:
    named: set[str] = {"option.engine", "option.fork", "option.engine_version", *rule.when}
    for condition in rule.when.values():
        named.update(op[1:-1] for _, op in conditions_of(condition) if _refers(op))
    for effect in rule.effects:
        named.update(effect.references())
    for text in (rule.because, rule.missed_by, rule.would_return):
        named.update(_fields_in(text))
    return frozenset(source for name in named for source in sources_of(name))


def rule_fires(rule: Rule, facts: Mapping[str, FactValue]) -> bool:
    """Say whether a rule fires on facts alone, before others override it."""
    return fire_rule(compile_rule(rule), facts, rule.pass_ is Pass.CHECK) is not None


def narrow_rule(compiled: CompiledRule, facts: Mapping[str, FactValue]) -> CompiledRule | None:
    """Return the rule without the tests that these facts settle, ``None`` if one fails."""
    applies = compiled.rule.applies
    engine = facts.get("option.engine")
    if applies.engine is not None and engine is not None and engine != applies.engine:
        return None
    fork = facts.get("option.fork")
    if applies.fork is not None and fork is not None and fork is not applies.fork:
        return None
    version = facts.get("option.engine_version")
    known = applies.versions and fork is False and version is not None
    if known and not _version_in(str(version), applies.versions):
        return None
    left = []
    for name, test, refers in compiled.tests:
        fact = facts.get(name)
        if fact is None or refers:
            left.append((name, test, refers))
        elif not test(fact, facts):
            return None
    settled = engine is not None and fork is not None and (known or fork or not applies.versions)
    if len(left) == len(compiled.tests) and settled == compiled.settled:
        return compiled
    return replace(compiled, tests=tuple(left), settled=bool(settled))


def _applies(compiled: CompiledRule, facts: Mapping[str, FactValue]) -> bool:
    applies = compiled.rule.applies
    if applies.engine is not None and facts.get("option.engine") != applies.engine:
        return False
    fork = facts.get("option.fork")
    if applies.fork is not None and fork is not applies.fork:
        return False
    if not applies.versions or fork is True:
        return True
    return _version_in(str(facts.get("option.engine_version")), applies.versions)


def _holds(compiled: CompiledRule, facts: Mapping[str, FactValue], complete: bool) -> bool:
    if not compiled.settled and not _applies(compiled, facts):
        return False
    for name, test, _ in compiled.tests:
        fact = facts.get(name)
        if fact is None:
            fact = lookup(facts, name)
        if fact is None:
            if not complete or not is_family(name):
                return False
            fact = ABSENT
        if not test(fact, facts):
            return False
    return True


@cache
def _version_in(text: str, specifier: str) -> bool:
    """Say whether a version satisfies a specifier; pre-releases count as their release."""
    release = release_of(text)
    return release is not None and release in SpecifierSet(specifier)


def _is_stale(compiled: CompiledRule, facts: Mapping[str, FactValue]) -> bool:
    if compiled.checked_to is None or compiled.rule.certainty != "observed":
        return False
    if facts.get("option.fork") is True:
        return False
    release = release_of(str(facts.get("option.engine_version")))
    return release is not None and release > compiled.checked_to


def fire_rule(
    compiled: CompiledRule, facts: Mapping[str, FactValue], complete: bool
) -> Fired | None:
    """Return the fired rule, ``None`` if its condition does not hold or an effect is unknown."""
    if not _holds(compiled, facts, complete):
        return None
    rule = compiled.rule
    reason = fill(rule.because, facts)
    if _is_stale(compiled, facts):
        version = facts.get("option.engine_version")
        checked = rule.applies.checked_to
        reason = f"observed up to {checked}, not checked since (this is {version}): {reason}"
        return Fired(rule, (Effect(kind="warn"),), reason, stale=True)
    try:
        effects = tuple(_filled(effect, facts) for effect in rule.effects)
    except LookupError:
        return None
    return Fired(
        rule,
        effects,
        reason,
        fill(rule.missed_by, facts) or None,
        fill(rule.would_return, facts) or None,
    )


def _filled(effect: Effect, facts: Mapping[str, FactValue]) -> Effect:
    updates = {
        key: resolve_value(value, facts)
        for key in ("value", "max", "min")
        if isinstance(value := getattr(effect, key), str) and "{" in value
    }
    return effect.model_copy(update=updates) if updates else effect
