"""The parts that an explanation consists of."""

from __future__ import annotations

from qwendeploy.documents.base import Model


class Fact(Model):
    """One line of an explanation."""

    label: str
    value: str


class Explanation(Model):
    """What one name means."""

    topic: str
    kind: str
    title: str
    text: tuple[str, ...]
    facts: tuple[Fact, ...] = ()
    sources: tuple[str, ...] = ()
    see_also: tuple[str, ...] = ()
