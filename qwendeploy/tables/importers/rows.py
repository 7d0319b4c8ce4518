"""Points and what the user states of machine and server become rows of one's own table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from qwendeploy.documents.plan import Plan
from qwendeploy.documents.run import RunDocument
from qwendeploy.errors import UserError
from qwendeploy.family.names import model_of
from qwendeploy.tables.checkpoints import checkpoint_rows, find_checkpoint
from qwendeploy.tables.decode import Contexts, DecodeRow, Origin, Status
from qwendeploy.tables.gpus import gpus
from qwendeploy.tables.images import find_image
from qwendeploy.tables.importers.points import Point

BUSY = 0.5
"""Share of time in use from which a card is taken to serve: decoding keeps it busy throughout."""

_OF_OPTION = (
    *("image", "engine", "engine_version", "tp", "checkpoint", "quant", "kv_cache_dtype"),
    *("spec_method", "spec_tokens", "gpu_memory_utilization", "max_model_len", "max_num_seqs"),
    *("max_num_batched_tokens", "capture_size", "prefix_cache"),
)


@dataclass(frozen=True, slots=True)
class Statement:
    """What the user states; ``None`` is not stated and stays an empty cell."""

    gpu: str
    gpu_count: int = 1
    gpu_vram_gib: float | None = None
    interconnect: Literal["nvlink", "pcie", "unified", "none"] | None = None
    driver: str | None = None
    image: str | None = None
    engine: str = "vllm"
    engine_version: str | None = None
    tp: int | None = None
    checkpoint: str | None = None
    quant: str | None = None
    kv_cache_dtype: str | None = None
    spec_method: str | None = None
    spec_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    capture_size: int | None = None
    prefix_cache: bool | None = None
    vision: bool | None = None
    """Whether the server kept its image input."""
    content: str | None = None
    contexts: Contexts | None = None
    concurrency: int | None = None
    session: str | None = None
    plan_id: str | None = None
    """Of the plan that was stated."""


_AS_STATED = (
    *("image", "engine", "gpu_count", "gpu_vram_gib", "driver", "kv_cache_dtype", "spec_method"),
    *("gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
    *("capture_size", "prefix_cache", "content"),
)
"""Columns that are what was stated."""
_AS_MEASURED = (
    *("date", "running", "context", "output_tokens", "rate_basis", "std_tps", "aggregate_tps"),
    *("per_user_tps", "ttft_ms", "ttft_p99_ms", "kv_usage", "note"),
)
"""Columns that are what a point says."""


def state(
    stated: Mapping[str, Any], plan: Plan | None = None, run: RunDocument | None = None
) -> Statement:
    """Return the statement of named settings; what they leave open is the plan's, if given.

    Without a plan a run that watched one GPU beside its server tells that one.

    Raises:
        UserError: no GPU is stated, and neither plan nor run knows it.
    """
    known = _of_plan(plan) if plan else _of_run(run) if run else {}
    facts = {**known, **stated}
    if facts.get("gpu") is None:
        raise UserError("the GPU is not stated", where="--gpu", hint=_how_to_state(run))
    return Statement(**facts)


def _of_run(run: RunDocument) -> dict[str, Any]:
    """Return the GPU that a run saw at work: one beside the client that was busy meanwhile.

    A tunnel makes a remote server look local; the card here is then idle.
    """
    readings = [gpu.get("utilization") for point in run.timeline for gpu in point.gpu]
    busy = max((share for share in readings if isinstance(share, float)), default=0.0)
    return {"gpu": run.gpus[0]} if len(run.gpus) == 1 and busy >= BUSY else {}


def _how_to_state(run: RunDocument | None) -> str:
    """Return what to do about an unknown GPU."""
    if run is None:
        return "a benchmark's file does not know it"
    why = "this run was made without a plan and saw no GPU at work beside its server"
    if run.plan_id and run.plan is None:
        why = f"this run keeps no copy of its plan {run.plan_id}"
    elif len(run.gpus) > 1:
        why = f"this run saw {len(run.gpus)} GPUs and no plan says which of them served"
    return f"{why}: give --plan PLAN, or --gpu NAME and --gpus N"


def _of_plan(plan: Plan) -> dict[str, Any]:
    option, machine = plan.option, plan.machine
    chosen = plan.gpu_indices or machine.chosen_gpu_indices
    cards = [gpu for gpu in machine.gpus if not chosen or gpu.index in chosen]
    joined = machine.interconnect
    facts = {
        "gpu": cards[0].model or cards[0].name if cards else None,
        "gpu_count": len(cards) or None,
        "interconnect": None if joined == "unknown" else joined,
        "driver": machine.driver,
        "contexts": plan.operating_point.contexts,
        "content": plan.operating_point.content.value,
        "plan_id": plan.plan_id,
        "vision": all(flag.name != "--language-model-only" for flag in plan.flags),
    }
    facts |= {name: getattr(option, name) for name in _OF_OPTION}
    return {name: value for name, value in facts.items() if value is not None}


def make_rows(
    points: Sequence[Point], stated: Statement, *, import_id: str, origin: Origin
) -> tuple[DecodeRow, ...]:
    """Return one row per point, ids and source under ``import_id``.

    Raises:
        UserError: an unknown GPU, another model, a quant that nothing tells, or contradictory
            settings.
    """
    server = _server(stated, points[0].model)
    return tuple(
        _row(point, stated, server, import_id, origin, number)
        for number, point in enumerate(points, 1)
    )


def _server(stated: Statement, model: str | None) -> dict[str, Any]:
    """Return the columns that every row shares: machine, weights and settings of the server."""
    gpu = _gpu(stated.gpu)
    tp = stated.tp if stated.tp is not None else (1 if stated.gpu_count == 1 else None)
    if tp is not None and tp > stated.gpu_count:
        raise UserError(f"{tp} is above the {stated.gpu_count} GPUs", where="--tp")
    checkpoint = _checkpoint(stated, model)
    image = find_image(stated.image) if stated.image else None
    return {
        **{name: getattr(stated, name) for name in _AS_STATED},
        "fork": image.fork if image else None,
        "gpu": gpu,
        "interconnect": stated.interconnect or ("none" if stated.gpu_count == 1 else None),
        "tp": tp,
        "checkpoint": checkpoint,
        "quant": _quant(stated, checkpoint),
        "spec_tokens": 0 if stated.spec_method == "none" else stated.spec_tokens,
    }


def _row(
    point: Point,
    stated: Statement,
    server: Mapping[str, Any],
    import_id: str,
    origin: Origin,
    number: int,
) -> DecodeRow:
    concurrency = point.concurrency or stated.concurrency
    if concurrency is None and point.fault is None:
        raise UserError(
            "the file does not say how many requests were in flight",
            where=point.name,
            hint="state --concurrency",
        )
    status, reason = _status(point, concurrency)
    server = {**server, **_of_program(point)}
    where = f"c{concurrency or 'x'}" + (f"_ctx{point.context}" if point.context is not None else "")
    return DecodeRow(
        **server,
        **{name: getattr(point, name) for name in _AS_MEASURED},
        row_id=f"{import_id}/{where}/{number}",
        status=status,
        reason=reason,
        evidence=None,
        source=f"{import_id} {point.name}",
        origin=origin,
        experiment=None,
        config=None,
        session=stated.session or import_id,
        engine_version=_engine_version(point, stated),
        contexts=_contexts(point, stated, origin),
        concurrency=concurrency,
        repetition=None,
        n=1,
        itl_ms=point.tpot_ms,
        accept_rate=_acceptance(point, stated),
    )


def _of_program(point: Point) -> dict[str, Any]:
    """Return the columns that the measuring program decides, whatever was stated."""
    names = ("engine", "spec_method", "kv_cache_dtype")
    columns = {name: value for name in names if (value := getattr(point, name)) is not None}
    return {**columns, "spec_tokens": 0} if columns.get("spec_method") == "none" else columns


def _engine_version(point: Point, stated: Statement) -> str | None:
    image = find_image(stated.image) if stated.image else None
    in_table = image.engine_version if image else None
    return stated.engine_version or point.engine_version or in_table


def _contexts(point: Point, stated: Statement, origin: Origin) -> Contexts | None:
    """Return how requests shared their context; a measurement of it outranks what was stated.

    A foreign file does not measure it: there it only fills what is not stated.
    """
    measured = origin == "own" or stated.contexts is None
    if measured and point.contexts_shared is not None:
        return "shared" if point.contexts_shared else "separate"
    return stated.contexts


def _status(point: Point, concurrency: int | None) -> tuple[Status, str | None]:
    if point.fault:
        return "excluded", point.fault
    if point.capacity_limited:
        real = "real count not stated" if point.running is None else f"{point.running} ran"
        return "capacity-limited", f"the harness marked it as not running {concurrency}; {real}"
    return "ok", None


def _acceptance(point: Point, stated: Statement) -> float | None:
    if point.accept_rate is not None:
        return point.accept_rate
    if point.acceptance_length is None or not stated.spec_tokens:
        return None
    rate = (point.acceptance_length - 1) / stated.spec_tokens
    return rate if 0 <= rate <= 1 else None


def _gpu(name: str) -> str:
    found = gpus().find(name)
    if found is None:
        near = gpus().near(name)
        raise UserError(
            f"unknown GPU {name!r}",
            where="--gpu",
            hint=f"nearest: {', '.join(near)}" if near else None,
        )
    return found.name


def _checkpoint(stated: Statement, served: str | None) -> str | None:
    """Return the checkpoint stated, or the served model if that is a public name of this model.

    A path of this machine never enters a row.
    """
    if stated.checkpoint is not None:
        return stated.checkpoint
    if served is None:
        return None
    if served.startswith(("/", "~", ".")) or "\\" in served or re.match(r"[A-Za-z]:", served):
        served = re.split(r"[/\\]", served.rstrip("/\\"))[-1]
    if model_of(served) is not None:
        known = next(
            (row.name for row in checkpoint_rows() if row.name.split("/")[-1] == served), None
        )
        return known or served
    if "/" in served:
        raise UserError(
            f"the file is about {served}, not Qwen3.6-27B",
            hint="state --checkpoint if that name served it",
        )
    return None


def _quant(stated: Statement, checkpoint: str | None) -> str:
    if stated.quant is not None:
        return stated.quant
    row = find_checkpoint(checkpoint) if checkpoint else None
    if row is None:
        raise UserError(
            "the file does not say which weights ran",
            where="--quant",
            hint="state --quant, or --checkpoint with a name of 'data show checkpoints'",
        )
    return row.quant
