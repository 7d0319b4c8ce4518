"""``qwendeploy data export``: a table, or one's own rows as a contribution, as a file."""

from __future__ import annotations

from pathlib import Path

import click

from qwendeploy import api


@click.command("export")
@click.argument("table", required=False)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="File to write."
)
@click.option("--id", "ids", multiple=True, metavar="IMPORT", help="Only this import; repeatable.")
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="As `data show`; of TABLE.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(
    table: str | None, output: Path, ids: tuple[str, ...], where: tuple[str, ...], force: bool
) -> None:
    """Export TABLE as .csv, .json, .md or .parquet, or your own rows to a file for contribution.

    A contribution is JSON and holds no paths, addresses, names or keys.
    """
    if table is None:
        if where:
            raise click.UsageError("--where needs a TABLE")
        rows = api.data_export(output, ids=ids, force=force)
        click.echo(
            f"{output}: {rows} rows with trust submitted; review the file before you send it"
        )
        return
    if ids:
        raise click.UsageError("--id selects your own imports; use --where with a TABLE")
    rows = api.data_save(table, output, where=where, force=force)
    click.echo(f"{output}: {rows} rows of {table}")
