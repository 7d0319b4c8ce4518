"""``qwendeploy explain``: why, with sources."""

from __future__ import annotations

import json
from pathlib import Path

import click

from qwendeploy import api


@click.command("explain", context_settings={"ignore_unknown_options": True})
@click.argument("name", required=False)
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path),
    help="Explain this plan; NAME selects an option, rule, flag or figure of it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str | None, plan_file: Path | None, as_json: bool) -> None:
    """Explain a rule, finding, signature, flag, variable, figure or term, with sources;
    of an image, checkpoint, weight format or card what is known.

    Without NAME: the names that are known. Examples: `explain driver-too-old-for-image`,
    `explain --max-num-seqs`, `explain quality`, `explain v0.20.1`, `explain RTX 4090`,
    `explain --plan plan.yaml nvfp4`, `explain --plan plan.yaml kv_pool_blocks`.
    """
    if name is None and plan_file is None:
        groups = api.explain_topics()
        if as_json:
            click.echo(json.dumps({"topics": dict(groups)}, indent=2, ensure_ascii=False))
            return
        from qwendeploy.reporting.explain_text import topics_text

        click.echo(topics_text(groups))
        return
    found = api.explain(name, plan_file=plan_file)
    if as_json:
        document = {"explanations": [entry.model_dump(mode="json") for entry in found]}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    from qwendeploy.reporting.explain_text import explanations_text

    click.echo(explanations_text(found))
