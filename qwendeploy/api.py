"""The verbs as functions: the command line and other programs call these and nothing below.

Modules that are slow to import are imported inside the verb that needs them, so that ``--help``
and ``recommend`` stay quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qwendeploy.planning.request import Pins, Request

__all__ = ["Pins", "Request"]

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from qwendeploy.documents import Machine, Plan, Workload
    from qwendeploy.rendering.writer import Written
    from qwendeploy.tables.checks import CheckReport
    from qwendeploy.tables.view import TableSummary, TableView


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
