"""``qwendeploy recommend``: machine and workload to a plan."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click

from qwendeploy import api
from qwendeploy.cli._common import (
    machine_of,
    machine_settings,
    option_settings,
    request_of,
    workload_of,
    workload_settings,
    write_document,
)
from qwendeploy.errors import NoPlan, UserError
from qwendeploy.reporting.plan_text import no_plan_text, plan_text


@click.command("recommend")
@machine_settings
@workload_settings
@option_settings
@click.option(
    "--listen", default="127.0.0.1", show_default=True, help="Address that the server listens on."
)
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the plan to this file."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan document as JSON.")
def command(output: Path | None, force: bool, as_json: bool, **settings: Any) -> None:
    """Plan what to run for a machine and a workload, with predictions and reasons."""
    request = request_of(settings)
    workload = workload_of(settings)
    if workload.max_context < 2:
        raise UserError(
            "a request needs at least one input and one output token",
            where="--ctx",
            hint="--ctx 32k",
        )
    machine = machine_of(settings)
    try:
        plan = api.recommend(machine, workload, request)
    except NoPlan as refusal:
        if as_json:
            trace = [entry.model_dump(mode="json") for entry in refusal.trace]
            click.echo(json.dumps({"error": str(refusal), "trace": trace}, indent=2))
        else:
            click.echo(no_plan_text(refusal.trace), nl=False)
        raise
    if output is not None:
        write_document(plan, output, force=force)
    if as_json:
        click.echo(plan.model_dump_json(by_alias=True, indent=2))
        return
    saved = output or "plan.yaml"
    again = f"qwendeploy generate {shlex.quote(str(saved))} -f compose -o deploy/"
    hint = again if output else f"add -o plan.yaml, then: {again}"
    click.echo(plan_text(plan, next_command=hint), nl=False)
