"""A plan keeps its id when a later version of the document knows a field more."""

from __future__ import annotations

from plan_samples import sample_plan

from qwendeploy.documents import OperatingPoint, Option
from qwendeploy.documents.identity import plan_id


class LaterOption(Option):
    """The option of a version to come."""

    lora_rank: int | None = None


class LaterPoint(OperatingPoint):
    """The operating point of a version to come."""

    turns: int = 1


def test_fields_at_their_defaults_leave_the_id_as_it_was() -> None:
    plan = sample_plan()
    option, point = plan.option, plan.operating_point
    later_option = LaterOption(**option.model_dump())
    later_point = LaterPoint(**point.model_dump())
    before = plan_id(option, plan.flags, plan.env, point)

    assert plan_id(later_option, plan.flags, plan.env, later_point) == before
    other = later_option.model_copy(update={"lora_rank": 16})
    assert plan_id(other, plan.flags, plan.env, later_point) != before
    turned = later_point.model_copy(update={"turns": 2})
    assert plan_id(later_option, plan.flags, plan.env, turned) != before
