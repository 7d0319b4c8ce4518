"""What a plan froze, machine and predictions, is told to be edited where it was."""

from __future__ import annotations

from typing import Any

import pytest
from plan_samples import sample_plan

from qwendeploy import api
from qwendeploy.documents import Plan, Workload
from qwendeploy.documents.files import dump_document, read_plan
from qwendeploy.documents.identity import PREDICTIONS_EDITED, edits
from qwendeploy.figures import Kind
from qwendeploy.verification.beforehand import notices
from qwendeploy.verification.settings import Settings


@pytest.fixture(scope="module")
def made() -> Plan:
    machine = api.resolve_machine(gpu="RTX PRO 6000 Blackwell Workstation", gpus=2)
    return api.recommend(machine, Workload(concurrency=32, max_context=262144))


def edited(plan: Plan, part: str, **changes: Any) -> Plan:
    if part == "machine":
        card = plan.machine.gpus[0].model_copy(update=changes)
        gpus = (card, *plan.machine.gpus[1:])
        return plan.model_copy(update={part: plan.machine.model_copy(update={"gpus": gpus})})
    rate = plan.predictions.aggregate_decode_tps
    assert rate is not None
    other = plan.predictions.model_copy(
        update={"aggregate_decode_tps": rate.model_copy(update=changes)}
    )
    return plan.model_copy(update={part: other})


def test_a_stored_plan_is_read_back_with_its_seal_whole(made: Plan, tmp_path: Any) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(dump_document(made))
    assert made.seal is not None
    assert edits(read_plan(path)) == ()


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("machine", {"memory_mib": 1}),
        ("predictions", {"value": 1400.0}),
        ("predictions", {"low": 1.0}),
        ("predictions", {"kind": Kind.MEASURED_HERE}),
    ],
    ids=str,
)
def test_an_edit_is_told(made: Plan, part: str, changes: dict[str, Any]) -> None:
    plan = edited(made, part, **changes)
    assert edits(plan) == (PREDICTIONS_EDITED,)
    assert PREDICTIONS_EDITED in notices(plan, Settings())


def test_a_plan_without_seal_passes() -> None:
    plan = sample_plan()
    assert plan.seal is None
    assert PREDICTIONS_EDITED not in edits(edited(plan, "predictions", low=1.0))
