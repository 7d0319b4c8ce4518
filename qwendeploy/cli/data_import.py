"""``qwendeploy data import``: a result file becomes rows of one's own table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from qwendeploy import api
from qwendeploy.cli._common import TOKENS, FiniteRange

FORMATS = (
    "aiperf",
    "guidellm",
    "inference-perf",
    "llama-bench",
    "llm-decode-bench",
    "qwendeploy-run",
    "vllm-bench",
)
"""Names of the readers in ``tables.importers``; a test holds the two lists together."""


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--gpu", metavar="NAME", help="GPU that the server ran on; not needed with a plan.")
@click.option("--gpus", "gpu_count", type=click.IntRange(1, 64), help="Number of GPUs.")
@click.option("--vram", "gpu_vram_gib", type=FiniteRange(1), metavar="GIB")
@click.option("--interconnect", type=click.Choice(["nvlink", "pcie", "unified", "none"]))
@click.option("--driver", metavar="VERSION")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Plan of the server.")
@click.option("--image", help="Container image.")
@click.option("--engine", type=click.Choice(["vllm", "llama.cpp", "sglang"]))
@click.option("--engine-version", metavar="VERSION")
@click.option("--checkpoint", metavar="NAME", help="Repository of the weights.")
@click.option("--quant", help="Weight format, for instance fp8.")
@click.option("--kv-cache-dtype", help="KV cache type, for instance bf16.")
@click.option("--spec", "spec_method", help="Draft method: none, mtp, dflash.")
@click.option("--spec-tokens", type=click.IntRange(0, 32), help="Draft tokens per step.")
@click.option("--tp", type=click.IntRange(1, 64), help="Tensor-parallel size.")
@click.option("--util", "gpu_memory_utilization", type=FiniteRange(0.05, 1.0))
@click.option("--max-model-len", type=TOKENS)
@click.option("--max-num-seqs", type=click.IntRange(1))
@click.option("--max-num-batched-tokens", type=TOKENS)
@click.option("--capture-size", type=TOKENS)
@click.option("--prefix-cache", type=click.Choice(["on", "off"]))
@click.option("--contexts", type=click.Choice(["shared", "separate"]))
@click.option("--content", type=click.Choice(["prose", "code", "agent", "chat", "random"]))
@click.option(
    "--concurrency",
    type=click.IntRange(1, 4096),
    help="Concurrent requests, if the file does not state them.",
)
@click.option("--session", help="Session name; runs of one session can be compared.")
@click.option("--format", type=click.Choice(FORMATS), help="File format; detected by default.")
@click.option(
    "--skip-bad", is_flag=True, help="Import the valid results of a file and skip rejected ones."
)
@click.option("--dry-run", is_flag=True, help="Show what would be imported without writing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(file: Path, as_json: bool, **settings: Any) -> None:
    """Import the results of a benchmark FILE into your own table, all or none.

    Reads vllm bench serve, guidellm, aiperf, genai-perf, inference-perf, llm-inference-bench,
    llama-bench, llama-batched-bench and our run.json.
    What a benchmark does not record (GPU, weights, drafts) is stated here; what is not stated stays
    empty. A run.json of `verify PLAN` brings its plan along and needs nothing.
    """
    dry_run = settings.pop("dry_run")
    options = {name: settings.pop(name) for name in ("format", "skip_bad", "plan_file")}
    stated = {name: value for name, value in settings.items() if value is not None}
    if "prefix_cache" in stated:
        stated["prefix_cache"] = stated["prefix_cache"] == "on"
    done = api.data_import(file, stated, dry_run=dry_run, **options)
    if as_json:
        document = {
            "id": done.record.id,
            "format": done.record.format,
            "rows": [row.row_id for row in done.rows],
            "statuses": {row.row_id: row.status for row in done.rows},
            "skipped": [str(problem) for problem in done.skipped],
            "written": not dry_run,
        }
        click.echo(json.dumps(document, indent=2))
        return
    from qwendeploy.reporting.data_text import import_text

    click.echo(import_text(done, written=not dry_run))
