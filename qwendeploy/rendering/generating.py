"""From a plan file to a directory of artefacts."""

from __future__ import annotations

from pathlib import Path

from qwendeploy.documents.files import impossible_in, read_plan_and_text
from qwendeploy.documents.identity import edits
from qwendeploy.rendering import KINDS, launch_of, render
from qwendeploy.rendering.launch import HUB_TOKEN
from qwendeploy.rendering.page import TEXT
from qwendeploy.rendering.writer import Written, present_secrets, write, write_secrets


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
    """Write one artefact set of the plan into ``directory``; see ``render`` and ``write``."""
    plan, text = read_plan_and_text(plan_file)
    with impossible_in(plan_file, text):
        launch = launch_of(plan, name=name, writable=writable)
        files = render(plan, kind, name=name, replicas_by=replicas_by, writable=writable)
    # the plan goes along as it was written, so that generating beside it changes nothing
    files["plan.yaml"] = (text, TEXT)
    # before anything is written: a set without its secrets would be half a set
    present_secrets(directory)
    done = write(files, directory, force=force)
    required = set(launch.required_secrets)
    if KINDS[kind].replicas == "pods":
        # every pod of the cluster reaches the port
        required.add(launch.api_key_variable)
    notes = write_secrets(
        directory,
        api_key=launch.api_key_variable,
        hub_token=HUB_TOKEN,
        required=tuple(sorted(required)),
    )
    notes = (*done.notes, *notes, *edits(plan))
    return Written(done.directory, done.written, done.unchanged, notes)


def artefact_text(
    plan_file: Path, kind: str, *, name: str, replicas_by: str, writable: bool
) -> str:
    """Return the main file of one artefact kind, for a look without writing."""
    plan, text = read_plan_and_text(plan_file)
    with impossible_in(plan_file, text):
        files = render(plan, kind, name=name, replicas_by=replicas_by, writable=writable)
    return files[KINDS[kind].file_of(name)][0]
