"""The rule book: every rule of ``rules/`` with compiled conditions, fired in a fixed order."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import ValidationError

from qwendeploy.errors import DataError, UserError
from qwendeploy.planning.fields import (
    ABSENT,
    FactValue,
    FieldType,
    Pass,
    env_field,
    find_field,
    flag_field,
    is_family,
    lookup,
    parse_version,
)
from qwendeploy.planning.rule import (
    Applies,
    Effect,
    Example,
    Judgement,
    Rule,
    conditions_of,
    fill,
    resolve_value,
)
from qwendeploy.planning.rulefiles import cached_files, validation_error, yaml_files
from qwendeploy.resources import data_dir

__all__ = [
    "Applies",
    "Conflict",
    "Effect",
    "Example",
    "Finding",
    "Fired",
    "Judgement",
    "Rule",
    "RuleBook",
    "conflicts",
    "load_rules",
    "rule_fires",
    "setting_facts",
]

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
class Conflict:
    """Two fired rules that set one thing differently."""

    what: str
    first: str
    first_value: str
    second: str
    second_value: str

    def __str__(self) -> str:
        return (
            f"{self.what}: rule {self.first} says {self.first_value}, "
            f"rule {self.second} says {self.second_value}"
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule says about somebody's own command."""

    id: str
    severity: Literal["error", "warning", "info"]
    outcome: str | None
    about: str
    text: str
    fix: str
    fired: Fired


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A rule with its conditions as tests; the rule speaks only where all hold."""

    rule: Rule
    tests: tuple[tuple[str, Callable[[FactValue, Mapping[str, FactValue]], bool], bool], ...]
    """Field, test, and whether the test compares with another field."""
    checked_to: Version | None


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
    fixed = None
    if not _refers(operand):
        fixed = _comparable(kind, operand)

    def order(fact: FactValue, facts: Mapping[str, FactValue]) -> bool:
        value = _comparable(kind, fact)
        other = fixed
        if other is None:
            known = lookup(facts, operand[1:-1])
            other = None if known is None else _comparable(kind, known)
        return value is not None and other is not None and compare(value, other)

    return order


def _refers(operand: Any) -> bool:
    return isinstance(operand, str) and operand.startswith("{")


def _compile(rule: Rule) -> _Compiled:
    tests = tuple(
        (name, _test(name, operator, operand), _refers(operand))
        for name, condition in rule.when.items()
        for operator, operand in conditions_of(condition)
    )
    applies = rule.applies
    return _Compiled(
        rule,
        tests,
        parse_version(applies.checked_to) if applies.checked_to else None,
    )


@dataclass(frozen=True)
class RuleBook:
    """All rules, by id, fired in order of id."""

    rules: tuple[Rule, ...]
    _by_pass: dict[Pass, tuple[_Compiled, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.rules, key=lambda rule: rule.id))
        compiled = {
            pass_: tuple(_compile(rule) for rule in ordered if rule.pass_ is pass_)
            for pass_ in Pass
        }
        object.__setattr__(self, "rules", ordered)
        object.__setattr__(self, "_by_pass", compiled)

    def get(self, rule_id: str) -> Rule:
        """Return the rule with this id.

        Raises:
            UserError: there is none; names the nearest.
        """
        for rule in self.rules:
            if rule.id == rule_id:
                return rule
        near = difflib.get_close_matches(rule_id, [rule.id for rule in self.rules], n=1)
        raise UserError(f"no rule {rule_id!r}", hint=f"did you mean {near[0]}?" if near else None)

    def narrowed(self, facts: Mapping[str, FactValue]) -> RuleBook:
        """Return the book for situations in which these facts hold, with what they decide settled.

        Rules that one of the facts rules out are dropped, and tests that they already pass are not
        asked again. ``fire`` answers as the whole book would for every mapping that contains
        ``facts``.
        """
        book = object.__new__(RuleBook)
        kept = {
            pass_: tuple(
                narrower for compiled in group if (narrower := _narrow(compiled, facts)) is not None
            )
            for pass_, group in self._by_pass.items()
        }
        object.__setattr__(book, "rules", self.rules)
        object.__setattr__(book, "_by_pass", kept)
        return book

    def fire(
        self,
        pass_: Pass | str,
        facts: Mapping[str, FactValue],
        *,
        flags_known: bool | None = None,
    ) -> tuple[Fired, ...]:
        """Return the rules of a pass whose conditions hold, in order of id, less overridden ones.

        A fact that is missing from ``facts`` is unknown and no condition on it holds. With
        ``flags_known`` (default: in the check pass) a flag or variable without a fact reads
        ``absent`` instead, because the command is then complete.

        Raises:
            KeyError: a fact's name is not in the closed list.
        """
        wanted = Pass(pass_)
        for name in facts:
            if find_field(name) is None:
                raise KeyError(f"{name} is not a rule field")
        complete = wanted is Pass.CHECK if flags_known is None else flags_known
        fired = [
            result
            for compiled in self._by_pass[wanted]
            if (result := _fire(compiled, facts, complete)) is not None
        ]
        beaten = {other for result in fired if not result.stale for other in result.rule.overrides}
        return tuple(result for result in fired if result.rule.id not in beaten)

    def judge(
        self, facts: Mapping[str, FactValue], *, flags_known: bool = True
    ) -> tuple[Finding, ...]:
        """Return what the rules say about a foreign command, worst first.

        Only rules with ``finding`` report. One that rejects or warns reports when it fires; one
        that sets flags, variables or limits reports when the command has another value.
        """
        fired = [
            result for pass_ in Pass for result in self.fire(pass_, facts, flags_known=flags_known)
        ]
        beaten = {other for result in fired if not result.stale for other in result.rule.overrides}
        worst: dict[tuple[str, str], Finding] = {}
        for result in fired:
            if result.rule.id in beaten or result.rule.finding is None:
                continue
            if _violated(result, facts, flags_known):
                found = _finding(result, result.rule.finding, facts)
                before = worst.get((found.id, found.about))
                if before is None or _RANK[found.severity] < _RANK[before.severity]:
                    worst[found.id, found.about] = found
        return tuple(sorted(worst.values(), key=lambda found: (_RANK[found.severity], found.id)))


_RANK = {"error": 0, "warning": 1, "info": 2}


def _finding(fired: Fired, judgement: Judgement, facts: Mapping[str, FactValue]) -> Finding:
    severity = judgement.severity
    if fired.stale and severity == "error":
        severity = "warning"
    return Finding(
        judgement.id or fired.rule.id,
        severity,
        None if fired.stale else judgement.outcome,
        fill(fired.rule.about, facts),
        fired.reason,
        fill(fired.rule.fix, facts),
        fired,
    )


def rule_fires(rule: Rule, facts: Mapping[str, FactValue]) -> bool:
    """Say whether a rule fires on facts alone, before others override it."""
    return _fire(_compile(rule), facts, rule.pass_ is Pass.CHECK) is not None


def _narrow(compiled: _Compiled, facts: Mapping[str, FactValue]) -> _Compiled | None:
    """Return the rule without the tests that these facts settle, ``None`` if one fails."""
    applies = compiled.rule.applies
    engine = facts.get("option.engine")
    if applies.engine is not None and engine is not None and engine != applies.engine:
        return None
    fork = facts.get("option.fork")
    if applies.fork is not None and fork is not None and fork is not applies.fork:
        return None
    version = facts.get("option.engine_version")
    if applies.versions and fork is False and version is not None:
        if not _version_in(str(version), applies.versions):
            return None
    left = []
    for name, test, refers in compiled.tests:
        fact = facts.get(name)
        if fact is None or refers:
            left.append((name, test, refers))
        elif not test(fact, facts):
            return None
    return replace(compiled, tests=tuple(left)) if len(left) < len(compiled.tests) else compiled


def _holds(compiled: _Compiled, facts: Mapping[str, FactValue], complete: bool) -> bool:
    applies = compiled.rule.applies
    if applies.engine is not None and facts.get("option.engine") != applies.engine:
        return False
    fork = facts.get("option.fork")
    if applies.fork is not None and fork is not applies.fork:
        return False
    for name, test, _ in compiled.tests:
        fact = lookup(facts, name)
        if fact is None:
            if not complete or not is_family(name):
                return False
            fact = ABSENT
        if not test(fact, facts):
            return False
    if not applies.versions or fork is True:
        return True
    return _version_in(str(facts.get("option.engine_version")), applies.versions)


@cache
def _version_in(text: str, specifier: str) -> bool:
    """Say whether a version satisfies a specifier; pre-releases count as their release."""
    version = parse_version(text)
    return version is not None and SpecifierSet(specifier).contains(
        version.base_version, prereleases=True
    )


def _is_stale(compiled: _Compiled, facts: Mapping[str, FactValue]) -> bool:
    if compiled.checked_to is None or compiled.rule.certainty != "observed":
        return False
    if facts.get("option.fork") is True:
        return False
    version = parse_version(str(facts.get("option.engine_version")))
    return version is not None and version.release > compiled.checked_to.release


def _fire(compiled: _Compiled, facts: Mapping[str, FactValue], complete: bool) -> Fired | None:
    if not _holds(compiled, facts, complete):
        return None
    rule = compiled.rule
    reason = fill(rule.because, facts)
    if _is_stale(compiled, facts):
        version = facts.get("option.engine_version")
        reason = (
            f"seen up to {rule.applies.checked_to}, not checked since (this is {version}): {reason}"
        )
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


def _violated(fired: Fired, facts: Mapping[str, FactValue], flags_known: bool) -> bool:
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


def load_rules(directory: Path | None = None) -> RuleBook:
    """Return every rule of ``rules/`` (or ``directory``), validated.

    Raises:
        DataError: a file is not YAML, or has an unknown key, field, operator or effect, a value of
            the wrong type, an id other than its file name, or names a rule that is not there.
    """
    return _load(directory or data_dir("rules"))


@cache
def _load(directory: Path) -> RuleBook:
    files = yaml_files(directory)
    rules = []
    for name, content in cached_files(files, directory).items():
        path = directory / name
        try:
            rule = Rule.model_validate(content)
        except ValidationError as problem:
            raise validation_error(path, problem) from None
        if f"{rule.id}.yaml" != name:
            raise DataError(
                f"id {rule.id!r} differs from the file name", file=str(path), line=1, key="id"
            )
        rules.append(rule)
    known = {rule.id for rule in rules}
    for rule in rules:
        for other in (*rule.overrides, *rule.see_also):
            if other not in known:
                raise DataError(
                    f"names rule {other!r}, which does not exist",
                    file=str(directory / f"{rule.id}.yaml"),
                    key="overrides" if other in rule.overrides else "see_also",
                )
    return RuleBook(tuple(rules))
