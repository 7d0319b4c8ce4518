"""Audits: foreign launches judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from qwendeploy.auditing.request import AuditRequest
    from qwendeploy.auditing.run import CorrectedCommand
    from qwendeploy.auditing.score import AuditScore
    from qwendeploy.documents.audit import AuditDocument


def audit(request: AuditRequest) -> AuditDocument:
    """Return what a foreign launch will do: findings, memory, rates, difference to our plan.

    Raises:
        UserError: the source or the machine's description cannot be read.
        EnvironmentProblem: Docker does not answer or knows no such container.
    """
    from qwendeploy.auditing import run

    return run.audit(request)


def audit_fix(request: AuditRequest) -> CorrectedCommand:
    """Return the launch with every finding corrected that has one plain correction.

    Raises as ``audit``.
    """
    from qwendeploy.auditing import run

    return run.audit_fix(request)


def audit_score(folder: Path | None = None) -> AuditScore:
    """Return recall and false alarms of ``audit`` over a folder of cases with known outcome.

    Without a folder the cases of the checkout are scored.

    Raises:
        UserError: the folder holds no case, or a case cannot be read.
    """
    from qwendeploy.auditing import score

    return score.score_folder(folder or score.checkout_cases())
