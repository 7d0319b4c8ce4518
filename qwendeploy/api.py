"""The verbs as functions: the command line and other programs call these and nothing below.

Modules that are slow to import are imported inside the verb that needs them, so that ``--help``
and ``recommend`` stay quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwendeploy.auditing.request import AuditRequest
from qwendeploy.auditing.text import LARGEST_BYTES as LARGEST_LAUNCH
from qwendeploy.planning.request import Pins, Request
from qwendeploy.running.settings import UpSettings

__all__ = ["LARGEST_LAUNCH", "AuditRequest", "Pins", "Request", "UpSettings"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from qwendeploy.auditing.run import CorrectedCommand
    from qwendeploy.auditing.score import AuditScore
    from qwendeploy.documents import (
        Machine,
        Plan,
        PredictDocument,
        RunDocument,
        VerifyReport,
        Workload,
    )
    from qwendeploy.documents.audit import AuditDocument
    from qwendeploy.errors import ExitCode
    from qwendeploy.hardware.findings import DoctorReport
    from qwendeploy.rendering.writer import Written
    from qwendeploy.reporting.explanation import Explanation
    from qwendeploy.running.images import Told
    from qwendeploy.running.starting import UpReport
    from qwendeploy.running.watching import Down, Status
    from qwendeploy.tables.checks import CheckReport
    from qwendeploy.tables.importing import Imported
    from qwendeploy.tables.own import ImportRecord
    from qwendeploy.tables.view import TableSummary, TableView
    from qwendeploy.verification.comparing import Comparison
    from qwendeploy.verification.self_test import SelfTest


def generate(
    plan_file: Path,
    kind: str,
    directory: Path,
    *,
    name: str = "qwendeploy",
    replicas_by: str = "auto",
    writable: bool = False,
    force: bool = False,
) -> Written:
    """Write one artefact set of the plan into ``directory``, all files or none.

    Raises:
        UserError: the plan cannot be read or is impossible, or files differ and not ``force``.
    """
    from qwendeploy.rendering import generating

    return generating.generate(
        plan_file,
        kind,
        directory,
        name=name,
        replicas_by=replicas_by,
        writable=writable,
        force=force,
    )


def artefact_text(
    plan_file: Path, kind: str, *, name: str, replicas_by: str, writable: bool
) -> str:
    """Return the main file of one artefact kind without writing anything."""
    from qwendeploy.rendering import generating

    return generating.artefact_text(
        plan_file, kind, name=name, replicas_by=replicas_by, writable=writable
    )


def start_command(kind: str, directory: Path, name: str) -> str:
    """Return the command line that starts an artefact set."""
    from qwendeploy.rendering import generating

    return generating.start_command(kind, directory, name)


def data_list() -> tuple[TableSummary, ...]:
    """Return one summary per shipped table."""
    from qwendeploy.tables import view

    return view.summaries()


def data_show(
    table: str, *, where: Iterable[str] = (), columns: Sequence[str] = (), limit: int | None = None
) -> TableView:
    """Return the rows of a table that meet every condition ``column=value`` (or ``>=`` …).

    Raises:
        UserError: an unknown table, column or operator.
    """
    from qwendeploy.tables import view

    return view.view(table, where=where, columns=columns, limit=limit)


def data_check(directory: Path | None = None) -> CheckReport:
    """Return every problem of the tables in a directory, by default the shipped ones.

    Raises:
        UserError: the directory is missing or holds no table.
    """
    from qwendeploy.tables import checks

    return checks.check_tables(directory)


def recommend(machine: Machine, workload: Workload, request: Request | None = None) -> Plan:
    """Return the plan for a machine and a workload.

    Raises:
        NoPlan: no option is feasible, or the machine cannot serve; carries the trace.
        UserError: the settings contradict each other or name something unknown.
    """
    from qwendeploy.planning.recommend import recommend as planned

    return planned(machine, workload, request)


def resolve_machine(
    *,
    gpu: str | None = None,
    gpus: int | None = None,
    vram: float | None = None,
    driver: str | None = None,
    nvlink: bool | None = None,
    devices: str | None = None,
    machine_file: Path | None = None,
) -> Machine:
    """Return the machine that is stated, stored in a file, found here, or assumed, in that order.

    Raises:
        UserError: a setting is invalid or contradicts another, or a file cannot be read.
        EnvironmentProblem: this computer's GPUs cannot be read or none is usable.
    """
    from qwendeploy.planning.machines import resolve

    return resolve(
        gpu=gpu,
        gpus=gpus,
        vram=vram,
        driver=driver,
        nvlink=nvlink,
        devices=devices,
        machine_file=machine_file,
    )


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
        KeyboardInterrupt: after what was measured is saved.
    """
    from qwendeploy.documents.files import read_plan
    from qwendeploy.reporting.verify_files import REPORT_FILES, write_report
    from qwendeploy.verification import target as where
    from qwendeploy.verification.client import Limits as Deadlines
    from qwendeploy.verification.closed_loop import Limits
    from qwendeploy.verification.settings import Settings
    from qwendeploy.verification.verifying import report_on, verify_once
    from qwendeploy.verification.writer import RUN_FILE, claim_directory, write_run

    plan = read_plan(plan_file) if plan_file is not None else None
    address = where.address_of(plan, base_url)
    target = where.resolve_target(address, **(access or {}))
    wanted = Settings(
        **{
            **(settings or {}),
            "latency_limits": Limits(**(limits or {})),
            "limits": Deadlines(**(deadlines or {})),
        }
    )
    if directory is not None:
        claim_directory(directory, (RUN_FILE, *REPORT_FILES), force=force)
    runs = []
    for boot in range(boots):
        if boots > 1 and plan_file is not None:
            _start_anew(plan_file, told)
        place, name = directory, run_id
        if boots > 1:
            place = directory / f"boot-{boot + 1}" if directory else None
            name = f"{run_id}-{boot + 1}" if run_id else None
        runs.append(
            verify_once(
                plan,
                target,
                wanted,
                directory=place,
                told=told,
                inputs=dict(inputs or {}),
                run_id=name,
            )
        )
    run, count = runs[0], 1
    if boots > 1:
        from qwendeploy.verification.boots import pool_runs

        run, count = pool_runs(runs)
        if directory is not None:
            write_run(directory, run)
    report = report_on(run, plan, rate_only=rate_only, boots=count)
    if directory is not None:
        write_report(directory, report, plan)
    return run, report


