"""The rule book: every rule of ``rules/`` with compiled conditions, fired in a fixed order."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from qwendeploy.errors import DataError, UserError
from qwendeploy.resources import data_dir
from qwendeploy.rulebook.effects import Conflict, conflicts, setting_facts, violated
from qwendeploy.rulebook.fields import FactValue, Pass, find_field
from qwendeploy.rulebook.files import read_items
from qwendeploy.rulebook.firing import (
    CompiledRule,
    Fired,
    compile_rule,
    fire_rule,
    narrow_rule,
    rule_fires,
)
from qwendeploy.rulebook.rule import Applies, Effect, Example, Judgement, Rule, fill

__all__ = [
    "Applies",
    "Conflict",
    "Effect",
    "Example",
    "Fired",
    "Judgement",
    "Rule",
    "RuleBook",
    "RuleFinding",
    "conflicts",
    "load_rules",
    "read_rules",
    "rule_fires",
    "setting_facts",
]


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """What a rule says about somebody's own command."""

    id: str
    severity: Literal["error", "warning", "info"]
    outcome: str | None
    about: str
    text: str
    fix: str
    fired: Fired


@dataclass(frozen=True)
class RuleBook:
    """All rules, by id, fired in order of id."""

    rules: tuple[Rule, ...]
    _by_pass: dict[Pass, tuple[CompiledRule, ...]] = field(init=False, repr=False, compare=False)
    _gated: dict[Pass, Gated] = field(init=False, repr=False, compare=False)
    _reads: dict[Pass, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    """Of a narrowed book: the facts that decide a pass, where answers are kept."""
    _answers: dict[tuple[object, ...], tuple[Fired, ...]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.rules, key=lambda rule: rule.id))
        compiled = {
            pass_: tuple(compile_rule(rule) for rule in ordered if rule.pass_ is pass_)
            for pass_ in Pass
        }
        object.__setattr__(self, "rules", ordered)
        object.__setattr__(self, "_by_pass", compiled)
        object.__setattr__(self, "_gated", _gated(compiled, {}))
        object.__setattr__(self, "_reads", {})
        object.__setattr__(self, "_answers", {})

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
                narrower
                for compiled in group
                if (narrower := narrow_rule(compiled, facts)) is not None
            )
            for pass_, group in self._by_pass.items()
        }
        object.__setattr__(book, "rules", self.rules)
        object.__setattr__(book, "_by_pass", kept)
        object.__setattr__(book, "_gated", _gated(kept, facts))
        # What the check pass reads of memory differs from option to option: nothing to keep.
        reads = {
            pass_: tuple(sorted(_all_read(kept[pass_]) - facts.keys()))
            for pass_ in (Pass.ADMIT, Pass.RESOLVE)
        }
        object.__setattr__(book, "_reads", reads)
        object.__setattr__(book, "_answers", {})
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
        complete = wanted is Pass.CHECK if flags_known is None else flags_known
        reads = self._reads.get(wanted)
        if reads is None:
            return self._fired(wanted, facts, complete)
        key = (wanted, complete, *map(facts.get, reads))
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._fired(wanted, facts, complete)
        return answer

    def _fired(
        self, wanted: Pass, facts: Mapping[str, FactValue], complete: bool
    ) -> tuple[Fired, ...]:
        for name in facts:
            if find_field(name) is None:
                raise KeyError(f"{name} is not a rule field")
        always, gated = self._gated[wanted]
        asked = [*always]
        for name in gated.keys() & facts.keys():
            asked.extend(gated[name])
        asked.sort(key=_place)
        fired = [
            result
            for _, compiled in asked
            if (result := fire_rule(compiled, facts, complete)) is not None
        ]
        beaten = {other for result in fired if not result.stale for other in result.rule.overrides}
        return tuple(result for result in fired if result.rule.id not in beaten)

    def judge(
        self, facts: Mapping[str, FactValue], *, flags_known: bool = True
    ) -> tuple[RuleFinding, ...]:
        """Return what the rules say about a foreign command, worst first.

        Only rules with ``finding`` report. One that rejects or warns reports when it fires; one
        that sets flags, variables or limits reports when the command has another value.
        """
        fired = [
            result for pass_ in Pass for result in self.fire(pass_, facts, flags_known=flags_known)
        ]
        beaten = {other for result in fired if not result.stale for other in result.rule.overrides}
        worst: dict[tuple[str, str], RuleFinding] = {}
        for result in fired:
            if result.rule.id in beaten or result.rule.finding is None:
                continue
            if violated(result, facts, flags_known):
                found = _finding(result, result.rule.finding, facts)
                before = worst.get((found.id, found.about))
                if before is None or _RANK[found.severity] < _RANK[before.severity]:
                    worst[found.id, found.about] = found
        return tuple(sorted(worst.values(), key=lambda found: (_RANK[found.severity], found.id)))


Placed = tuple[int, CompiledRule]
Gated = tuple[tuple[Placed, ...], dict[str, list[Placed]]]
"""Rules to ask in any case, and those to ask where a fact is known, with their places."""
_place = operator.itemgetter(0)


def _gated(
    by_pass: Mapping[Pass, tuple[CompiledRule, ...]], facts: Mapping[str, FactValue]
) -> dict[Pass, Gated]:
    """Return the rules by the first of their gates that is not among the facts known already."""
    found: dict[Pass, Gated] = {}
    for pass_, group in by_pass.items():
        always: list[Placed] = []
        gated: dict[str, list[Placed]] = {}
        for placed in enumerate(group):
            gate = next((name for name in placed[1].gates if name not in facts), None)
            (always if gate is None else gated.setdefault(gate, [])).append(placed)
        found[pass_] = tuple(always), gated
    return found


def _all_read(rules: Iterable[CompiledRule]) -> frozenset[str]:
    return frozenset().union(*(compiled.reads for compiled in rules))


_RANK = {"error": 0, "warning": 1, "info": 2}


def _finding(fired: Fired, judgement: Judgement, facts: Mapping[str, FactValue]) -> RuleFinding:
    severity = judgement.severity
    if fired.stale and severity == "error":
        severity = "warning"
    return RuleFinding(
        judgement.id or fired.rule.id,
        severity,
        None if fired.stale else judgement.outcome,
        fill(fired.rule.about, facts),
        fired.reason,
        fill(fired.rule.fix, facts),
        fired,
    )


def load_rules(directory: Path | None = None) -> RuleBook:
    """Return every rule of ``rules/`` (or ``directory``), validated.

    Raises:
        DataError: a file is not YAML, or has an unknown key, field, operator or effect, a value of
            the wrong type, an id other than its file name, or names a rule that is not there.
    """
    return _load(directory or data_dir("rules"))


def read_rules(directory: Path) -> tuple[list[Rule], list[DataError]]:
    """Return the valid rules of a folder and every problem that ``load_rules`` would raise."""
    return read_items(directory, Rule, ("overrides", "see_also"))


@cache
def _load(directory: Path) -> RuleBook:
    rules, problems = read_rules(directory)
    if problems:
        raise problems[0]
    return RuleBook(tuple(rules))
