"""``qwendeploy predict``: figures of one stated option over a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from qwendeploy import api
from qwendeploy.cli._common import (
    COUNT_LIST,
    TOKEN_LIST,
    TOKENS,
    machine_of,
    machine_settings,
    option_settings,
    request_of,
    workload_of,
    write_document,
)
from qwendeploy.errors import UserError
from qwendeploy.reporting.predict_text import predict_text


@click.command("predict")
@machine_settings
@option_settings
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Predict this plan.")
@click.option(
    "--c",
    "--concurrency",
    "counts",
    type=COUNT_LIST,
    default="1",
    show_default=True,
    help="Requests in flight, several separated by commas.",
)
@click.option(
    "--ctx",
    "contexts",
    type=TOKEN_LIST,
    default="32k",
    show_default=True,
    help="Context of each request, several separated by commas.",
)
@click.option("--max-model-len", type=TOKENS, help="Longest request that the server accepts.")
@click.option("--isl", type=TOKENS, help="Input tokens of a request.")
@click.option("--osl", type=TOKENS, help="Output tokens of a request.")
@click.option(
    "--content",
    type=click.Choice(["prose", "code", "agent", "mixed"]),
    default="mixed",
    show_default=True,
    help="What is generated.",
)
@click.option("--separate-contexts", is_flag=True, help="Requests share no context.")
@click.option("--vision", is_flag=True, help="Keep image input (costs memory).")
@click.option(
    "--prefix-cache",
    type=click.Choice(["on", "off", "auto"]),
    default="auto",
    show_default=True,
    help="Prefix caching.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the figures here.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print the document as JSON.")
def command(
    plan_file: Path | None,
    counts: tuple[int, ...],
    contexts: tuple[int, ...],
    output: Path | None,
    force: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Predict one stated option on one machine: no choosing, the same figures as a plan."""
    if plan_file is not None:
        _alone(settings)
        document = api.predict_plan(plan_file, counts, contexts)
    else:
        workload = workload_of({**settings, "concurrency": max(counts), "ctx": max(contexts)})
        document = api.predict(
            machine_of(settings), workload, request_of(settings), counts, contexts
        )
    if output is not None:
        write_document(document, output, force=force)
    if as_json:
        click.echo(document.model_dump_json(by_alias=True, indent=2))
    else:
        click.echo(predict_text(document), nl=False)


def _alone(settings: dict[str, Any]) -> None:
    """Refuse settings of machine and option beside a plan, which states both."""
    for name in ("gpu", "machine_file", "quant", "checkpoint", "image", "tp", "spec_method"):
        if settings.get(name) is not None:
            raise UserError(
                f"--plan states the option already; {name.replace('_', '-')} contradicts it",
                where="--plan",
                hint="leave out one of the two",
            )
