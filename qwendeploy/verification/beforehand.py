"""Limits of a run, reported before the measurement starts."""

from __future__ import annotations

import contextlib
import resource

from qwendeploy.documents import Plan
from qwendeploy.documents.identity import edits
from qwendeploy.errors import EnvironmentProblem
from qwendeploy.figures import WIDE
from qwendeploy.verification.judging.verdict import predictions_at
from qwendeploy.verification.settings import Settings, operating_point


def notices(plan: Plan, settings: Settings) -> tuple[str, ...]:
    """Return what was edited in the plan, and the verdicts that no measurement can reach."""
    return (*edits(plan), *_out_of_reach(plan, settings))


def _out_of_reach(plan: Plan, settings: Settings) -> tuple[str, ...]:
    point = operating_point(plan, settings)
    predictions, elsewhere = predictions_at(plan, point.as_dict())
    rate = predictions.aggregate_decode_tps
    if rate is None:
        why = elsewhere or predictions.reasons.get("aggregate_decode_tps", "no reason given")
        return (f"the decode rate is measured but not judged: no prediction, {why}",)
    if rate.half_width > WIDE:
        return (
            f"the plan's decode rate has a band of ±{rate.half_width:.0%}, wider than"
            f" ±{WIDE:.0%}: this run can refute it, not confirm it",
        )
    return ()


SPARE_FILES = 128
"""Open files of a run beside one connection a stream: modules, the run's own, plain pages."""


def make_room(streams: int) -> None:
    """Allow this process as many open files as streams need.

    Raises:
        EnvironmentProblem: the host does not allow that many.
    """
    needed = streams + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < needed:
        raise EnvironmentProblem(
            f"{streams} concurrent requests need {needed} open files, this host allows {hard}",
            where="ulimit -n",
            hint="lower --c, or raise the limit",
        )
