"""``predict``: figures of one stated option over a grid of concurrency and context, no choosing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from qwendeploy import __version__
from qwendeploy.documents import (
    Cell,
    Machine,
    Option,
    Plan,
    PlanWarning,
    PredictDocument,
    Tool,
    Workload,
)
from qwendeploy.documents.request import Pins, Request
from qwendeploy.errors import NoPlan, UserError
from qwendeploy.evidence.knowledge import Knowledge
from qwendeploy.evidence.memory_view import Load
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.figures import Figure
from qwendeploy.planning.candidate import Candidate, Rejection
from qwendeploy.planning.labels import option_label, shortfall
from qwendeploy.planning.narration.headlines import meant
from qwendeploy.planning.near_miss import nearest_miss
from qwendeploy.planning.options import enumerate_options
from qwendeploy.planning.plan_warnings import rule_warnings
from qwendeploy.planning.predictions import cell
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.recommend import make_scene
from qwendeploy.planning.resolve import resolve
from qwendeploy.planning.scene import Scene
from qwendeploy.planning.survey import rejected
from qwendeploy.planning.unlisted import unlisted_warnings

MEMORY_FIGURES = (
    "kv_pool_blocks",
    "kv_pool_tokens",
    "blocks_per_request",
    "max_full_length_requests",
)


@dataclass(frozen=True)
class Grid:
    """The points to predict: every concurrency at every context."""

    concurrency: Sequence[int]
    context: Sequence[int]


def predict(
    machine: Machine,
    workload: Workload,
    request: Request,
    grid: Grid,
    *,
    knowledge: Knowledge | None = None,
    now: datetime | None = None,
) -> PredictDocument:
    """Return the figures of the option that the pins state.

    What is not stated takes the plain choice: no draft, 16-bit KV, one replica over all GPUs.

    Raises:
        NoPlan: a rule or the memory rules the option out; the message says which and why.
        UserError: too little is stated, or something unknown.
    """
    pins = _filled(request.pins)
    everything = workload.model_copy(
        update={
            "concurrency": max(grid.concurrency),
            "max_context": max(pins.max_model_len or 0, max(grid.context), 1),
        }
    )
    scene = make_scene(machine, everything, replace(request, pins=pins), knowledge)
    if pins.tp is None:
        scene = replace(scene, request=replace(request, pins=_on_all(pins, scene)))
    candidate = only_candidate(scene)
    return _document(candidate, scene, workload, grid, now or datetime.now(UTC))


def predict_plan(
    plan: Plan, grid: Grid, *, knowledge: Knowledge | None = None, now: datetime | None = None
) -> PredictDocument:
    """Return the figures of a plan's option on the plan's machine. Raises as ``predict``."""
    option = plan.option
    workload = plan.workload.model_copy(
        update={
            "prefix_cache": "on" if option.prefix_cache else "off",
            "contexts": plan.operating_point.contexts,
        }
    )
    request = Request(pins=Pins.of(option), listen=plan.listen, port=plan.port, inputs=plan.inputs)
    return predict(plan.machine, workload, request, grid, knowledge=knowledge, now=now)


def _filled(pins: Pins) -> Pins:
    if pins.checkpoint is None and pins.quant is None:
        raise UserError(
            "predict needs an option, at least its weights",
            where="--quant",
            hint="for instance --quant fp8 --spec mtp --spec-tokens 3, or --plan plan.yaml",
        )
    method = pins.spec_method or "none"
    if method != "none" and pins.spec_tokens is None:
        usual = {"mtp": 3, "dflash": 8}.get(method, 3)
        raise UserError(
            "a draft method needs a draft length",
            where="--spec-tokens",
            hint=f"for instance --spec-tokens {usual}",
        )
    return replace(
        pins,
        spec_method=method,
        spec_tokens=pins.spec_tokens or 0,
        kv_cache_dtype=pins.kv_cache_dtype or "bf16",
        replicas=pins.replicas or 1,
    )


def _on_all(pins: Pins, scene: Scene) -> Pins:
    """Return the pins with the largest tensor-parallel size that the GPUs and replicas leave."""
    each = scene.box.count // (pins.replicas or 1)
    return replace(pins, tp=QWEN_27B.largest_tensor_parallel(each))


def only_candidate(scene: Scene) -> Candidate:
    """Return the first option of the pins that can run.

    Raises:
        NoPlan: none can; names the first refusal.
        UserError: the pins match nothing.
    """
    refusals: list[tuple[Option, Rejection]] = []
    for option, result in _resolved(scene):
        if isinstance(result, Candidate):
            return result
        refusals.append((option, result))
    if not refusals:
        raise UserError(
            "no known checkpoint and image match this option",
            hint="see 'qwendeploy data show checkpoints' and 'data show images'",
        )
    trace = tuple(rejected(item, refusal) for item, refusal in refusals)
    nearest = nearest_miss(trace)
    option, first = refusals[trace.index(nearest) if nearest is not None else 0]
    raise NoPlan(
        f"this option cannot run: {first.reason}"
        + (f" ({shortfall(first.missed_by)})" if first.missed_by else ""),
        where=f"{option_label(option)} [{first.rule}]",
        hint=f"feasible with {first.would_return}" if first.would_return else None,
        trace=trace,
    )


def _resolved(scene: Scene) -> Iterator[tuple[Option, Candidate | Rejection]]:
    pins = scene.pins
    if pins.engine == "llama.cpp" or (pins.quant or "").startswith("gguf"):
        from qwendeploy.planning.gguf import gguf_options, resolve_gguf

        for option in gguf_options(scene.box, scene.workload, pins, scene.knowledge):
            yield option, resolve_gguf(option, scene)
        return
    for option in enumerate_options(scene.box, scene.workload, pins, scene.knowledge):
        yield option, resolve(option, scene)


def _document(
    candidate: Candidate, scene: Scene, workload: Workload, grid: Grid, now: datetime
) -> PredictDocument:
    rates = Rates(scene)
    contexts: Literal["shared", "separate"] = (
        "shared" if candidate.option.prefix_cache and workload.contexts == "shared" else "separate"
    )
    cells: list[Cell] = [
        cell(candidate, Load(concurrency, context, contexts), rates)
        for context in grid.context
        for concurrency in grid.concurrency
    ]
    first = cells[0].figures
    memory: dict[str, Figure | None] = {name: getattr(first, name) for name in MEMORY_FIGURES}
    return PredictDocument(
        created=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        tool=Tool(version=__version__),
        inputs=scene.request.inputs,
        machine=scene.box.machine,
        option=candidate.option,
        contexts=contexts,
        cells=tuple(cells),
        memory=memory,
        warnings=tuple(_warnings(candidate, scene)),
    )


def _warnings(candidate: Candidate, scene: Scene) -> Iterator[PlanWarning]:
    """Yield what the figures rest on that is not known, then what the rules warn of."""
    yield from unlisted_warnings(candidate.option, scene.knowledge)
    for line in meant(scene):
        yield PlanWarning(rule="card-name", text=line)
    yield from rule_warnings(candidate)
