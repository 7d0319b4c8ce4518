"""Two runs or two plans side by side: what changed, and whether the change means anything.

Runs are compared only if they measured the same thing on the same machine. A difference between
two boots must exceed what one boot differs from the next; it is *significant* only if its interval
leaves out zero.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from qwendeploy.documents import PREDICTION_NAMES, Plan, RunDocument, VerifyReport
from qwendeploy.documents.files import read_document, schema_of
from qwendeploy.errors import UserError
from qwendeploy.figures import Figure
from qwendeploy.verification import statistics as st
from qwendeploy.verification.judging.doubts import undecidable
from qwendeploy.verification.judging.quantities import COUNTED, OF_REQUESTS, over_boots

OF_LOOPS = (*OF_REQUESTS, "goodput_rps", "requests_rps")


@dataclass(frozen=True)
class Change:
    """A setting or fact that differs."""

    what: str
    first: str
    second: str


@dataclass(frozen=True)
class Difference:
    """One quantity in both, and the relative change with its interval."""

    quantity: str
    first: Figure | None
    second: Figure | None
    change: float | None
    """(second - first) / first."""
    low: float | None
    high: float | None
    significant: bool | None
    """``None`` if unknown."""
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """Everything that differs between two documents."""

    kind: Literal["runs", "plans"]
    first: str
    second: str
    changes: tuple[Change, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()


def compare_files(first: Path, second: Path) -> Comparison:
    """Return the comparison of two stored documents of one kind.

    Raises:
        UserError: a file is neither run, verify report nor plan, or they cannot be compared.
    """
    a, b = _load(first), _load(second)
    if isinstance(a, Plan) and isinstance(b, Plan):
        return compare_plans(a, b)
    if isinstance(a, RunDocument) and isinstance(b, RunDocument):
        return compare_runs(a, b)
    raise UserError(
        "cannot compare a plan with a run",
        where=f"{first} and {second}",
        hint="`qwendeploy verify` compares a plan with a live server",
    )


def _load(path: Path) -> Plan | RunDocument:
    if path.is_dir():
        path = path / "run.json"
    kinds: dict[str, type[Plan] | type[RunDocument] | type[VerifyReport]] = {
        "qwendeploy/plan": Plan,
        "qwendeploy/run": RunDocument,
        "qwendeploy/verify": VerifyReport,
    }
    schema = schema_of(path)
    if schema not in kinds:
        raise UserError(
            f"{schema!r} is not a run, verify report or plan",
            where=str(path),
            hint="pass a run directory, a run.json or a plan.yaml",
        )
    document = read_document(path, kinds[schema])
    return document.run if isinstance(document, VerifyReport) else document


def identity(run: RunDocument) -> dict[str, Any]:
    """Return what must agree for two runs to be comparable."""
    server = run.server
    point = run.operating_point
    return {
        "server.model": (server.root or server.model) if server else None,
        "machine_id": run.machine_id,
        "shape": point.get("shape", "decode"),
        "operating_point.concurrency": point.get("concurrency"),
        "operating_point.context": point.get("context"),
        "operating_point.contexts": point.get("contexts"),
        "operating_point.content": point.get("content"),
    }


def compare_runs(a: RunDocument, b: RunDocument) -> Comparison:
    """Return the differences of two runs.

    Raises:
        UserError: they measured unlike things; names every key that differs.
    """
    unlike = [
        f"{key}: {one!r} and {two!r}"
        for (key, one), two in zip(identity(a).items(), identity(b).values(), strict=True)
        if one != two and one is not None and two is not None
    ]
    if unlike:
        raise UserError(
            f"the runs are not comparable ({'; '.join(unlike)})",
            where=f"{a.run_id} and {b.run_id}",
            hint="compare runs of the same model, operating point and machine",
        )
    same_boot = bool(
        a.server and b.server and a.server.boot_id and a.server.boot_id == b.server.boot_id
    )
    names = [name for name in dict.fromkeys([*a.figures, *b.figures])]
    doubts = ((run.run_id, undecidable(run)) for run in (a, b))
    doubt = "; ".join(f"{name}: {why}" for name, why in doubts if why)
    differences = tuple(
        _told_apart(
            _difference(name, a.figures.get(name), b.figures.get(name), same_boot=same_boot),
            _other_load(a, b, name) or ("" if name in COUNTED else doubt),
        )
        for name in names
        if a.figures.get(name) is not None or b.figures.get(name) is not None
    )
    notes = []
    for run in (a, b):
        if run.status != "complete":
            notes.append(f"{run.run_id} is {run.status}")
        if run.client and run.client.limited:
            notes.append(f"{run.run_id}: {run.client.limited_reason}")
    if a.run_id == b.run_id:
        notes.append("both are the same run")
    elif same_boot:
        notes.append("both runs are from the same boot: no boot-to-boot spread is added")
    if a.machine_id is None or b.machine_id is None:
        notes.append("a run without a plan has no machine: the machines are assumed to be the same")
    return Comparison(
        kind="runs",
        first=a.run_id,
        second=b.run_id,
        changes=tuple(_run_changes(a, b)),
        differences=differences,
        notes=tuple(notes),
    )


def _other_load(a: RunDocument, b: RunDocument, name: str) -> str:
    """Return how the loads differ that a quantity of further shapes was measured on, if they do."""
    if name in OF_LOOPS:
        shapes = {"mixed", "chat"}
    elif name.startswith("ttft_"):
        shapes = {"prompt"}
    else:
        return ""
    one, two = (
        next((step.name for step in run.steps if step.shape in shapes), "") for run in (a, b)
    )
    return "" if one == two or not (one and two) else f"different loads: {one} and {two}"


def _told_apart(difference: Difference, doubt: str) -> Difference:
    """Return the difference without a claim where the runs do not allow one."""
    if not doubt or difference.significant is None:
        return difference
    return replace(difference, low=None, high=None, significant=None, reason=doubt)


def _run_changes(a: RunDocument, b: RunDocument) -> list[Change]:
    changes = _changes({"plan_id": a.plan_id}, {"plan_id": b.plan_id})
    if a.server and b.server:
        keep = ("version", "engine", "max_model_len", "drafting", "kv_pool_blocks")
        changes += _changes(
            {f"server.{key}": getattr(a.server, key) for key in keep},
            {f"server.{key}": getattr(b.server, key) for key in keep},
        )
        changes += _changes(
            {f"cache.{key}": value for key, value in a.server.cache_config.items()},
            {f"cache.{key}": value for key, value in b.server.cache_config.items()},
        )
    changes += _changes({"fill": a.fill.outcome}, {"fill": b.fill.outcome})
    changes += _changes(
        {f"gate {gate.id}": gate.outcome for gate in a.gates},
        {f"gate {gate.id}": gate.outcome for gate in b.gates},
    )
    return changes


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    return [
        Change(key, str(a.get(key, "-")), str(b.get(key, "-")))
        for key in dict.fromkeys([*a, *b])
        if a.get(key, "-") != b.get(key, "-")
    ]


def _difference(name: str, a: Figure | None, b: Figure | None, *, same_boot: bool) -> Difference:
    """Return the relative change with an interval from both figures' own."""
    if a is None or b is None or a.value == 0:
        return Difference(name, a, b, None, None, None, None, "only in one of the two")
    change = (b.value - a.value) / abs(a.value)
    if name in COUNTED:
        return Difference(name, a, b, change, change, change, change != 0)
    if a.n < 2 or b.n < 2:
        return Difference(name, a, b, change, None, None, None, "a single value has no interval")
    half = math.hypot(a.high - a.low, b.high - b.low) / 2 / abs(a.value)
    if not same_boot and not all(over_boots(figure) for figure in (a, b)):
        half = math.hypot(half, st.BOOT_SPREAD * math.sqrt(2))
    low, high = change - half, change + half
    return Difference(name, a, b, change, low, high, not low <= 0 <= high)


