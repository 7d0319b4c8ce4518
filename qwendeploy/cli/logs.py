"""``qwendeploy logs``: the log of a started plan."""

from __future__ import annotations

import click

from qwendeploy import api


@click.command("logs")
@click.option("--name", default="qwendeploy", show_default=True, help="Container name.")
@click.option("-f", "--follow", is_flag=True, help="Follow the log.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Show only the last N lines.")
def command(name: str, follow: bool, tail: int | None) -> None:
    """Show the log of a started plan."""
    for line in api.logs(name, follow=follow, tail=tail):
        click.echo(line)