def _start_anew(plan_file: Path, told: Callable[[str, float | None], None]) -> None:
    """Start the plan's container in a new boot of the engine."""
    from qwendeploy.running.settings import UpSettings

    settings = UpSettings(yes=True)
    down(settings.name)
    up(plan_file, settings, told)


def verify_self_test() -> SelfTest:
    """Return what the measuring client adds to every time on this host."""
    from qwendeploy.verification.self_test import self_test

    return self_test()


def export_bench(run: RunDocument, path: Path, *, force: bool = False) -> None:
    """Write a run that kept its requests in the result format of ``vllm bench serve``.

    Raises:
        UserError: the file exists and not ``force``.
    """
    import json

    from qwendeploy.errors import UserError
    from qwendeploy.verification.bench_serve import bench_serve_result
    from qwendeploy.verification.writer import write_atomically

    if path.exists() and not force:
        raise UserError("exists already", where=str(path), hint="--force overwrites it")
    write_atomically(path, json.dumps(bench_serve_result(run), indent=1) + "\n")


def compare(first: Path, second: Path) -> Comparison:
    """Return what differs between two runs or two plans and whether it is significant.

    Raises:
        UserError: a file is no run, verify report or plan, the two are of unlike kind, or they
            are runs of unlike things (then naming the keys that differ).
    """
    from qwendeploy.verification import comparing

    return comparing.compare_files(first, second)


def predict(
    machine: Machine,
    workload: Workload,
    request: Request,
    concurrency: Sequence[int],
    context: Sequence[int],
) -> PredictDocument:
    """Return the figures of the option that the request states, over a grid.

    Raises:
        NoPlan: the option cannot run on this machine; names the rule.
        UserError: too little is stated, or something unknown.
    """
    from qwendeploy.planning import predict as predicting

    grid = predicting.Grid(concurrency, context)
    return predicting.predict(machine, workload, request, grid)


def predict_plan(
    plan_file: Path, concurrency: Sequence[int], context: Sequence[int]
) -> PredictDocument:
    """Return the figures of a stored plan's option over a grid. Raises as ``predict``."""
    from qwendeploy.documents.files import read_plan
    from qwendeploy.planning import predict as predicting

    return predicting.predict_plan(read_plan(plan_file), predicting.Grid(concurrency, context))


