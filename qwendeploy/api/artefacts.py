"""Artefacts: what starts a plan by other means than ``up``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from qwendeploy.rendering.writer import Written


def artefact_kinds() -> tuple[str, ...]:
    """Return the names of the artefact kinds, in alphabetical order."""
    from qwendeploy.rendering.kinds import KINDS

    return tuple(KINDS)


def generate(
    plan_file: Path,
    kind: str,
    directory: Path,
    *,
    name: str = "qwendeploy",
    replicas_by: str = "auto",
    writable: bool = False,
    force: bool = False,
) -> Written:
    """Write one artefact set of the plan into ``directory``, all files or none.

    Raises:
        UserError: the plan cannot be read or is impossible, or files differ and not ``force``.
    """
    from qwendeploy.rendering import generating

    return generating.generate(
        plan_file,
        kind,
        directory,
        name=name,
        replicas_by=replicas_by,
        writable=writable,
        force=force,
    )


def artefact_text(
    plan_file: Path, kind: str, *, name: str, replicas_by: str, writable: bool
) -> str:
    """Return the main file of one artefact kind without writing anything."""
    from qwendeploy.rendering import generating

    return generating.artefact_text(
        plan_file, kind, name=name, replicas_by=replicas_by, writable=writable
    )


def start_command(kind: str, directory: Path, name: str) -> str:
    """Return the command line that starts an artefact set."""
    from qwendeploy.rendering.kinds import KINDS

    return KINDS[kind].start_line(directory, name)
