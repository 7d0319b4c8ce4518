"""One rule: a true fact that decides before start, with its condition, effects and evidence.

A rule is data. Its condition is a mapping of fields (``planning.fields``) to a value, a list of
values, or operators; all must hold, and a field that is not known never holds. A value may refer to
another field as ``{memory.pool_blocks}``; there is no other expression language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import Field as ModelField
from pydantic import field_validator, model_validator

from qwendeploy.documents.base import Model
from qwendeploy.rulebook.fields import (
    FactValue,
    FieldType,
    Pass,
    find_field,
    lookup,
    nearest_field,
    readable,
)
from qwendeploy.rulebook.files import Item
from qwendeploy.versions import parse_version

Scalar = bool | int | float | str

REFERENCE = re.compile(r"\{([a-z]+\.[A-Za-z0-9_.\-]+)\}")
"""A field named inside a text; other braces (JSON values) are left alone."""

_WHOLE = re.compile(r"^\{([a-z]+\.[A-Za-z0-9_.\-]+)\}$")
_ORDER = ("gt", "ge", "lt", "le")
_OPERATORS = (*_ORDER, "ne", "in", "not_in", "matches", "eq")


class Effect(Model):
    """What a rule does when its condition holds.

    ``reject`` and ``warn`` need nothing else; ``flag`` and ``env`` set ``name`` to ``value`` (no
    value: a switch that is on); ``limit`` bounds ``field`` by ``max`` or ``min``; ``prefer`` is the
    default of ``field`` where nothing else decides it.
    """

    kind: Literal["reject", "warn", "flag", "env", "limit", "prefer"]
    name: str | None = None
    field: str | None = None
    value: Scalar | None = None
    max: float | str | None = None
    min: float | str | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"kind": data}
        if isinstance(data, Mapping) and "kind" not in data and len(data) == 1:
            ((kind, body),) = data.items()
            if isinstance(body, Mapping):
                return {"kind": kind, **body}
        return data

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needs = {
            "flag": {"name"},
            "env": {"name", "value"},
            "prefer": {"field", "value"},
            "limit": {"field"},
        }.get(self.kind, set())
        allowed = needs | {"flag": {"value"}, "limit": {"max", "min"}}.get(self.kind, set())
        given = {
            key
            for key in ("name", "field", "value", "max", "min")
            if getattr(self, key) is not None
        }
        if needs - given:
            raise ValueError(f"{self.kind} needs {', '.join(sorted(needs - given))}")
        if given - allowed:
            raise ValueError(f"{self.kind} takes no {', '.join(sorted(given - allowed))}")
        if self.kind == "limit" and (self.max is None) == (self.min is None):
            raise ValueError("limit needs exactly one of max and min")
        if self.kind == "flag" and not str(self.name).startswith("-"):
            raise ValueError(f"flag name {self.name!r} does not start with a dash")
        if self.field is not None and self.field.partition(".")[0] not in ("option", "resolved"):
            raise ValueError(f"{self.kind} may set option.* and resolved.*, not {self.field}")
        return self

    def references(self) -> Iterator[str]:
        """Yield every field that the effect names or reads."""
        if self.field is not None:
            yield self.field
        for text in (self.value, self.max, self.min):
            if isinstance(text, str):
                yield from REFERENCE.findall(text)


class Applies(Model):
    """Where the fact was established; ``None`` restricts nothing.

    ``versions`` are upstream releases. A fork numbers its builds in its own way, so the specifier
    is not tested there; ``fork`` says whether the rule speaks of forks at all.
    """

    engine: Literal["vllm", "llama.cpp", "sglang"] | None = None
    versions: str = ""
    fork: bool | None = None
    checked_to: str | None = None
    """Newest release on which the fact was looked up; an observed fact is only warned of later."""

    @field_validator("versions")
    @classmethod
    def _specifier(cls, text: str) -> str:
        try:
            SpecifierSet(text)
        except InvalidSpecifier:
            raise ValueError(f"{text!r} is not a version specifier such as '>=0.20.0,<0.28'") from (
                None
            )
        return text

    @field_validator("checked_to")
    @classmethod
    def _version(cls, text: str | None) -> str | None:
        if text is not None and parse_version(text) is None:
            raise ValueError(f"{text!r} is not a version")
        return text


class Judgement(Model):
    """How ``audit`` reports a command in which the rule fires.

    Several rules may report one fault: ``id`` is then the fault's name, else it is the rule's.
    """

    id: str | None = None
    severity: Literal["error", "warning", "info"]
    outcome: (
        Literal["fails_at_start", "fails_under_load", "degraded", "insecure", "wasteful"] | None
    ) = None
    """What becomes of the command; ``None`` leaves it working."""


class Example(Model):
    """Facts that make the rule fire, or do not; examples are tests."""

    facts: dict[str, Scalar]
    fires: bool
    note: str = ""


class Rule(Item):
    """One fact with everything needed to apply, explain and test it."""

    title: str
    pass_: Pass = ModelField(alias="pass")
    severity: Literal["reject", "require", "prefer", "warn"]
    applies: Applies = Applies()
    when: dict[str, Any]
    effects: tuple[Effect, ...] = ModelField(min_length=1)
    because: str
    sources: tuple[str, ...] = ModelField(min_length=1)
    certainty: Literal["observed", "documented", "computed"]
    about: str
    """What a reader sees in his command: a flag, a variable, the image, memory."""
    fix: str
    missed_by: str = ""
    would_return: str = ""
    finding: Judgement | None = None
    overrides: tuple[str, ...] = ()
    """Rules whose effects are dropped when this one fires: the special case beats the general."""
    see_also: tuple[str, ...] = ()
    examples: tuple[Example, ...]

    @model_validator(mode="after")
    def _sound(self) -> Self:
        for field, condition in self.when.items():
            self._check_field(field)
            for _operator, operand in conditions_of(condition):
                for value in operand if isinstance(operand, list) else [operand]:
                    self._check_operand(field, _operator, value)
        for effect in self.effects:
            for field in effect.references():
                self._check_field(field, reading=field != effect.field)
        for text in (self.because, self.missed_by, self.would_return, self.about, self.fix):
            for field in REFERENCE.findall(text):
                self._check_field(field, reading=False)
        kinds = {effect.kind for effect in self.effects}
        if (self.severity == "reject") != ("reject" in kinds):
            raise ValueError("severity reject and effect reject go together")
        fires = [example.fires for example in self.examples]
        if True not in fires or False not in fires:
            raise ValueError("needs an example that triggers the rule and one that does not")
        for example in self.examples:
            for field in example.facts:
                self._check_field(field, reading=False)
        return self

    def _check_field(self, field: str, *, reading: bool = True) -> None:
        if find_field(field) is None:
            near = nearest_field(field)
            raise ValueError(f"unknown field {field}" + (f"; did you mean {near}?" if near else ""))
        if reading and not readable(self.pass_, field):
            raise ValueError(f"pass {self.pass_} may not read {field}")

    def _check_operand(self, field: str, operator: str, value: Any) -> None:
        spec = find_field(field)
        assert spec is not None
        if isinstance(value, str) and (whole := _WHOLE.match(value)):
            self._check_field(whole[1])
            return
        number = isinstance(value, int | float) and not isinstance(value, bool)
        wanted = {
            FieldType.NUMBER: number,
            FieldType.BOOLEAN: isinstance(value, bool),
            FieldType.VERSION: isinstance(value, str)
            and (operator == "matches" or parse_version(value) is not None),
            FieldType.TEXT: isinstance(value, str),
            FieldType.CHOICE: isinstance(value, str)
            and (operator == "matches" or value in spec.choices),
        }[spec.type]
        if not wanted:
            allowed = f" ({', '.join(spec.choices)})" if spec.choices else ""
            raise ValueError(
                f"{field} is a {spec.type}{allowed}; {value!r} cannot be compared to it"
            )
        if operator in _ORDER and spec.type not in (FieldType.NUMBER, FieldType.VERSION):
            raise ValueError(f"{field} is a {spec.type}; {operator} needs a number or a version")
        if operator == "matches":
            try:
                re.compile(value)
            except re.error as problem:
                raise ValueError(f"{field}: {value!r} is not a valid pattern: {problem}") from None


def conditions_of(condition: Any) -> list[tuple[str, Any]]:
    """Return ``(operator, operand)`` pairs of one field's condition.

    Raises:
        ValueError: an unknown operator, or an operand of the wrong shape.
    """
    if isinstance(condition, list):
        return [("in", condition)]
    if not isinstance(condition, Mapping):
        return [("eq", condition)]
    if not condition:
        raise ValueError("the condition is empty")
    for operator, operand in condition.items():
        if operator not in _OPERATORS:
            raise ValueError(f"unknown operator {operator}; known: {', '.join(_OPERATORS)}")
        if (operator in ("in", "not_in")) != isinstance(operand, list):
            raise ValueError(
                f"{operator} takes {'a list' if operator in ('in', 'not_in') else 'one value'}"
            )
    return list(condition.items())


def show(value: FactValue | None) -> str:
    """Return a fact as text: three digits where it is no whole number, booleans as yes and no."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() or abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def fill(text: str, facts: Mapping[str, FactValue]) -> str:
    """Return ``text`` with every field reference replaced by its fact, ``unknown`` if not known."""
    if "{" not in text:
        return text
    return REFERENCE.sub(lambda match: show(lookup(facts, match[1])), text)


def resolve_value(value: Scalar | None, facts: Mapping[str, FactValue]) -> Scalar | None:
    """Return the value with references filled; a value that is one reference keeps its type.

    Raises:
        LookupError: a referenced fact is not known.
    """
    if not isinstance(value, str) or "{" not in value:
        return value
    whole = _WHOLE.match(value)
    names = [whole[1]] if whole else REFERENCE.findall(value)
    for name in names:
        if lookup(facts, name) is None:
            raise LookupError(name)
    return lookup(facts, whole[1]) if whole else fill(value, facts)
