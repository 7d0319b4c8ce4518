"""``qwendeploy predict``: figures of one stated option over a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

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

BESIDE_A_PLAN = ("plan_file", "counts", "contexts", "output", "force", "as_json")
"""Settings that ask something of a plan rather than state what it states."""


@click.command("predict")
@machine_settings
@option_settings
@click.option(
    "--plan", "plan_file", type=click.Path(path_type=Path), help="Predict the option of this plan."
)
@click.option(
    "--c",
    "--concurrency",
    "counts",
    type=COUNT_LIST,
    default="1",
    show_default="1, or the plan's",
    help="Concurrent requests, comma-separated.",
)
@click.option(
    "--ctx",
    "contexts",
    type=TOKEN_LIST,
    default="32k",
    show_default="32k, or the plan's typical and maximum",
    help="Context per request, comma-separated.",
)
@click.option(
    "--max-model-len", type=TOKENS, help="Maximum length of a request that the server accepts."
)
@click.option("--isl", type=TOKENS, help="Input tokens per request.")
@click.option("--osl", type=TOKENS, help="Output tokens per request.")
@click.option(
    "--content",
    type=click.Choice(["prose", "code", "agent", "mixed"]),
    default="mixed",
    show_default=True,
    help="Generated content.",
)
@click.option("--separate-contexts", is_flag=True, help="Requests do not share a context.")
@click.option("--vision", is_flag=True, help="Keep image input (uses memory).")
@click.option(
    "--prefix-cache",
    type=click.Choice(["on", "off", "auto"]),
    default="auto",
    show_default=True,
    help="Prefix caching.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the figures to this file."
)
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
    """Predict one given option on one machine, with the same figures as a plan."""
    counts, contexts = tuple(dict.fromkeys(counts)), tuple(dict.fromkeys(contexts))
    if plan_file is not None:
        _alone()
        document = api.predict_plan(
            plan_file,
            counts if _stated("counts") else (),
            contexts if _stated("contexts") else (),
        )
    else:
        _fits(settings.get("max_model_len"), contexts)
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


def _alone() -> None:
    """Refuse settings of machine, option and workload beside a plan, which states them all."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if _stated(name) and name not in BESIDE_A_PLAN:
            raise UserError(
                f"--plan states machine, option and workload; {parameter.opts[0]} conflicts "
                "with it",
                where="--plan",
                hint="remove one of them",
            )


def _stated(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def _fits(max_model_len: int | None, contexts: tuple[int, ...]) -> None:
    """Refuse a server that takes no request as long as the longest context asked for."""
    if max_model_len is not None and max_model_len < max(contexts):
        raise UserError(
            f"{max_model_len:,} tokens are below --ctx {max(contexts):,}",
            where="--max-model-len",
            hint=f"raise it to {max(contexts)}, or shorten --ctx",
        )
