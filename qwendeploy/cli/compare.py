"""``qwendeploy compare``: two runs or two plans."""

from __future__ import annotations

import json
from pathlib import Path

import click

from qwendeploy import api
from qwendeploy.reporting.compare_text import compare_json, compare_text


@click.command("compare")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def command(first: Path, second: Path, as_json: bool) -> None:
    """Show the differences between two runs or two plans, and their significance.

    A run is its directory or its run.json. Runs with different keys are
    rejected, with the list of keys.
    """
    comparison = api.compare(first, second)
    if as_json:
        click.echo(json.dumps(compare_json(comparison), indent=2))
        return
    click.echo(compare_text(comparison), nl=False)
