"""``audit``: launches read, judged and compared with our plan, as one document."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from qwendeploy import __version__
from qwendeploy.auditing.context import Context
from qwendeploy.auditing.difference import changes_to_plan
from qwendeploy.auditing.figures_of import option_of, point_of, predictions_of
from qwendeploy.auditing.findings import OUTCOME_ORDER, Finding
from qwendeploy.auditing.judge import Judged, judge_launch
from qwendeploy.auditing.launch import Launch
from qwendeploy.auditing.read import read_launch_bytes, read_launches
from qwendeploy.auditing.together import with_neighbours
from qwendeploy.documents import Tool
from qwendeploy.documents.audit import (
    AuditChange,
    AuditDocument,
    AuditedLaunch,
    AuditFinding,
    EffectiveValue,
    Exposure,
)
from qwendeploy.planning.rulebook import RuleBook


def read(source: Path | bytes, name: str) -> list[Launch]:
    """Return the launches of a file, a directory, or a stream's bytes.

    Raises:
        UserError: unreadable, of no format that is read, or without a launch.
    """
    if isinstance(source, bytes):
        return read_launch_bytes(source, name)
    return read_launches(source)


def audit_launches(
    launches: Sequence[Launch],
    context: Context,
    *,
    concurrency: int | None = None,
    typical_context: int | None = None,
    compare: bool = True,
    rules: RuleBook | None = None,
    inputs: dict[str, object] | None = None,
    now: datetime | None = None,
) -> AuditDocument:
    """Return the document of all launches; the worst one heads it.

    ``compare`` adds rates and the difference to our plan, which cost seconds.
    """
    judged = with_neighbours([judge_launch(launch, context, rules) for launch in launches])
    audited = [_audited(item, concurrency, typical_context, compare=compare) for item in judged]
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


def _audited(
    judged: Judged, concurrency: int | None, context: int | None, *, compare: bool
) -> AuditedLaunch:
    understood = judged.understood
    launch = understood.launch
    option = option_of(understood)
    point = point_of(understood, judged.view, option, concurrency, context)
    predictions = predictions_of(
        understood, judged.view, option, point, judged.findings, rates=compare
    )
    changes: tuple[AuditChange, ...] = ()
    if compare and option is not None:
        changes = changes_to_plan(judged, option, point, predictions)
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
        predictions=predictions,
        concurrency=point.concurrency,
        context=point.context,
        point_assumed=point.assumed,
        changes=changes,
        unread=(*launch.unread, *_engine_unread(launch)),
    )


def _engine_unread(launch: Launch) -> tuple[str, ...]:
    """Name an engine whose flags are not judged; image, ports and cards are."""
    if launch.engine in ("vllm", "llama.cpp"):
        return ()
    name = "SGLang" if launch.engine == "sglang" else "an engine that is not known here"
    return (f"flags of {name}: neither its start nor its memory is judged",)


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
        return "not known"
    if view.lacks_length:
        return "weights" if view.answer.weights.value >= view.answer.budget_gib else "max_model_len"
    if view.lacks_seats:
        return "max_num_seqs"
    seats = view.max_num_seqs or 0
    return "max_num_seqs" if seats <= view.short_requests else "blocks"
