"""Run and verdict: what was measured and what it says about the plan."""

from __future__ import annotations

from typing import Any, Literal

from qwendeploy.documents.base import Model
from qwendeploy.figures import Figure

Outcome = Literal["confirmed", "refuted", "inconclusive"]


class Cause(Model):
    """A likely cause of a deviation: the signature, the evidence, what to do."""

    id: str
    text: str
    evidence: str
    fix: str


class Verdict(Model):
    """One quantity: predicted, measured, outcome."""

    quantity: str
    predicted: Figure | None
    measured: Figure | None
    outcome: Outcome
    reason: str = ""
    causes: tuple[Cause, ...] = ()


class Gate(Model):
    """A functional check: passed, failed, or not run with the reason."""

    id: str
    outcome: Literal["passed", "failed", "not_run"]
    reason: str = ""
    transcript: tuple[dict[str, Any], ...] = ()
