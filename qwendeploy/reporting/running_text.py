"""Text of ``up``, ``status`` and ``down``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from qwendeploy.documents import Cause
from qwendeploy.running.starting import UpReport
from qwendeploy.running.waiting import FailedStart
from qwendeploy.running.watching import Down, Status


def up_text(report: UpReport, plan_file: str) -> str:
    """Return the outcome of ``up``: what runs, and every setting that differs from the plan."""
    lines = [f"{report.name}: {report.did}, serving at {report.base_url}"]
    if report.boot_s is not None:
        lines[0] += f" after {report.boot_s:.0f} s"
    lines.append(f"plan {report.plan_id}, image {report.image.reference}")
    wrong = [check for check in report.checks if not check.agrees]
    agreed = ", ".join(check.what for check in report.checks if check.agrees)
    if wrong:
        lines.append(f"{len(wrong)} of {len(report.checks)} settings differ from the plan:")
        for check in wrong:
            lines.append(f"  {check.what} ({check.witness}): planned {check.asked}")
            lines.append(f"    applied {check.applied}")
            if check.cause:
                lines.append(f"    likely: {check.cause}")
    lines.append(f"as planned: {agreed}")
    lines += _cause_lines(report.causes)
    lines += [f"note: {note}" for note in report.notes]
    plan = "PLAN" if plan_file == "-" else shlex.quote(plan_file)
    lines.append(f"next: qwendeploy verify {plan} --base-url {report.base_url}")
    return "\n".join(lines)


def failed_text(problem: BaseException) -> str:
    """Return the last log lines of a failed start, the causes, and the resulting state."""
    lines = []
    if isinstance(problem, FailedStart):
        lines += [f"  | {line}" for line in problem.lines]
        lines += _cause_lines(problem.causes)
    lines += [f"state: {note}" for note in getattr(problem, "__notes__", ())]
    return "\n".join(lines)


def _cause_lines(causes: Iterable[Cause]) -> list[str]:
    lines = []
    for cause in causes:
        lines += [
            f"cause: {cause.text} [{cause.id}]",
            f"  evidence: {cause.evidence}",
            f"  fix: {cause.fix}",
        ]
    return lines


def up_json(report: UpReport) -> dict[str, Any]:
    """Return the report as JSON content."""
    content = asdict(report)
    content["causes"] = [cause.model_dump(mode="json") for cause in report.causes]
    content["agrees"] = all(check.agrees for check in report.checks)
    return content


def status_text(statuses: tuple[Status, ...]) -> str:
    """Return one block for each container."""
    if not statuses:
        return "no containers; start a plan with `qwendeploy up plan.yaml`"
    return "\n".join(_status_block(status) for status in statuses)


def _status_block(status: Status) -> str:
    head = f"{status.name}: {'serving' if status.serving else status.phase}"
    lines = [f"{head} (container {status.state}, health {status.health})"]
    lines.append(f"  plan {status.plan_id}, image {status.image}")
    if status.base_url:
        lines.append(f"  {status.base_url}, started {status.started_at}")
    if status.restarts:
        lines.append(f"  restarted {status.restarts} times after a crash")
    if status.exit_code is not None:
        lines.append(f"  exit code {status.exit_code}")
    if status.running_requests is not None:
        waiting = f"{status.waiting_requests:.0f}" if status.waiting_requests is not None else "?"
        usage = f"{status.kv_usage:.0%}" if status.kv_usage is not None else "?"
        lines.append(
            f"  {status.running_requests:.0f} requests running, {waiting} waiting,"
            f" KV cache usage {usage}"
        )
    lines += [f"  {line}" for line in _cause_lines(status.causes)]
    return "\n".join(lines)


def status_json(statuses: tuple[Status, ...]) -> list[dict[str, Any]]:
    """Return the statuses as JSON content."""
    return [
        asdict(status) | {"causes": [cause.model_dump(mode="json") for cause in status.causes]}
        for status in statuses
    ]


def down_text(done: Down, name: str) -> str:
    """Return what was removed and what was kept."""
    first = f"removed {', '.join(done.removed)}" if done.removed else f"nothing named {name} found"
    if not done.kept_volumes:
        return first
    return f"{first}\nkept for the next start: {', '.join(done.kept_volumes)}"
