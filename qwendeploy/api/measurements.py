"""Measurements: a live server measured, judged, compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qwendeploy.api.servers import down, up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from qwendeploy.documents import RunDocument, VerifyReport
    from qwendeploy.verification.judging.comparing import Comparison
    from qwendeploy.verification.self_test import SelfTest
    from qwendeploy.verification.settings import Settings


def new_run_id() -> str:
    """Return an id for a run that is about to start; its directory below ``runs`` is named so."""
    from qwendeploy.verification.settings import run_name

    return run_name()


def verify(
    plan_file: Path | None,
    base_url: str | None,
    *,
    settings: Mapping[str, Any] | None = None,
    limits: Mapping[str, float | None] | None = None,
    deadlines: Mapping[str, float] | None = None,
    access: Mapping[str, Any] | None = None,
    directory: Path | None = None,
    force: bool = False,
    rate_only: bool = False,
    boots: int = 1,
    run_id: str | None = None,
    told: Callable[[str, float | None], None] = lambda _text, _share: None,
    inputs: Mapping[str, Any] | None = None,
) -> tuple[RunDocument, VerifyReport]:
    """Measure a live server, judge the plan if there is one, and write run and report.

    ``settings`` are the fields of ``verification.settings.Settings``, ``limits`` those of its
    latency limits, ``deadlines`` those of the client's limits in seconds, ``access`` those of
    ``resolve_target``: model, key, certificates, proxy.
    Without a directory nothing is written. With ``boots`` above 1 the plan is started anew by
    ``up`` for each and the interval is over boots.

    Raises:
        UserError: bad address, plan, key or model, or the directory holds a run already.
        EnvironmentProblem: the server cannot be reached or generates nothing.
        NotSaved: the report could not be written; it holds the report.
        KeyboardInterrupt: after what was measured is saved.
    """
    from functools import partial

    from qwendeploy.documents.files import read_plan
    from qwendeploy.errors import EnvironmentProblem, NotSaved
    from qwendeploy.reporting.verify_files import REPORT_FILES, write_report
    from qwendeploy.verification.verifying import report_on, verify_once
    from qwendeploy.verification.wire.target import address_of, resolve_target
    from qwendeploy.verification.writer import RUN_FILE, claim_directory

    plan = read_plan(plan_file) if plan_file is not None else None
    target = resolve_target(address_of(plan, base_url), **(access or {}))
    wanted = _settings(settings or {}, limits or {}, deadlines or {})
    if directory is not None:
        claim_directory(directory, (RUN_FILE, *REPORT_FILES), force=force)
    once = partial(verify_once, plan, target, wanted, told=told, inputs=dict(inputs or {}))
    if boots == 1:
        run = once(directory=directory, run_id=run_id)
    else:
        start = partial(_start_anew, plan_file, told) if plan_file is not None else None
        run = _over_boots(once, boots, start, directory=directory, run_id=run_id)
    report = report_on(run, plan, rate_only=rate_only)
    if directory is not None:
        try:
            write_report(directory, report, plan)
        except EnvironmentProblem as problem:
            raise NotSaved(problem, report) from None
    return run, report


def _settings(
    settings: Mapping[str, Any],
    limits: Mapping[str, float | None],
    deadlines: Mapping[str, float],
) -> Settings:
    from qwendeploy.verification.loads.closed_loop import LoopLimits
    from qwendeploy.verification.settings import Settings
    from qwendeploy.verification.wire.client import Limits as Deadlines

    nested = {"latency_limits": LoopLimits(**limits), "limits": Deadlines(**deadlines)}
    return Settings(**{**settings, **nested})


def _over_boots(
    once: Callable[..., RunDocument],
    boots: int,
    start: Callable[[], None] | None,
    *,
    directory: Path | None,
    run_id: str | None,
) -> RunDocument:
    """Return the pooled run of several boots, each in a directory of its own."""
    from qwendeploy.verification.judging.boots import pool_runs
    from qwendeploy.verification.writer import write_run

    runs = []
    for boot in range(1, boots + 1):
        if start is not None:
            start()
        place = directory / f"boot-{boot}" if directory else None
        runs.append(once(directory=place, run_id=f"{run_id}-{boot}" if run_id else None))
    run = pool_runs(runs)
    if directory is not None:
        write_run(directory, run)
    return run


def _start_anew(plan_file: Path, told: Callable[[str, float | None], None]) -> None:
    """Start the plan's container in a new boot of the engine."""
    from qwendeploy.running.settings import UpSettings

    settings = UpSettings(yes=True)
    down(settings.name)
    up(plan_file, settings, told)


def verify_notices(plan_file: Path, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a run of these settings cannot say of the plan. Raises as ``verify``."""
    from qwendeploy.documents.files import read_plan
    from qwendeploy.verification.beforehand import notices
    from qwendeploy.verification.settings import Settings

    return notices(read_plan(plan_file), Settings(**settings))


def verify_self_test() -> SelfTest:
    """Return what the measuring client adds to every time on this host."""
    from qwendeploy.verification.self_test import self_test

    return self_test()


def export_bench(run: RunDocument, path: Path, *, force: bool = False) -> None:
    """Write a run that kept its requests in the result format of ``vllm bench serve``.

    Raises:
        UserError: the file exists and not ``force``.
        EnvironmentProblem: it cannot be written.
    """
    import json

    from qwendeploy.documents.disk import write_file
    from qwendeploy.errors import EnvironmentProblem
    from qwendeploy.verification.bench_serve import bench_serve_result

    text = json.dumps(bench_serve_result(run), indent=1) + "\n"
    write_file(path, text.encode(), 0o644, force=force, kind=EnvironmentProblem)


def compare(first: Path, second: Path) -> Comparison:
    """Return what differs between two runs or two plans and whether it is significant.

    Raises:
        UserError: a file is no run, verify report or plan, the two are of unlike kind, or they
            are runs of unlike things (then naming the keys that differ).
    """
    from qwendeploy.verification.judging import comparing

    return comparing.compare_files(first, second)
