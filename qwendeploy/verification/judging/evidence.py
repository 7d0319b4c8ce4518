"""The parts of a run that the cause checks read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qwendeploy.documents import Cause, Plan, RunDocument, Step
from qwendeploy.verification.judging.drafting import Acceptance, acceptance_of

RESTARTED = "the server restarted during the measurement"
"""Prefix of the warning of a run in which the server restarted."""
FEW_WINDOWS = 2
"""Windows that an interval needs."""


@dataclass(frozen=True)
class Evidence:
    """What a cause may look at."""

    run: RunDocument
    plan: Plan | None

    @property
    def decode(self) -> Step | None:
        """The step that measured the operating point, of several boots the first."""
        return next(iter(points_of(self.run)), None)

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


CauseCheck = Callable[[Evidence], "Cause | None"]


def warned(run: RunDocument, begin: str) -> str:
    """Return the warning of a run that begins so, empty without one."""
    return next((text for text in run.warnings if text.startswith(begin)), "")


def points_of(run: RunDocument) -> tuple[Step, ...]:
    """Return the decode loads at the operating point, one a boot."""
    here = (run.operating_point.get("concurrency"), run.operating_point.get("context"))
    decodes = [step for step in run.steps if step.shape == "decode"]
    at = [step for step in decodes if (step.concurrency, step.context) == here]
    return tuple(at or decodes[:1])


def ended_early(step: Step) -> bool:
    """Whether too few windows are left in which no stream of ours ended."""
    ended = [window.turnover for window in step.windows]
    return step.shape == "decode" and any(ended) and ended.count(False) < FEW_WINDOWS


def beside_others(step: Step) -> bool:
    """Whether too few windows are left in which the server worked for this client alone."""
    windows = [window for window in step.windows if not window.turnover]
    alone = sum(not window.others for window in windows)
    return step.shape == "decode" and alone < len(windows) and alone < FEW_WINDOWS
