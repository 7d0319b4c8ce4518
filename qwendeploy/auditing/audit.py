"""``audit``: read, check and compare launches with our plan, as one document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from qwendeploy import __version__
from qwendeploy.auditing.judging.difference import changes_to_plan
from qwendeploy.auditing.judging.figures_of import (
    REFUSED,
    AuditLoad,
    RequestedLoad,
    option_of,
    point_of,
    predictions_of,
)
from qwendeploy.auditing.judging.findings import OUTCOME_ORDER, Finding
from qwendeploy.auditing.judging.judge import Judged, judge_launch
from qwendeploy.auditing.judging.together import engines_of, sharing, with_neighbours
from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.reading.read import read_launch_bytes, read_launches
from qwendeploy.auditing.understanding.context import Context
from qwendeploy.documents import Option, Predictions, Tool
from qwendeploy.documents.audit import (
    AuditChange,
    AuditDocument,
    AuditedLaunch,
    AuditFinding,
    EffectiveValue,
    Exposure,
)
from qwendeploy.rulebook.book import RuleBook


def read(source: Path | bytes, name: str) -> list[ForeignLaunch]:
    """Return the launches of a file, a directory, or a stream's bytes.

    Raises:
        UserError: unreadable, of no format that is read, or without a launch.
    """
    if isinstance(source, bytes):
        return read_launch_bytes(source, name)
    return read_launches(source)


def audit_launches(
    launches: Sequence[ForeignLaunch],
    context: Context,
    *,
    requested: RequestedLoad | None = None,
    compare: bool = True,
    rules: RuleBook | None = None,
    inputs: dict[str, object] | None = None,
    now: datetime | None = None,
) -> AuditDocument:
    """Return the document of all launches; the worst one heads it.

    ``compare`` adds rates and the difference to our plan, which cost seconds.
    """
    judged = with_neighbours([judge_launch(launch, context, rules) for launch in launches])
    options = [option_of(item.understood) for item in judged]
    audited: list[AuditedLaunch] = []
    figures: dict[int, LaunchFigures] = {}
    for item, option, group in zip(judged, options, sharing(judged, options), strict=True):
        first = id(group[0])
        if first not in figures:
            figures[first] = _figures_of_group(
                group, option, requested or RequestedLoad(), compare=compare
            )
        audited.append(_audited(item, option, group, figures[first]))
    worst = min(audited, key=lambda item: OUTCOME_ORDER.index(item.outcome))
    return AuditDocument(
        created=(now or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        tool=Tool(version=__version__),
        inputs=dict(inputs or {}),
        outcome=worst.outcome,
        findings=tuple(finding for item in audited for finding in item.findings),
        option=worst.option,
        predictions=worst.predictions,
        changes=worst.changes,
        launches=tuple(audited),
    )


@dataclass(frozen=True)
class LaunchFigures:
    """The figures of a launch, or of identical launches that share the load."""

    point: AuditLoad
    engines: int
    predictions: Predictions
    changes: tuple[AuditChange, ...]


def _figures_of_group(
    group: tuple[Judged, ...], option: Option | None, requested: RequestedLoad, *, compare: bool
) -> LaunchFigures:
    """Return the figures of all launches of a group together, as one option with replicas.

    Engines of a cluster beyond the machine's cards run on other machines: they take their share of
    the requests there.
    """
    judged, engines = group[0], engines_of(group)
    understood = judged.understood
    point = point_of(understood, judged.view, option, requested)
    if option is not None and engines > 1:
        judged = _on_all_cards(group)
        understood, machine = judged.understood, judged.understood.context.machine
        each = option.tp * option.replicas
        here = min(engines, max(1, len(machine.gpus) // each)) if machine is not None else engines
        option = option.model_copy(update={"replicas": option.replicas * here})
        point = replace(point, concurrency=-(-point.concurrency * here // engines))
        engines = here
    predictions = predictions_of(
        understood, judged.view, option, point, judged.findings, rates=compare
    )
    changes: tuple[AuditChange, ...] = ()
    if compare and option is not None:
        changes = changes_to_plan(judged, option, point, predictions)
    return LaunchFigures(point, engines, predictions, changes)


def _on_all_cards(group: tuple[Judged, ...]) -> Judged:
    """Return the first launch of a group with the cards of all of them before it."""
    first = group[0]
    machine = first.understood.context.machine
    if machine is None:
        return first
    others = [item.understood.context.machine for item in group]
    cards = {gpu.index: gpu for other in others if other is not None for gpu in other.gpus}
    if len(cards) <= len(machine.gpus):
        return first
    indices = tuple(index for index in sorted(at for at in cards if at is not None))
    machine = machine.model_copy(
        update={
            "gpus": tuple(cards[index] for index in indices),
            "usable_gpu_indices": indices,
            "chosen_gpu_indices": indices,
        }
    )
    context = replace(first.understood.context, machine=machine)
    return replace(first, understood=replace(first.understood, context=context))


DOUBTS = ("gguf-does-not-fit", "kv-too-small-for-max-model-len", "max-num-seqs-above-blocks")
"""Memory findings whose warning means that the start may fail."""


def _doubt(judged: Judged, figures: LaunchFigures) -> str | None:
    warned = (item for item in judged.findings if item.severity == "warning")
    short = next(
        (f"memory may not suffice: {item.text}" for item in warned if item.id in DOUBTS), None
    )
    reason = figures.predictions.reasons.get("aggregate_decode_tps", "")
    if judged.outcome == "fails_at_start":
        return None
    return short or (reason if reason.startswith(REFUSED) else None)


def _audited(
    judged: Judged, option: Option | None, group: tuple[Judged, ...], figures: LaunchFigures
) -> AuditedLaunch:
    understood = judged.understood
    launch, first = understood.launch, group[0].understood.launch
    point = figures.point
    cached = option is not None and option.prefix_cache
    return AuditedLaunch(
        name=launch.name,
        place=str(launch.place),
        runtime=launch.runtime,
        engine=launch.engine,
        image=understood.image,
        engine_version=understood.engine_version,
        outcome=judged.outcome,
        binds=_binds(judged),
        findings=tuple(_finding(finding) for finding in judged.findings),
        effective=tuple(
            EffectiveValue(
                name=value.name,
                value=value.value,
                stated=value.stated,
                place=str(value.place) if value.place else None,
                why=value.why,
            )
            for value in understood.values.values()
        ),
        option=option,
        exposure=Exposure(
            listen=understood.listen,
            network=understood.network,
            api_key=understood.api_key,
        ),
        predictions=figures.predictions,
        concurrency=point.concurrency,
        context=point.context,
        point_assumed=point.assumed,
        content=point.content,
        contexts=point.contexts if cached else "separate",
        engines=figures.engines,
        first_engine=None if judged is group[0] else first.name or str(first.place),
        doubt=_doubt(judged, figures),
        changes=figures.changes,
        unread=(*launch.unread, *_engine_unread(launch)),
    )


def _engine_unread(launch: ForeignLaunch) -> tuple[str, ...]:
    """Name an engine whose flags are not judged; image, ports and cards are."""
    if launch.engine in ("vllm", "llama.cpp"):
        return ()
    name = "SGLang" if launch.engine == "sglang" else "an unknown engine"
    return (f"flags of {name}: start and memory are not checked",)


def _finding(finding: Finding) -> AuditFinding:
    return AuditFinding(
        id=finding.id,
        severity=finding.severity,
        about=finding.about,
        place=str(finding.place),
        text=finding.text,
        fix=finding.fix,
        rule=finding.rule,
    )


def _binds(judged: Judged) -> str:
    """Return what limits the server: what stops it, else what caps the requests that run."""
    view = judged.view
    if view is None:
        return "unknown"
    if view.lacks_length:
        return "weights" if view.pool.weights.value >= view.pool.budget_gib else "max_model_len"
    if view.lacks_seats:
        return "max_num_seqs"
    seats = view.max_num_seqs or 0
    return "max_num_seqs" if seats <= view.pool.short_requests else "blocks"
