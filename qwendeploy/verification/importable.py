"""Whether a run may stand for a plan's option in the user's own table."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from qwendeploy.documents import RunDocument, VerifyReport
from qwendeploy.documents.files import read_plan
from qwendeploy.errors import UserError
from qwendeploy.verification.expected import decisive_differences


def refuse_other_server(run_file: Path, plan_file: Path) -> None:
    """Refuse a run whose server told that it ran something else than the plan.

    Files that are no run of this program are left to their own reader.

    Raises:
        UserError: the server did not run the plan, or the plan cannot be read.
    """
    run = _run_of(run_file)
    if run is None or run.server is None:
        return
    differences = decisive_differences(read_plan(plan_file), run.server)
    if differences:
        text = ", ".join(
            f"{what} {applied} instead of {asked}" for what, asked, applied in differences
        )
        raise UserError(
            f"the server did not run the plan: {text}",
            where=str(run_file),
            hint="state what ran (--gpu, --checkpoint, …) instead of --plan",
        )


def _run_of(path: Path) -> RunDocument | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
        if document.get("schema") == "qwendeploy/verify":
            return VerifyReport.model_validate(document).run
        return RunDocument.model_validate(document)
    except (OSError, ValueError, AttributeError, ValidationError):
        return None