def detect(
    paths: Sequence[str | Path] = (),
    *,
    gpu: str | None = None,
    count: int | None = None,
    vram_gib: float | None = None,
    driver: str | None = None,
    system: str | None = None,
) -> Machine:
    """Return the machine of saved output in ``paths``, without paths this computer.

    What is stated besides fills what the saved output does not show.

    Raises:
        UserError: nothing is recognised, or a statement contradicts the text.
        EnvironmentProblem: this computer shows no usable NVIDIA GPU.
    """
    from qwendeploy import hardware
    from qwendeploy.errors import UserError
    from qwendeploy.hardware.stated import system_named
    from qwendeploy.tables.gpus import gpus

    if paths:
        return hardware.machine_from_files(
            paths,
            catalogue=gpus(),
            gpu=gpu,
            count=count,
            vram_gib=vram_gib,
            driver=driver,
            system=system_named(system),
        )
    if any(value is not None for value in (gpu, count, vram_gib, driver, system)):
        raise UserError(
            "facts are stated but no saved output is named",
            where="detect",
            hint="name files, or describe a machine with 'recommend --gpu NAME --gpus N'",
        )
    return hardware.detect(gpus())


def refuse_unusable(machine: Machine, *, live: bool) -> None:
    """Raise if the machine cannot serve.

    Raises:
        EnvironmentProblem: it is this computer (``live``).
        NoPlan: it comes from a file or a statement.
    """
    from qwendeploy import hardware

    hardware.refuse_unusable(machine, live=live)


def load_machine(path: str | Path) -> Machine:
    """Return the machine of a machine document or of saved output.

    Raises:
        UserError: the file is unreadable or holds no machine.
    """
    from qwendeploy import hardware
    from qwendeploy.tables.gpus import gpus

    return hardware.load_machine(path, catalogue=gpus())


def save_machine(machine: Machine, path: Path, *, force: bool = False) -> None:
    """Write a machine document, whole or not at all.

    Raises:
        UserError: the file exists and not ``force``, or cannot be written.
    """
    from qwendeploy import hardware

    hardware.save_machine(machine, path, force=force)


def describe_machine(machine: Machine) -> str:
    """Return a machine's facts as text."""
    from qwendeploy.hardware.text import describe_machine as describe

    return describe(machine)


def data_import(
    file: Path,
    stated: Mapping[str, Any],
    *,
    plan_file: Path | None = None,
    format: str | None = None,
    skip_bad: bool = False,
    dry_run: bool = False,
) -> Imported:
    """Add the loads of a result file to one's own table, all or none.

    ``stated`` are fields of ``tables.importers.rows.Statement``; they outrank the plan's.

    Raises:
        UserError: an unknown format, GPU or weights, a contradiction, or a second import.
        DataError: a value of the file is bad; nothing was added.
    """
    from qwendeploy.tables import importing
    from qwendeploy.tables.importers.rows import state
    from qwendeploy.verification.importable import refuse_other_server

    if plan_file is not None:
        refuse_other_server(file, plan_file)
    return importing.import_file(
        file, state(stated, plan_file), format=format, skip_bad=skip_bad, dry_run=dry_run
    )


def data_imports() -> tuple[ImportRecord, ...]:
    """Return the record of every import into one's own table, oldest first."""
    from qwendeploy.tables import own

    return own.records()


def data_export(output: Path, *, ids: Sequence[str] = (), force: bool = False) -> int:
    """Write one's own rows as a redacted contribution file; return how many rows.

    Raises:
        UserError: nothing to export, an unknown import, or the file exists and not ``force``.
    """
    from qwendeploy.tables import importing

    return importing.export(output, ids=ids, force=force)


def data_forget(import_id: str) -> int:
    """Remove an import, or the pool of an own start (``own/…``); return how many rows.

    Raises:
        UserError: there is no such import or pool.
    """
    from qwendeploy.tables import own, own_pools

    if import_id.startswith("own/"):
        own_pools.forget_pool(import_id)
        return 1
    return own.forget(import_id)


def audit(request: AuditRequest) -> AuditDocument:
    """Return what a foreign launch will do: findings, memory, rates, difference to our plan.

    Raises:
        UserError: the source or the machine's description cannot be read.
        EnvironmentProblem: Docker does not answer or knows no such container.
    """
    from qwendeploy.auditing import run

    return run.audit(request)


