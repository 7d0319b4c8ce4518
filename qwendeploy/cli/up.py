"""``qwendeploy up``: start a plan and compare what is applied with what was asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from qwendeploy import api
from qwendeploy.cli._common import FiniteRange
from qwendeploy.reporting.progress import progress


@click.command("up")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--name", default="qwendeploy", show_default=True, help="Container name.")
@click.option(
    "-y", "--yes", is_flag=True, help="Replace a container of another plan without asking."
)
@click.option("--network", metavar="NAME", help="Docker network; default: Docker's default bridge.")
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(1, 86400),
    help="Seconds to wait; default: from the plan's startup and download time.",
)
@click.option(
    "--secrets",
    "secrets_file",
    type=click.Path(path_type=Path),
    help="Env file with API key and token; default: secrets.env beside the plan.",
)
@click.option("--checks/--no-checks", default=True, help="Check this machine's GPUs first.")
@click.option("--writable", is_flag=True, help="Keep the container's root file system writable.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    plan: Path,
    name: str,
    yes: bool,
    network: str | None,
    timeout_s: float | None,
    secrets_file: Path | None,
    checks: bool,
    writable: bool,
    as_json: bool,
) -> int:
    """Start PLAN with Docker, wait until it serves, and read back the applied settings."""
    settings = api.UpSettings(
        name=name,
        yes=yes,
        network=network,
        timeout_s=timeout_s,
        secrets_file=secrets_file,
        checks=checks,
        writable=writable,
        confirm=_confirm if sys.stdin.isatty() else None,
    )
    from qwendeploy.reporting.running_text import failed_text, up_json, up_text

    try:
        with progress(quiet=as_json) as report_progress:
            report = api.up(plan, settings, report_progress)
    except BaseException as problem:
        if shown := failed_text(problem):
            click.echo(shown, err=True)
        raise
    if as_json:
        click.echo(json.dumps(up_json(report), indent=2))
    else:
        click.echo(up_text(report, str(plan)))
    return report.exit_code


def _confirm(lines: list[str]) -> bool:
    click.echo("another plan runs under this name; the changes:", err=True)
    for line in lines:
        click.echo(f"  {line}", err=True)
    return click.confirm("replace it?", err=True)
