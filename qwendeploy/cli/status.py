"""``qwendeploy status``: what a started plan is doing."""

from __future__ import annotations

import json

import click

from qwendeploy import api


@click.command("status")
@click.option("--name", help="Container name; default: all that qwendeploy started.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(name: str | None, as_json: bool) -> int:
    """Show the state of a started plan; exit 0 if it serves, else 4."""
    statuses = api.status(name)
    from qwendeploy.reporting.running_text import status_json, status_text

    click.echo(json.dumps(status_json(statuses), indent=2) if as_json else status_text(statuses))
    return api.status_exit_code(statuses)
