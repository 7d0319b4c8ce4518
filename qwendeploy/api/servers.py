"""Servers: started from a plan, watched and ended, through Docker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from qwendeploy.errors import ExitCode
    from qwendeploy.running.images import OnProgress
    from qwendeploy.running.settings import UpSettings
    from qwendeploy.running.starting import UpReport
    from qwendeploy.running.watching import Down, Status


def up(plan_file: Path, settings: UpSettings, told: OnProgress | None = None) -> UpReport:
    """Start a plan through Docker, wait until it serves, compare applied with asked.

    Secrets come from ``settings.secrets_file``, else from ``secrets.env`` beside the plan.

    Raises:
        UserError: the plan is impossible or for another machine, or a container is in the way.
        EnvironmentProblem: Docker, image, port or GPUs are not to be had.
        FailedStart: the engine ended or hung.
    """
    from dataclasses import replace

    from qwendeploy.documents.files import impossible_in, read_plan_and_text
    from qwendeploy.documents.identity import edits
    from qwendeploy.rendering.page import SECRETS_FILE
    from qwendeploy.running import starting

    plan, text = read_plan_and_text(plan_file)
    beside = plan_file.resolve().parent / SECRETS_FILE
    if settings.secrets_file is None and beside.exists():
        settings = replace(settings, secrets_file=beside)
    with impossible_in(plan_file, text):
        report = starting.up(plan, settings, told or (lambda _text, _share: None))
    return replace(report, notes=(*report.notes, *edits(plan)))


def status(name: str | None = None) -> tuple[Status, ...]:
    """Return what the containers of ``name``, or all of ours, are doing."""
    from qwendeploy.running import watching

    return watching.status(name)


def status_exit_code(statuses: tuple[Status, ...]) -> ExitCode:
    """Return the exit code that goes with the statuses."""
    from qwendeploy.running import watching

    return watching.exit_code_of(statuses)


def logs(name: str, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
    """Yield the log lines of a started plan."""
    from qwendeploy.running import watching

    return watching.logs(name, follow=follow, tail=tail)


def down(name: str, *, timeout_s: int = 60) -> Down:
    """Stop and remove a started plan; its caches stay."""
    from qwendeploy.running import watching

    return watching.down(name, timeout_s=timeout_s)
