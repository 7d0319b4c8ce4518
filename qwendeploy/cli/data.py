"""``qwendeploy data``: the tables.

``accuracy``, ``import``, ``export`` and ``forget`` live in ``data_<name>.py`` beside this file
and are loaded when they are used.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import click

from qwendeploy import api
from qwendeploy.errors import ExitCode

LAZY = {
    "accuracy": "Show the model errors on held-out data.",
    "import": "Import a benchmark result file into your own table.",
    "export": "Export a table, or your own rows for contribution, to a file.",
    "forget": "Remove an import from your own table.",
}


class DataGroup(click.Group):
    """Group whose slower subcommands are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *LAZY]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in LAZY:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"qwendeploy.cli.data_{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        own = {name: command.get_short_help_str(80) for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl(list({**own, **LAZY}.items()))


@click.group("data", cls=DataGroup)
def command() -> None:
    """Manage the data tables: list, show, check, accuracy, import, export, forget."""


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@command.command("list")
@as_json
def list_tables(as_json: bool) -> None:
    """List every table with its rows, statuses and sources."""
    summaries = api.data_list()
    if as_json:
        document = [summary._asdict() for summary in summaries]
        imports = [
            {key: getattr(record, key) for key in ("id", "format", "imported", "rows")}
            for record in api.data_imports()
        ]
        pools = [
            {key: getattr(row, key) for key in ("row_id", "num_blocks", "kv_tokens", "evidence")}
            for row in api.data_own_pools()
        ]
        found = {"tables": document, "imports": imports, "pools": pools}
        click.echo(json.dumps(found, indent=2))
    else:
        from qwendeploy.reporting.data_text import imports_text, list_text, pools_text

        click.echo(list_text(summaries))
        click.echo("\n" + imports_text(api.data_imports()))
        click.echo("\n" + pools_text(api.data_own_pools()))
        click.echo("\nnext: qwendeploy data show decode_study --where status=capacity-limited")


@command.command("show")
@click.argument("table")
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Condition; operators = != > >= < <=. Repeatable: all must hold.",
)
@click.option("--columns", metavar="A,B,...", help="Columns to show.")
@click.option(
    "--limit", type=click.IntRange(1), default=40, show_default=True, help="Maximum number of rows."
)
@as_json
def show(
    table: str, where: tuple[str, ...], columns: str | None, limit: int, as_json: bool
) -> None:
    """Show rows of one table."""
    chosen = [name.strip() for name in columns.split(",")] if columns else []
    shown = api.data_show(table, where=where, columns=chosen, limit=limit)
    if as_json:
        document = {
            "table": shown.table,
            "total": shown.total,
            "matched": shown.matched,
            "rows": shown.records(),
        }
        click.echo(json.dumps(document, indent=2))
    else:
        from qwendeploy.reporting.data_text import view_text

        click.echo(view_text(shown))


@command.command("check")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@as_json
def check(directory: Path | None, as_json: bool) -> int:
    """Check that tables and rules (or the tables in DIRECTORY) are complete and sourced."""
    report = api.data_check(directory)
    if as_json:
        keys = {"file": "file", "line": "line", "column": "key", "problem": "what"}
        problems = [
            {name: getattr(problem, attribute) for name, attribute in keys.items()}
            for problem in report.problems
        ]
        document = {"ok": not problems, "rows": dict(report.rows), "problems": problems}
        if report.rules:
            document["rules"] = dict(report.rules)
        click.echo(json.dumps(document, indent=2))
    else:
        from qwendeploy.reporting.data_text import check_text

        click.echo(check_text(report), err=bool(report.problems))
    return ExitCode.USAGE if report.problems else ExitCode.DONE
