"""Rules and signatures as explanations."""

from __future__ import annotations

import re
from typing import Any

from qwendeploy.diagnosis import Signature, load_signatures
from qwendeploy.reporting.explain_parts import Explanation, Fact
from qwendeploy.rulebook.book import load_rules
from qwendeploy.rulebook.rule import Effect, Rule, conditions_of


def rules_named(wanted: str) -> list[Explanation]:
    """Return the rule of this id and those that report under it."""
    rules = load_rules().rules
    exact = [rule for rule in rules if rule.id == wanted]
    reporting = [
        rule for rule in rules if rule.finding and rule.finding.id == wanted and rule.id != wanted
    ]
    return [rule_explanation(rule) for rule in (*exact, *reporting)]


_REFERENCE = re.compile(r"\{(?:[a-z]+\.)?([a-z][A-Za-z0-9_.\-]*)\}")


def readable(text: str) -> str:
    """Return a template with its references as names in angle brackets."""
    return _REFERENCE.sub(r"<\1>", text)


def rule_explanation(rule: Rule) -> Explanation:
    """Return a rule as an explanation."""
    facts = [
        Fact(label="about", value=readable(rule.about)),
        Fact(label="applies", value=_applies(rule)),
        Fact(label="when", value="; ".join(_conditions(rule)) or "always"),
        Fact(label="does", value="; ".join(effect_text(effect) for effect in rule.effects)),
        Fact(label="fix", value=readable(rule.fix)),
    ]
    if rule.would_return:
        facts.append(Fact(label="feasible with", value=readable(rule.would_return)))
    if rule.finding is not None:
        outcome = rule.finding.outcome
        judged = rule.finding.severity + (f", {outcome.replace('_', ' ')}" if outcome else "")
        reported = f" as {rule.finding.id}" if rule.finding.id else ""
        facts.append(Fact(label="audit finding", value=judged + reported))
    facts.append(Fact(label="certainty", value=_certainty(rule)))
    see = [*rule.see_also, *rule.overrides]
    see += [found.id for found in load_signatures() if rule.id in found.rules]
    return Explanation(
        topic=rule.id,
        kind="rule",
        title=rule.title,
        text=(readable(rule.because),),
        facts=tuple(facts),
        sources=rule.sources,
        see_also=tuple(dict.fromkeys(name for name in see if name != rule.id)),
    )


def _applies(rule: Rule) -> str:
    applies = rule.applies
    parts: list[str] = [applies.engine or "any engine"]
    if applies.versions:
        parts.append(applies.versions.replace(",", ", "))
    if applies.fork is not None:
        parts.append("third-party forks" if applies.fork else "upstream images")
    return ", ".join(parts) + f"; pass {rule.pass_.value}"


def _certainty(rule: Rule) -> str:
    checked = rule.applies.checked_to
    if checked and rule.certainty == "observed":
        return f"observed up to {checked}; newer releases get a warning only"
    return rule.certainty


_SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤", "ne": "≠", "eq": "="}


def _conditions(rule: Rule) -> list[str]:
    lines = []
    for field, condition in rule.when.items():
        for operator, operand in conditions_of(condition):
            if operator in _SIGNS:
                lines.append(f"{field} {_SIGNS[operator]} {_plain(operand)}")
            elif operator == "matches":
                lines.append(f"{field} matches {operand}")
            else:
                word = "is one of" if operator == "in" else "is none of"
                lines.append(f"{field} {word} {', '.join(_plain(item) for item in operand)}")
    return lines


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    return text[1:-1] if text.startswith("{") and text.endswith("}") else text


def effect_text(effect: Effect) -> str:
    """Return an effect in words."""
    if effect.kind == "flag":
        return f"sets {effect.name}" + ("" if effect.value is None else f" {effect.value}")
    if effect.kind == "env":
        return f"sets {effect.name}={effect.value}"
    if effect.kind == "limit":
        bound = f"at most {_plain(effect.max)}"
        if effect.max is None:
            bound = f"at least {_plain(effect.min)}"
        return f"keeps {effect.field} {bound}"
    if effect.kind == "prefer":
        return f"prefers {effect.field} {_plain(effect.value)}"
    return {"reject": "rejects the option", "warn": "warns"}[effect.kind]


def signatures_named(wanted: str) -> list[Explanation]:
    """Return the signature of this id."""
    return [signature_explanation(found) for found in load_signatures() if found.id == wanted]


def signature_explanation(signature: Signature) -> Explanation:
    """Return a signature as an explanation."""
    facts = [Fact(label="log", value=pattern) for pattern in (*signature.any_of, *signature.all_of)]
    for name, condition in signature.metrics.items():
        shown = ", ".join(
            f"{_SIGNS[symbol]} {_plain(operand)}" for symbol, operand in condition.items()
        )
        facts.append(Fact(label="measured", value=f"{name} {shown}"))
    facts.append(Fact(label="fix", value=readable(signature.fix)))
    facts.append(Fact(label="severity", value=f"{signature.severity}, at {signature.stage}"))
    facts.append(Fact(label="certainty", value=signature.certainty))
    return Explanation(
        topic=signature.id,
        kind="signature",
        title=signature.title,
        text=(readable(signature.cause),),
        facts=tuple(facts),
        sources=signature.sources,
        see_also=tuple(name for name in signature.rules if name != signature.id),
    )
