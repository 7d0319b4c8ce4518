"""``qwendeploy audit``: what somebody's own command or file will do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from qwendeploy import api
from qwendeploy.cli._common import TOKENS, machine_settings
from qwendeploy.documents.option import Content
from qwendeploy.errors import ExitCode, UserError
from qwendeploy.reporting.audit_text import audit_text


@click.command("audit")
@click.argument("source", required=False, type=click.Path(path_type=Path))
@click.option("--container", metavar="NAME", help="Audit a Docker container.")
@machine_settings
@click.option(
    "--engine-version", metavar="V", help="vLLM version on the host, for commands without an image."
)
@click.option(
    "--c", "--concurrency", "concurrency", type=click.IntRange(1, 4096), help="Concurrent requests."
)
@click.option("--typical-ctx", type=TOKENS, help="Typical context per request.")
@click.option(
    "--content",
    type=click.Choice([kind.value for kind in Content]),
    default="mixed",
    show_default=True,
    help="Generated content.",
)
@click.option("--separate-contexts", is_flag=True, help="Requests do not share a context.")
@click.option("--fix", "as_fix", is_flag=True, help="Print the corrected command or fragment.")
@click.option("--no-compare", is_flag=True, help="Omit rates and the comparison with our plan.")
@click.option("--strict", is_flag=True, help="Exit 1 on warnings as well.")
@click.option("--json", "as_json", is_flag=True, help="Print the audit document as JSON.")
def command(
    source: Path | None,
    container: str | None,
    engine_version: str | None,
    concurrency: int | None,
    typical_ctx: int | None,
    content: str,
    separate_contexts: bool,
    as_fix: bool,
    no_compare: bool,
    strict: bool,
    as_json: bool,
    **machine: Any,
) -> int:
    """Check a launch before it starts: problems with location and fix, memory, rates.

    SOURCE is a file, a directory, or - for standard input: docker run, podman run, vllm serve,
    llama-server, compose files, systemd units and quadlets, Kubernetes manifests, Dockerfiles,
    JSON or YAML of other schedulers that lists a container's image and words.
    Nothing in it is executed. --machine also takes a few lines of YAML: gpu, count, vram_mib,
    driver, interconnect (nvlink, pcie, none), os (linux, wsl2), vllm_version. Exit 0 without
    errors, 1 with errors, 2 if it cannot be read.
    """
    given: Path | bytes | str
    if container is not None:
        if source is not None:
            raise UserError("SOURCE and --container both name a launch", hint="remove one")
        given = container
    elif source is None or str(source) == "-":
        if source is None and sys.stdin.isatty():
            raise UserError("nothing to audit", hint="give a file, a directory, or - for stdin")
        given = sys.stdin.buffer.read(api.LARGEST_LAUNCH + 1)
    else:
        given = source
    request = api.AuditRequest(
        source=given,
        engine_version=engine_version,
        concurrency=concurrency,
        typical_context=typical_ctx,
        content=Content(content),
        contexts="separate" if separate_contexts else "shared",
        compare=not (no_compare or as_fix),
        machine=machine,
    )
    if as_fix:
        corrected = api.audit_fix(request)
        click.echo(corrected.text, nl=False)
        for note in corrected.notes:
            click.echo(note, err=True)
        return int(ExitCode.REFUTED if corrected.errors_left else ExitCode.DONE)
    document = api.audit(request)
    if as_json:
        click.echo(document.model_dump_json(by_alias=True, indent=2))
    else:
        click.echo(audit_text(document), nl=False)
        shown = container or source or "-"
        if document.findings:
            click.echo(f"\nnext: qwendeploy audit {shown} --fix")
    counted = {"error", "warning"} if strict else {"error"}
    found = any(finding.severity in counted for finding in document.findings)
    return int(ExitCode.REFUTED if found else ExitCode.DONE)
