"""The run document on disk: whole at every moment, replaced by renaming, never half-written."""

from __future__ import annotations

import os
from pathlib import Path

from qwendeploy.documents import RunDocument
from qwendeploy.documents.disk import write_file
from qwendeploy.errors import EnvironmentProblem, UserError

RUN_FILE = "run.json"


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` so that no reader ever sees a part of it.

    Raises:
        EnvironmentProblem: the directory cannot be written.
    """
    write_file(path, text.encode(), 0o644, kind=EnvironmentProblem)


def claim_directory(directory: Path, names: tuple[str, ...], *, force: bool) -> None:
    """Make sure that a run may be written into ``directory``.

    Raises:
        UserError: it is a file, or holds a run already and not ``force``.
        EnvironmentProblem: nothing can be written there.
    """
    there_already = next(path for path in (directory, *directory.parents) if path.exists())
    if not there_already.is_dir():
        raise UserError("is a file, not a directory", where=str(there_already))
    if not os.access(there_already, os.W_OK | os.X_OK):
        raise EnvironmentProblem(
            "cannot be written", where=str(there_already), hint="choose another -o"
        )
    there = [name for name in names if (directory / name).exists()]
    if there and not force:
        raise UserError(
            f"holds {', '.join(there)} already",
            where=str(directory),
            hint="choose another -o, or --force to overwrite",
        )


def write_run(directory: Path, run: RunDocument) -> Path:
    """Write the run document into its directory and return its path."""
    path = directory / RUN_FILE
    write_atomically(path, run.model_dump_json(by_alias=True, indent=1) + "\n")
    return path
