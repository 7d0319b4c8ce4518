"""``qwendeploy doctor``: what in this environment will bite before anything is pulled."""

from __future__ import annotations

from pathlib import Path

import click

from qwendeploy import api


@click.command("doctor")
@click.argument("plan", required=False, type=click.Path(path_type=Path))
@click.option("--image", help="Image to check; default: the plan's.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port to check; default: the plan's, or 8000."
)
@click.option("--devices", metavar="I,J,...", help="GPU indices to check.")
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="PATH",
    help="Check saved output of another machine instead of this one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="FILE.tar.gz",
    help="Write a redacted archive for a bug report.",
)
@click.option("--force", is_flag=True, help="Replace an existing archive.")
def command(
    plan: Path | None,
    image: str | None,
    port: int | None,
    devices: str | None,
    sources: tuple[str, ...],
    as_json: bool,
    bundle: Path | None,
    force: bool,
) -> None:
    """Check GPUs, driver, Docker, disk, links, port and token; with PLAN, against its needs.

    Exits 4 if a problem keeps a server from starting on this machine, 1 with --from.
    """
    report = api.doctor(
        plan, image=image, port=port, devices=devices, sources=sources, bundle=bundle, force=force
    )
    click.echo(report.model_dump_json(indent=2) if as_json else api.describe_doctor(report))
    if bundle is not None and not as_json:
        click.echo(f"written: {bundle}")
    api.refuse_errors(report, live=not sources)
