"""``qwendeploy generate``: artefacts that run a plan."""

from __future__ import annotations

import json
from pathlib import Path

import click

from qwendeploy import api
from qwendeploy.errors import UserError


@click.command("generate")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option(
    "-f",
    "--format",
    "kind",
    type=click.Choice(api.artefact_kinds()),
    default="docker",
    show_default=True,
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Output directory; default: print to stdout.",
)
@click.option("--name", default="qwendeploy", show_default=True, help="Container and unit name.")
@click.option(
    "--replicas-by",
    type=click.Choice(("auto", "engine", "router")),
    default="auto",
    show_default=True,
    help="One engine process for all replicas, or one server each behind nginx (compose).",
)
@click.option("--writable", is_flag=True, help="Keep the container's root file system writable.")
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(
    plan: Path,
    kind: str,
    output: Path | None,
    name: str,
    replicas_by: str,
    writable: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write the files that run PLAN, with the plan and its verification script."""
    if output is None and as_json:
        raise UserError(
            "--json lists written files and needs -o",
            where="--json",
            hint="add -o DIRECTORY, or remove --json",
        )
    if output is None:
        click.echo(
            api.artefact_text(plan, kind, name=name, replicas_by=replicas_by, writable=writable)
        )
        return
    try:
        done = api.generate(
            plan,
            kind,
            output,
            name=name,
            replicas_by=replicas_by,
            writable=writable,
            force=force,
        )
    except UserError as problem:
        click.echo(getattr(problem, "diff", ""), err=True, nl=hasattr(problem, "diff"))
        raise
    if as_json:
        click.echo(
            json.dumps(
                {
                    "directory": str(done.directory),
                    "written": list(done.written),
                    "unchanged": list(done.unchanged),
                    "notes": list(done.notes),
                },
                indent=2,
            )
        )
        return
    for file in (*done.written, *done.unchanged):
        state = "written" if file in done.written else "unchanged"
        click.echo(f"{state:10} {done.directory / file}")
    for note in done.notes:
        click.echo(f"note: {note}")
    click.echo(f"next: {api.start_command(kind, done.directory, name)}")
