"""``qwendeploy schema``: the JSON Schema of a document."""

from __future__ import annotations

import json

import click

from qwendeploy.documents import SCHEMAS


@click.command("schema")
@click.argument("name", type=click.Choice(sorted(SCHEMAS)))
def command(name: str) -> None:
    """Print the JSON Schema of a document."""
    click.echo(json.dumps(SCHEMAS[name].model_json_schema(by_alias=True), indent=2))
