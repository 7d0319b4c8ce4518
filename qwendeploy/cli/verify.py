"""``qwendeploy verify``: measure a live server and judge the plan's prediction."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from qwendeploy import api
from qwendeploy.cli._common import COUNT_LIST, TOKEN_LIST, TOKENS, FiniteRange
from qwendeploy.documents import Content, VerifyReport
from qwendeploy.errors import ExitCode, NotSaved, UserError
from qwendeploy.reporting.progress import progress
from qwendeploy.reporting.verify_text import self_test_text, verify_text

ACCESS = ("model", "api_key_file", "api_key_env", "ca_file", "insecure", "use_proxy")


@click.command("verify")
@click.argument("plan", type=click.Path(path_type=Path), required=False)
@click.option(
    "--base-url", "--url", "base_url", metavar="URL", help="Server URL; default: the plan's."
)
@click.option("--model", help="Served model name; default: the plan's, or the first one served.")
@click.option("--api-key-file", type=click.Path(path_type=Path), help="File with the API key.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable with the API key.")
@click.option(
    "--cacert", "ca_file", type=click.Path(path_type=Path), help="CA certificate to trust."
)
@click.option("--insecure", is_flag=True, help="Do not verify the server's certificate.")
@click.option(
    "--proxy/--no-proxy",
    "use_proxy",
    default=None,
    help="Use the proxy of the environment; default: only for other hosts.",
)
@click.option(
    "--quick", "level", flag_value="quick", help="Rate only, 2 to 3 minutes; no fill test."
)
@click.option(
    "--standard",
    "level",
    flag_value="standard",
    default=True,
    help="Rate, fill test and gates (default).",
)
@click.option("--thorough", "level", flag_value="thorough", help="Longer windows and more repeats.")
@click.option("--rate-only", is_flag=True, help="Judge the rate only; no fill test, no gates.")
@click.option("--fill/--no-fill", default=None, help="Fill the KV cache as planned.")
@click.option("--gates/--no-gates", default=None, help="Run the functional gates.")
@click.option(
    "--c",
    "--concurrency",
    "concurrency",
    type=click.IntRange(1, 4096),
    help="Concurrent requests; default: the plan's.",
)
@click.option("--ctx", "context", type=TOKENS, help="Context per request.")
@click.option(
    "--contexts",
    type=click.Choice(["shared", "separate"]),
    help="One warm context for all requests, or one each; default: the plan's.",
)
@click.option(
    "--content", type=click.Choice([one.value for one in Content]), help="Prompt content."
)
@click.option(
    "--window", "window_s", type=FiniteRange(0.5, 3600), help="Length of a measurement window, s."
)
@click.option("--windows", type=click.IntRange(1, 1000), help="Maximum number of windows.")
@click.option(
    "--settle",
    "settle_s",
    type=FiniteRange(1, 3600),
    default=45.0,
    help="Maximum wait for a steady rate, s.",
)
@click.option(
    "--patience",
    "patience_s",
    type=FiniteRange(1, 3600),
    default=30.0,
    help="Wait after which a queued request counts as not running, s.",
)
@click.option(
    "--hold",
    "hold_s",
    type=FiniteRange(0.5, 3600),
    default=5.0,
    help="Time to observe the filled KV cache, s.",
)
@click.option(
    "--timeout-first",
    type=FiniteRange(1, 86400),
    default=600.0,
    help="Maximum wait for the first token, s.",
)
@click.option(
    "--timeout-gap",
    type=FiniteRange(1, 86400),
    default=60.0,
    help="Maximum gap between tokens, s.",
)
@click.option(
    "--repeats", type=click.IntRange(1, 100), help="Repeats of the time-to-first-token test."
)
@click.option("--wait", "wait_s", type=FiniteRange(0, 86400), default=30.0, show_default=True)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    type=click.Choice(["decode", "prompt", "mixed", "chat"]),
    help="Additional loads: cold prompts, whole requests, multi-turn chats. Repeatable.",
)
@click.option(
    "--ladder-c", type=COUNT_LIST, default=(), help="Additional concurrencies for the decode rate."
)
@click.option(
    "--ladder-ctx", type=TOKEN_LIST, default=(), help="Additional contexts for the decode rate."
)
@click.option("--isl", type=TOKENS, help="Input tokens per request of mixed and chat.")
@click.option("--osl", type=TOKENS, help="Output tokens per request of mixed and chat.")
@click.option(
    "--spread", type=FiniteRange(0, 1), default=0.0, help="Relative spread of --isl and --osl."
)
@click.option("--seconds", "loop_s", type=FiniteRange(1), help="Duration of mixed and chat, s.")
@click.option("--soak", "soak_s", type=FiniteRange(0), help="Additional decode time at the end, s.")
@click.option("--ttft", "ttft_ms", type=FiniteRange(0, min_open=True), help="TTFT limit, ms.")
@click.option("--tpot", "tpot_ms", type=FiniteRange(0, min_open=True), help="TPOT limit, ms.")
@click.option("--e2e", "e2e_ms", type=FiniteRange(0, min_open=True), help="End-to-end limit, ms.")
@click.option("--boots", type=click.IntRange(1, 20), help="Number of server starts to measure.")
@click.option(
    "--self-test", is_flag=True, help="Print the measurement error of the client on this host."
)
@click.option(
    "--export-bench",
    type=click.Path(path_type=Path),
    help="Write the result in the format of vllm bench serve.",
)
@click.option("--keep-requests", is_flag=True, help="Store per-request data in run.json.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Output directory of this run."
)
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Parent directory of runs without -o.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing run.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    plan: Path | None,
    base_url: str | None,
    output: Path | None,
    runs: Path,
    force: bool,
    rate_only: bool,
    as_json: bool,
    self_test: bool,
    boots: int | None,
    export_bench: Path | None,
    **settings: Any,
) -> int:
    """Measure a live server and compare it with PLAN; without PLAN, only measure."""
    if self_test:
        return _self_test(as_json)
    if boots is not None and plan is None:
        raise UserError("a restart needs a plan", where="--boots", hint="give PLAN")
    if export_bench is not None and export_bench.exists() and not force:
        raise UserError(
            "exists already",
            where=f"--export-bench {export_bench}",
            hint="use --force to overwrite it",
        )
    limits = {name: settings.pop(name) for name in ("ttft_ms", "tpot_ms", "e2e_ms")}
    deadlines = {"first": settings.pop("timeout_first"), "gap": settings.pop("timeout_gap")}
    settings["keep_requests"] = settings["keep_requests"] or export_bench is not None
    if settings["content"] is not None:
        settings["content"] = Content(settings["content"])
    if rate_only:
        if settings["fill"] or settings["gates"]:
            raise UserError("--rate-only excludes fill and gates", where="--fill, --gates")
        settings["fill"] = settings["gates"] = False
    access = {name: settings.pop(name) for name in ACCESS}
    run_id = api.new_run_id()
    directory = output or runs / run_id
    inputs = {
        "plan": str(plan) if plan else None,
        "base_url": base_url,
        **{name: value for name, value in settings.items() if value is not None},
    }
    for line in api.verify_notices(plan, settings) if plan is not None else ():
        click.echo(f"note: {line}", err=True)
    if settings["level"] == "thorough" and boots is None and plan is not None:
        click.echo("note: one boot; --boots 3 restarts the server and measures each boot", err=True)
    try:
        with progress(quiet=as_json) as told:
            run, report = api.verify(
                plan,
                base_url,
                settings=settings,
                limits=limits,
                deadlines=deadlines,
                boots=boots or 1,
                run_id=run_id,
                access=access,
                directory=directory,
                force=force,
                rate_only=rate_only,
                told=told,
                inputs=inputs,
            )
    except KeyboardInterrupt:
        saved = directory / "run.json"
        text = f"results so far are in {saved}" if saved.exists() else "nothing was measured"
        click.echo(f"interrupted; {text}", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except NotSaved as problem:
        _show(problem.result, as_json=as_json)
        click.echo(f"error: {problem}", err=True)
        return problem.exit_code
    _show(report, as_json=as_json)
    if not as_json:
        click.echo(f"written: {directory} (run.json, verify.json, verify.txt, report.html)")
    if export_bench is not None:
        api.export_bench(run, export_bench, force=force)
    return report.exit_code


def _show(report: VerifyReport, *, as_json: bool) -> None:
    """Print a report."""
    if as_json:
        click.echo(report.model_dump_json(by_alias=True, indent=2))
    else:
        click.echo(verify_text(report), nl=False)


def _self_test(as_json: bool) -> int:
    """Print the client's error; exit 3 if it measures nothing right here."""
    with progress(quiet=as_json) as told:
        told("measuring the client", None)
        found = api.verify_self_test()
    if as_json:
        click.echo(json.dumps({**asdict(found), "ceiling": found.ceiling}, indent=2))
    else:
        click.echo(self_test_text(found), nl=False)
    return ExitCode.DONE if found.ceiling is not None else ExitCode.INCONCLUSIVE