def audit_fix(request: AuditRequest) -> CorrectedCommand:
    """Return the launch with every finding corrected that has one plain correction.

    Raises as ``audit``.
    """
    from qwendeploy.auditing import run

    return run.audit_fix(request)


def audit_score(folder: Path | None = None) -> AuditScore:
    """Return recall and false alarms of ``audit`` over a folder of cases with known outcome.

    Without a folder the cases of the checkout are scored.

    Raises:
        UserError: the folder holds no case, or a case cannot be read.
    """
    from qwendeploy.auditing import score

    return score.score_folder(folder or score.checkout_cases())


def doctor(
    plan_file: Path | None = None,
    *,
    image: str | None = None,
    port: int | None = None,
    devices: str | None = None,
    sources: Sequence[str | Path] = (),
    bundle: Path | None = None,
    force: bool = False,
) -> DoctorReport:
    """Return what will bite on this computer, or on the box whose output ``sources`` hold.

    Raises:
        UserError: the plan or the sources cannot be read, or the bundle exists and not ``force``.
    """
    from qwendeploy.hardware.bundle import bundle_bytes
    from qwendeploy.hardware.doctor import doctor_files, doctor_here
    from qwendeploy.hardware.files import write_new
    from qwendeploy.planning.needs import needs_of
    from qwendeploy.tables.gpus import gpus

    needs = needs_of(plan_file, image=image, port=port, devices=devices)
    if sources:
        report = doctor_files(sources, needs, catalogue=gpus())
    else:
        report = doctor_here(needs, catalogue=gpus())
    if bundle is not None:
        write_new(bundle, bundle_bytes(report, live=not sources), force=force)
    return report


def describe_doctor(report: DoctorReport) -> str:
    """Return the findings as text."""
    from qwendeploy.hardware.doctor import describe_report

    return describe_report(report)


def refuse_errors(report: DoctorReport, *, live: bool) -> None:
    """Raise ``EnvironmentProblem`` (``NoPlan`` for saved output) if a finding is an error."""
    from qwendeploy.hardware.doctor import refuse_errors as refuse

    refuse(report, live=live)


def explain(name: str | None, *, plan_file: Path | None = None) -> tuple[Explanation, ...]:
    """Return what a name means, or why a plan is as it is (``name`` then narrows it).

    Raises:
        UserError: nothing is known under the name, or the plan cannot be read.
    """
    from qwendeploy.reporting import explanation

    if plan_file is None:
        return explanation.explain(name or "")
    from qwendeploy.documents.files import read_plan

    return explanation.explain_plan(read_plan(plan_file), name)


def explain_topics() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the names that ``explain`` answers, by group."""
    from qwendeploy.reporting.explanation import topic_groups

    return topic_groups()


def up(plan_file: Path, settings: UpSettings, told: Told | None = None) -> UpReport:
    """Start a plan through Docker, wait until it serves, compare applied with asked.

    Secrets come from ``settings.secrets_file``, else from ``secrets.env`` beside the plan.

    Raises:
        UserError: the plan is impossible or for another machine, or a container is in the way.
        EnvironmentProblem: Docker, image, port or GPUs are not to be had.
        FailedStart: the engine ended or hung.
    """
    from dataclasses import replace

    from qwendeploy.documents.files import read_plan
    from qwendeploy.running import starting

    plan = read_plan(plan_file)
    beside = plan_file.resolve().parent / "secrets.env"
    if settings.secrets_file is None and beside.exists():
        settings = replace(settings, secrets_file=beside)
    return starting.up(plan, settings, told or (lambda _text, _share: None))


def status(name: str | None = None) -> tuple[Status, ...]:
    """Return what the containers of ``name``, or all of ours, are doing."""
    from qwendeploy.running import watching

    return watching.status(name)


def status_exit_code(statuses: tuple[Status, ...]) -> ExitCode:
    """Return the exit code that goes with the statuses."""
    from qwendeploy.running import watching

    return watching.exit_code_of(statuses)


def logs(name: str, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
    """Yield the log lines of a started plan."""
    from qwendeploy.running import watching

    return watching.logs(name, follow=follow, tail=tail)


def down(name: str, *, timeout_s: int = 60) -> Down:
    """Stop and remove a started plan; its caches stay."""
    from qwendeploy.running import watching

    return watching.down(name, timeout_s=timeout_s)
