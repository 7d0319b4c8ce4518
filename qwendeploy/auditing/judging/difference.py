"""The differences between an audited launch and our plan for its machine."""

from __future__ import annotations

from qwendeploy.auditing.judging.figures_of import AuditLoad, workload_of
from qwendeploy.auditing.judging.judge import Judged
from qwendeploy.documents import Option, Plan, Predictions
from qwendeploy.documents.audit import AuditChange
from qwendeploy.documents.request import Request
from qwendeploy.errors import QwendeployError
from qwendeploy.figures import Figure, weakest

_FIELDS = (
    ("image", "image"),
    ("checkpoint", "checkpoint"),
    ("kv_cache_dtype", "--kv-cache-dtype"),
    ("spec_method", "draft method"),
    ("spec_tokens", "draft tokens"),
    ("tp", "--tensor-parallel-size"),
    ("replicas", "replicas"),
    ("prefix_cache", "prefix caching"),
    ("gpu_memory_utilization", "--gpu-memory-utilization"),
    ("max_num_seqs", "--max-num-seqs"),
    ("max_num_batched_tokens", "--max-num-batched-tokens"),
)
_RULE_OF_FIELD = {
    "kv_cache_dtype": "--kv-cache-dtype",
    "prefix_cache": "--no-enable-prefix-caching",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
}


def changes_to_plan(
    judged: Judged, option: Option, point: AuditLoad, predictions: Predictions
) -> tuple[AuditChange, ...]:
    """Return what our plan changes; empty if there is no plan for the machine.

    The first entry has the gain in the decode rate of all changes together; each further entry
    is one change with its reason.
    """
    machine = judged.understood.context.machine
    if machine is None or judged.understood.context.vendor != "nvidia":
        return ()
    plan = _plan(judged, option, point)
    if plan is None:
        return ()
    changes = [_overall(option, plan, predictions)]
    for name, shown in _FIELDS:
        mine, theirs = getattr(plan.option, name), getattr(option, name)
        if mine == theirs or mine is None or (name == "max_num_seqs" and point.assumed):
            continue
        changes.append(
            AuditChange(
                what=shown,
                current=_text(theirs),
                proposed=_text(mine),
                why=_why(plan, name),
            )
        )
    return tuple(changes) if len(changes) > 1 else ()


def _plan(judged: Judged, option: Option, point: AuditLoad) -> Plan | None:
    from qwendeploy.planning.recommend import recommend

    machine = judged.understood.context.machine
    assert machine is not None
    vision = not judged.understood.value("text_only")
    workload = workload_of(point, option, vision=vision).model_copy(update={"prefix_cache": "auto"})
    try:
        return recommend(machine, workload, Request())
    except QwendeployError:
        return None


def _overall(option: Option, plan: Plan, predictions: Predictions) -> AuditChange:
    ours = plan.predictions.aggregate_decode_tps
    theirs = predictions.aggregate_decode_tps
    gain = _ratio(ours, theirs) if ours is not None and theirs is not None else None
    reason = plan.reasons[0] if plan.reasons else "our plan for this machine"
    return AuditChange(
        what="overall",
        current=_label(option),
        proposed=_label(plan.option),
        why=reason,
        gain=gain,
    )


def _ratio(ours: Figure, theirs: Figure) -> Figure:
    """Return the ratio of two rates; its band spans the extremes of both bands."""
    return Figure(
        value=ours.value / theirs.value,
        low=ours.low / theirs.high,
        high=ours.high / theirs.low,
        unit="×",
        kind=weakest(ours.kind, theirs.kind),
        source=f"{ours.source}; {theirs.source}",
        n=min(ours.n, theirs.n),
    )


def _label(option: Option) -> str:
    from qwendeploy.planning.labels import option_label

    return option_label(option)


def _text(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _why(plan: Plan, name: str) -> str:
    flag = _RULE_OF_FIELD.get(name)
    for setting in plan.flags:
        if flag is not None and setting.name == flag:
            return setting.reason
    return "part of the plan with the best rate at this operating point"
