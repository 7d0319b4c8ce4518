"""Plans: choosing one, predicting it, saying why it is as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from qwendeploy.documents import Machine, Plan, PredictDocument, Workload
    from qwendeploy.documents.request import Request
    from qwendeploy.reporting.explanation import Explanation


def recommend(machine: Machine, workload: Workload, request: Request | None = None) -> Plan:
    """Return the plan for a machine and a workload, sealed.

    Raises:
        NoPlan: no option is feasible, or the machine cannot serve; carries the trace.
        UserError: the settings contradict each other or name something unknown.
    """
    from qwendeploy.documents.identity import seal
    from qwendeploy.planning.recommend import recommend as planned

    plan = planned(machine, workload, request)
    return plan.model_copy(update={"seal": seal(plan)})


def predict(
    machine: Machine,
    workload: Workload,
    request: Request,
    concurrency: Sequence[int],
    context: Sequence[int],
) -> PredictDocument:
    """Return the figures of the option that the request states, over a grid.

    Raises:
        NoPlan: the option cannot run on this machine; names the rule.
        UserError: too little is stated, or something unknown.
    """
    from qwendeploy.planning import predict as predicting

    grid = predicting.Grid(concurrency, context)
    return predicting.predict(machine, workload, request, grid)


def predict_plan(
    plan_file: Path, concurrency: Sequence[int] = (), context: Sequence[int] = ()
) -> PredictDocument:
    """Return the figures of a stored plan's option over a grid. Raises as ``predict``.

    What of the grid is left empty is the plan's: its requests in flight, its typical and its
    longest context.
    """
    from qwendeploy.documents.files import read_plan
    from qwendeploy.planning import predict as predicting

    plan = read_plan(plan_file)
    point = plan.operating_point
    concurrency = concurrency or (point.concurrency,)
    context = context or tuple(sorted({point.context, plan.workload.max_context}))
    return predicting.predict_plan(plan, predicting.Grid(concurrency, context))


def explain(name: str | None, *, plan_file: Path | None = None) -> tuple[Explanation, ...]:
    """Return what a name means, or why a plan is as it is (``name`` then narrows it).

    Raises:
        UserError: nothing is known under the name, or the plan cannot be read.
    """
    from qwendeploy.reporting import explanation

    if plan_file is None:
        return explanation.explain(name or "")
    from qwendeploy.documents.files import read_plan

    return explanation.explain_plan(read_plan(plan_file), name)


def explain_topics() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the names that ``explain`` answers, by group."""
    from qwendeploy.reporting.explanation import topic_groups

    return topic_groups()
