"""Findings: problems of a launch, and the outcome they cause."""

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
"""Worst first: a failed start hides every later problem."""
SEVERITY_ORDER: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One problem or note; ``outcome`` is the launch's outcome if this were the only problem."""

    id: str
    severity: Severity
    about: str
    place: Place
    text: str
    fix: str
    outcome: Outcome | None = None
    rule: str | None = None


def worst_outcome(findings: Iterable[Finding]) -> Outcome:
    """Return the worst outcome among the findings."""
    found = {finding.outcome for finding in findings if finding.outcome is not None}
    return next((outcome for outcome in OUTCOME_ORDER if outcome in found), "works")


def stated_flag(understood: Understood, name: str, flag: str) -> str:
    known = understood.values.get(name)
    if known is None or not known.stated:
        return f"{flag} not set"
    return f"{flag} {known.value}"