def compare_plans(a: Plan, b: Plan) -> Comparison:
    """Return what two plans choose and predict differently."""
    changes = _changes(_machine_facts(a), _machine_facts(b))
    changes += _changes(
        {f"option.{k}": v for k, v in a.option.model_dump(mode="json").items()},
        {f"option.{k}": v for k, v in b.option.model_dump(mode="json").items()},
    )
    changes += _changes(
        {f"operating_point.{k}": v for k, v in a.operating_point.model_dump(mode="json").items()},
        {f"operating_point.{k}": v for k, v in b.operating_point.model_dump(mode="json").items()},
    )
    changes += _changes(
        {f"flag {s.name}": s.value or "set" for s in a.flags},
        {f"flag {s.name}": s.value or "set" for s in b.flags},
    )
    changes += _changes(
        {f"env {s.name}": s.value for s in a.env}, {f"env {s.name}": s.value for s in b.env}
    )
    differences = []
    for name in PREDICTION_NAMES:
        one, two = getattr(a.predictions, name), getattr(b.predictions, name)
        if one is None and two is None:
            continue
        differences.append(_predicted_difference(name, one, two))
    notes = []
    if a.operating_point != b.operating_point:
        notes.append("the plans have different operating points: figures are not comparable")
    return Comparison(
        kind="plans",
        first=a.plan_id,
        second=b.plan_id,
        changes=tuple(changes),
        differences=tuple(differences),
        notes=tuple(notes),
    )


def _machine_facts(plan: Plan) -> dict[str, str]:
    """Return what of a plan's machine decides its figures: the cards that serve, and the host."""
    machine = plan.machine
    serving = plan.gpu_indices or machine.chosen_gpu_indices
    cards = Counter(
        f"{gpu.model or gpu.name or 'unknown GPU'}"
        + (f" {gpu.memory_mib:,} MiB" if gpu.memory_mib else "")
        for gpu in machine.gpus
        if not serving or gpu.index in serving
    )
    return {
        "machine.gpus": ", ".join(f"{n} x {card}" for card, n in cards.items()) or "none",
        "machine.interconnect": machine.interconnect,
        "machine.driver": machine.driver or "unknown",
        "machine.os": machine.os,
    }


def _predicted_difference(name: str, a: Figure | None, b: Figure | None) -> Difference:
    if a is None or b is None or a.value == 0:
        return Difference(name, a, b, None, None, None, None, "only in one of the two")
    change = (b.value - a.value) / abs(a.value)
    apart = a.high < b.low or b.high < a.low
    return Difference(
        name, a, b, change, None, None, apart, "" if apart or change == 0 else "the bands overlap"
    )
