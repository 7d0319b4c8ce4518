"""Findings: what is wrong or notable in a launch, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from qwendeploy.auditing.reading.text import Place
from qwendeploy.auditing.understanding.understand import Understood

Severity = Literal["error", "warning", "info"]
Outcome = Literal["works", "fails_at_start", "fails_under_load", "degraded", "insecure", "wasteful"]
OUTCOME_ORDER: tuple[Outcome, ...] = (
    "fails_at_start",
    "fails_under_load",
    "insecure",
    "degraded",
    "wasteful",
    "works",
)
"""Worst first: what stops the server hides everything that would come later."""
SEVERITY_ORDER: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One thing to know; ``outcome`` is what it alone would make of the launch."""

    id: str
    severity: Severity
    about: str
    place: Place
    text: str
    fix: str
    outcome: Outcome | None = None
    rule: str | None = None


def worst_outcome(findings: Iterable[Finding]) -> Outcome:
    """Return what becomes of the launch."""
    told = {finding.outcome for finding in findings if finding.outcome is not None}
    return next((outcome for outcome in OUTCOME_ORDER if outcome in told), "works")


def told_flag(understood: Understood, name: str, flag: str) -> str:
    known = understood.values.get(name)
    if known is None or not known.stated:
        return f"{flag} not given"
    return f"{flag} {known.value}"
