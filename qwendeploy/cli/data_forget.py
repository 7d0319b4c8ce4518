"""``qwendeploy data forget``: take an import out of one's own table."""

from __future__ import annotations

import click

from qwendeploy import api


@click.command("forget")
@click.argument("import_id")
def command(import_id: str) -> None:
    """Remove an import and its rows from your own table."""
    rows = api.data_forget(import_id)
    click.echo(f"{import_id}: {rows} rows removed")
