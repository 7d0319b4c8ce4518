"""``audit`` end to end: from source, machine and settings to a document or a corrected command."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qwendeploy.auditing.audit import audit_launches, read
from qwendeploy.auditing.correcting.correct import correct
from qwendeploy.auditing.judging.figures_of import RequestedLoad
from qwendeploy.auditing.judging.judge import judge_launch
from qwendeploy.auditing.judging.together import with_neighbours
from qwendeploy.auditing.reading.inspect_container import read_inspection
from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.request import AuditRequest
from qwendeploy.auditing.understanding.context import Context, read_context
from qwendeploy.documents import Machine
from qwendeploy.documents.audit import AuditDocument
from qwendeploy.errors import EnvironmentProblem, UserError


@dataclass(frozen=True)
class CorrectedCommand:
    """The corrected text with a line for every change and for what is left to decide."""

    text: str
    notes: tuple[str, ...]
    errors_left: bool


def audit(request: AuditRequest) -> AuditDocument:
    """Return the audit of every launch of the source.

    Raises:
        UserError: the source or the machine's description cannot be read.
        EnvironmentProblem: Docker does not answer or knows no such container.
    """
    launches = _launches(request)
    context = _context(request)
    return audit_launches(
        launches,
        context,
        requested=RequestedLoad(
            request.concurrency, request.typical_context, request.content, request.contexts
        ),
        compare=request.compare,
        inputs={key: str(value) for key, value in request.machine.items() if value is not None},
    )


def audit_fix(request: AuditRequest) -> CorrectedCommand:
    """Return the launches corrected, each of several under a comment with its name and place.

    Raises as ``audit``.
    """
    launches = _launches(request)
    context = _context(request)
    texts: list[str] = []
    notes: list[str] = []
    errors = False
    for judged in with_neighbours([judge_launch(launch, context) for launch in launches]):
        launch, corrected = judged.understood.launch, correct(judged)
        title = " ".join(part for part in (launch.name, f"({launch.place})") if part)
        several = len(launches) > 1
        texts.append(f"# {title}\n{corrected.text}" if several else corrected.text)
        whose = f"{launch.name or launch.place}: " if several else ""
        for word, findings in (("changed", corrected.changed), ("not changed", corrected.left)):
            notes += [f"{whose}{word}: {it.about}: {it.fix} [{it.id}]" for it in findings]
        errors |= any(found.severity == "error" for found in corrected.left)
    return CorrectedCommand("\n".join(texts), tuple(notes), errors)


def _launches(request: AuditRequest) -> list[ForeignLaunch]:
    if isinstance(request.source, str):
        return read_inspection(inspect_container(request.source), request.source)
    shown = "stdin" if isinstance(request.source, bytes) else str(request.source)
    return read(request.source, shown)


def _context(request: AuditRequest) -> Context:
    """Return machine and hints; without a stated or found machine memory is not checked."""
    settings = dict(request.machine)
    file = settings.get("machine_file")
    context = read_context(file) if isinstance(file, Path) else None
    if context is None:
        context = Context(machine=_machine(settings), local=not any(settings.values()))
    if request.engine_version is not None:
        context = replace(context, engine_version=request.engine_version)
    return context


def _machine(settings: Mapping[str, Any]) -> Machine | None:
    from qwendeploy.planning.machines import resolve

    stated = any(value is not None for value in settings.values())
    try:
        machine = resolve(**settings)
    except EnvironmentProblem:
        if stated:
            raise
        return None
    # Plans assume the study's card; an audited command does not.
    return None if machine.origin == "assumed" and not stated else machine


def inspect_container(name: str) -> str:
    """Return what ``docker inspect`` says of a container, as JSON text.

    Raises:
        EnvironmentProblem: Docker does not answer, or has no such container.
    """
    import docker

    from qwendeploy.hardware.live.docker_host import docker_environment

    try:
        found = docker_environment(os.environ)
        with contextlib.closing(docker.from_env(environment=found)) as client:
            inspected = client.api.inspect_container(name)
    except docker.errors.NotFound:
        raise EnvironmentProblem(
            f"no container {name!r}", where="--container", hint="docker ps -a lists them"
        ) from None
    except docker.errors.DockerException as problem:
        raise EnvironmentProblem(f"cannot reach Docker: {problem}", where="--container") from None
    if not isinstance(inspected, dict):
        raise UserError("Docker's response is not a JSON object", where="--container")
    return json.dumps([inspected])
