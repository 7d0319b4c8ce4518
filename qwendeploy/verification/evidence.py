"""What a run shows, as the signatures of causes look at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qwendeploy.documents import Cause, Plan, RunDocument, Step
from qwendeploy.verification.drafting import Acceptance, acceptance_of

RESTARTED = "the server restarted while it was measured"
"""Begin of the warning of a run whose server is not the one that it began with."""


@dataclass(frozen=True)
class Evidence:
    """What a cause may look at."""

    run: RunDocument
    plan: Plan | None

    @property
    def decode(self) -> Step | None:
        """The step that measured the operating point."""
        steps = [step for step in self.run.steps if step.shape == "decode"]
        return steps[0] if steps else None

    @property
    def accepted(self) -> Acceptance | None:
        """The drafts accepted in that step, beside what the plan assumes."""
        step, plan = self.decode, self.plan
        return acceptance_of(plan, step.figures) if step is not None and plan is not None else None

    def gpu(self, name: str) -> list[float]:
        """Return all readings of one telemetry value."""
        return [
            float(value)
            for point in self.run.timeline
            for card in point.gpu
            if isinstance(value := card.get(name), int | float)
        ]


Signature = Callable[[Evidence], "Cause | None"]


def warned(run: RunDocument, begin: str) -> str:
    """Return the warning of a run that begins so, empty without one."""
    return next((text for text in run.warnings if text.startswith(begin)), "")


def ended_early(run: RunDocument) -> bool:
    """Whether too few windows are left in which no stream of ours ended."""
    for step in run.steps:
        ended = [window.turnover for window in step.windows]
        if step.shape == "decode" and any(ended) and ended.count(False) < 2:
            return True
    return False
