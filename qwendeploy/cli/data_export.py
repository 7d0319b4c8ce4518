"""``qwendeploy data export``: one's own rows as a contribution file."""

from __future__ import annotations

from pathlib import Path

import click

from qwendeploy import api


@click.command("export")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="File to write."
)
@click.option("--id", "ids", multiple=True, metavar="IMPORT", help="Only this import; repeatable.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(output: Path, ids: tuple[str, ...], force: bool) -> None:
    """Export your own rows to a file for contribution, without paths, addresses, names or keys."""
    rows = api.data_export(output, ids=ids, force=force)
    click.echo(f"{output}: {rows} rows with trust submitted; review the file before you send it")
