"""``qwendeploy down``: stop a started plan."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from qwendeploy import api


@click.command("down")
@click.option("--name", default="qwendeploy", show_default=True, help="Container name.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.IntRange(0, 86400),
    default=60,
    show_default=True,
    help="Seconds to wait for running requests.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(name: str, timeout_s: int, as_json: bool) -> None:
    """Stop and remove a started plan; weights and compiled kernels are kept."""
    done = api.down(name, timeout_s=timeout_s)
    from qwendeploy.reporting.running_text import down_text

    click.echo(json.dumps(asdict(done)) if as_json else down_text(done, name))
