"""``qwendeploy data accuracy``: errors of the models on data they did not see."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

TABLES = (
    "speed_sessions",
    "speed_cells",
    "speed_small",
    "memory",
    "memory_pools",
    "transfer",
    "latency",
    "regret",
    "flips",
)


@click.command("accuracy")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with errors as fractions.")
@click.option("--markdown", is_flag=True, help="Print the tables of the README.")
@click.option(
    "--table",
    "tables",
    multiple=True,
    type=click.Choice(TABLES),
    help="Only this table; repeatable.",
)
@click.option(
    "--audit",
    "audit_folder",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="Instead, score audit on a folder of launches with known outcome.",
)
def command(
    as_json: bool, markdown: bool, tables: tuple[str, ...], audit_folder: str | None
) -> None:
    """Show the model errors on held-out data; offline, about half a minute.

    Sessions held out come first: that is what another box sees. Then cells of a series, pools,
    machines, latencies, what following the advice costs, and situations where advice must differ.
    """
    if as_json and markdown:
        raise click.UsageError("--json and --markdown are mutually exclusive")
    if audit_folder is not None:
        _print_audit_score(Path(audit_folder) if audit_folder else None, as_json)
        return
    # Hundreds of small solves: threads of the linear algebra cost far more than they give.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from qwendeploy.reporting import accuracy
    from qwendeploy.reporting.accuracy_sections import accuracy_report

    report = accuracy_report(tables)
    if as_json:
        click.echo(json.dumps(accuracy.as_document(report), indent=2))
    elif markdown:
        click.echo(accuracy.as_markdown(report), nl=False)
    else:
        click.echo(accuracy.as_text(report), nl=False)
        click.echo("\nnext: qwendeploy data show decode_study")


def _print_audit_score(folder: Path | None, as_json: bool) -> None:
    from qwendeploy import api
    from qwendeploy.reporting.audit_text import score_document, score_text

    score = api.audit_score(folder)
    if as_json:
        click.echo(json.dumps(score_document(score), indent=2))
    else:
        click.echo(score_text(score), nl=False)
        click.echo("\nnext: qwendeploy audit FILE --machine FILE")
