"""Whether a run may be imported into the user's table for a plan's option."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from qwendeploy.documents import Plan, RunDocument, VerifyReport
from qwendeploy.errors import UserError
from qwendeploy.verification.expected import decisive_differences


def plan_of_run(
    run_file: Path, run: RunDocument | None, stated: Plan | None, *, described: bool
) -> Plan | None:
    """Return the plan that describes a run's server: the one stated, else the run's own.

    ``described`` says that the user states the machine: then a server that ran something else
    than the run's own plan is described by that alone. Without a run of this program the plan is
    the one stated.

    Raises:
        UserError: the server told that it ran something else than the plan.
    """
    plan = stated or (run.plan if run else None)
    if plan is None or run is None or run.server is None:
        return plan
    differences = decisive_differences(plan, run.server)
    if not differences:
        return plan
    if stated is None and described:
        return None
    text = ", ".join(f"{what} {applied} instead of {asked}" for what, asked, applied in differences)
    raise UserError(
        f"the server differs from the plan: {text}",
        where=str(run_file),
        hint="state what ran (--gpu, --checkpoint, …) instead of using the plan",
    )


def run_in(path: Path) -> RunDocument | None:
    """Return the run that a file holds or reports on, ``None`` if it holds none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
        if document.get("schema") == "qwendeploy/verify":
            return VerifyReport.model_validate(document).run
        return RunDocument.model_validate(document)
    except (OSError, ValueError, AttributeError, ValidationError):
        return None
