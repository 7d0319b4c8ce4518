"""``qwendeploy detect``: the hardware facts of this machine or of saved output."""

from __future__ import annotations

from pathlib import Path

import click

from qwendeploy import api
from qwendeploy.cli._common import FiniteRange


@click.command("detect")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="PATH",
    help="Directory or file of saved nvidia-smi output, - for stdin; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the machine as JSON.")
@click.option("-o", "output", type=click.Path(path_type=Path), help="Write machine.yaml.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("--gpu", metavar="NAME", help="GPU model, if the saved output does not show it.")
@click.option("--gpus", "count", type=click.IntRange(1, 64), help="Number of GPUs, if not shown.")
@click.option("--vram", type=FiniteRange(), metavar="GIB", help="Memory per GPU, if not shown.")
@click.option("--driver", metavar="VERSION", help="NVIDIA driver, if not shown.")
@click.option(
    "--os", "system", type=click.Choice(["linux", "wsl2", "windows"]), help="System, if not shown."
)
def command(
    files: tuple[str, ...],
    sources: tuple[str, ...],
    as_json: bool,
    output: Path | None,
    force: bool,
    gpu: str | None,
    count: int | None,
    vram: float | None,
    driver: str | None,
    system: str | None,
) -> None:
    """Detect GPUs, links, driver and host of this machine, or read saved output (FILE, --from).

    Saved output is recognised by its content: the plain table, -L, -q, -q -x, --query-gpu CSV,
    topo -m, topo -p2p r, nvlink -s and -R, --version, error texts, kernel logs, environment
    reports, gpustat, nvitop, nvtop, dcgmi, deviceQuery, ollama, llama.cpp, lspci, inxi; also as
    forms, logs, shells, web pages, JSON, HTML and narrow windows leave them.
    Exits 4 if no GPU of this machine can serve, 1 if none of saved output can.
    """
    machine = api.detect(
        (*sources, *files), gpu=gpu, count=count, vram_gib=vram, driver=driver, system=system
    )
    if output is not None:
        api.save_machine(machine, output, force=force)
    if as_json:
        click.echo(machine.model_dump_json(indent=2))
    else:
        click.echo(api.describe_machine(machine))
        if output is not None:
            click.echo(f"written: {output}")
            click.echo(f"next: qwendeploy recommend --machine {output}")
    api.refuse_unusable(machine, live=not (files or sources))
