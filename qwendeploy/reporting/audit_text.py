"""Text of an audit, in the style of a linter: place, severity, finding, one sentence, fix."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from qwendeploy.auditing.score import AuditScore, by_kind
from qwendeploy.documents import Predictions
from qwendeploy.documents.audit import AuditChange, AuditDocument, AuditedLaunch, AuditFinding
from qwendeploy.documents.option import Content
from qwendeploy.reporting.plan_text import figure_text
from qwendeploy.reporting.width import text_width

_OUTCOMES = {
    "works": "starts and runs as configured",
    "fails_at_start": "does not start",
    "fails_under_load": "starts, then crashes or hangs under load",
    "degraded": "runs, but with lower speed, shorter context or wrong output",
    "insecure": "runs, but others can access it",
    "wasteful": "runs, but wastes resources",
}
_SHOWN = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization")


def audit_text(document: AuditDocument, *, show_info: bool = True) -> str:
    """Return every launch's findings, figures and changes."""
    blocks = [_launch_text(launch, show_info=show_info) for launch in document.launches]
    return "\n\n".join(blocks) + "\n"


def _launch_text(launch: AuditedLaunch, *, show_info: bool) -> str:
    lines = []
    for finding in launch.findings:
        if finding.severity != "info" or show_info:
            lines += _finding_lines(finding)
    counts = {
        severity: sum(finding.severity == severity for finding in launch.findings)
        for severity in ("error", "warning", "info")
    }
    told = ", ".join(
        f"{count} {severity if severity == 'info' or count == 1 else severity + 's'}"
        for severity, count in counts.items()
        if count
    )
    head = launch.name or launch.place
    nothing = "no problems found in what was read" if launch.unread else "no problems found"
    what = _OUTCOMES[launch.outcome]
    if launch.outcome == "works" and launch.doubt is not None:
        doubted = launch.doubt.partition(": ")[0]
        what = f"no certain error, but {doubted}"
    if launch.engine not in ("vllm", "llama.cpp") and launch.outcome == "works":
        what = "only image, ports and GPUs were checked"
    elif (launch.engine, launch.outcome) == ("vllm", "works") and not _pool_known(launch):
        what = "no error found; memory was not checked"
    lines.append(f"{head}: {what} ({told or nothing})")
    lines += _figure_lines(launch)
    if launch.first_engine is None:
        lines += _change_lines(launch.changes)
    if launch.unread:
        lines += _wrapped("Not read  ", "; ".join(launch.unread))
    return "\n".join(lines)


def _pool_known(launch: AuditedLaunch) -> bool:
    return launch.predictions.kv_pool_blocks is not None


def _finding_lines(finding: AuditFinding) -> list[str]:
    head = f"{finding.place}: {finding.severity}: {finding.about} [{finding.id}]"
    body = textwrap.wrap(finding.text, text_width() - 4)
    fix = textwrap.wrap(f"fix: {finding.fix}", text_width() - 4)
    return [head, *(f"    {line}" for line in (*body, *fix))]


def _figure_lines(launch: AuditedLaunch) -> list[str]:
    defaults = [value for value in launch.effective if not value.stated and value.name in _SHOWN]
    lines = []
    if defaults:
        told = ", ".join(
            f"{value.name} {value.value:g}"
            if isinstance(value.value, float)
            else f"{value.name} {value.value}"
            for value in defaults
        )
        lines += _wrapped("Defaults  ", f"{told} (set by the engine)")
    predictions = launch.predictions
    if predictions.kv_pool_blocks is not None:
        lines += _wrapped("Pool      ", _pool(predictions))
        lines += _wrapped("Limit     ", launch.binds)
    elif launch.engine == "vllm":
        lines += _wrapped("Pool      ", f"no figure: {predictions.reasons['kv_pool_blocks']}")
    if launch.first_engine is not None:
        lines += _wrapped("Decode    ", f"shares the load with {launch.first_engine}, see there")
    elif predictions.aggregate_decode_tps is not None:
        lines += _wrapped("Decode    ", figure_text(predictions.aggregate_decode_tps) + _at(launch))
    elif launch.outcome != "fails_at_start":
        reason = predictions.reasons.get("aggregate_decode_tps", "")
        if reason and reason != "not requested":
            lines += _wrapped("Decode    ", f"no figure: {reason}")
    return lines


def _at(launch: AuditedLaunch) -> str:
    """Return the load that a rate is for, and how to state another."""
    if launch.concurrency is None or launch.context is None:
        return ""
    said = f" at {launch.concurrency} concurrent requests of {launch.context:,} tokens"
    if launch.engines > 1:
        said += f" over {launch.engines} identical engines"
    said += ", contexts shared" if launch.contexts == "shared" else ""
    said += f", {launch.content}" if launch.content != Content.MIXED else ""
    return f"{said}, assumed (--c, --typical-ctx)" if launch.point_assumed else said


def _pool(predictions: Predictions) -> str:
    parts = [figure_text(predictions.kv_pool_blocks)]
    if predictions.blocks_per_request is not None:
        parts.append(f"{predictions.blocks_per_request.value:.0f} blocks per full-length request")
    if predictions.max_full_length_requests is not None:
        figure = predictions.max_full_length_requests
        parts.append(f"{figure.value:.0f} such requests at once")
    if predictions.max_typical_context_tokens is not None:
        figure = predictions.max_typical_context_tokens
        parts.append(
            f"max-num-seqs requests run at once up to {figure.value:,.0f} tokens each"
            if figure.value
            else "max-num-seqs requests never run at once"
        )
    return "; ".join(parts)


def _change_lines(changes: Sequence[AuditChange]) -> list[str]:
    lines = []
    for index, change in enumerate(changes):
        label = "Our plan  " if index == 0 else "          "
        gain = ""
        if change.gain is not None:
            gain = f" ({change.gain.low:.2f}–{change.gain.high:.2f} × the rate, {change.gain.kind})"
        lines += _wrapped(label, f"{change.what}: {change.current} → {change.proposed}{gain}")
    return lines


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, text_width(), initial_indent=label, subsequent_indent=" " * len(label)
    ) or [label.rstrip()]


def score_text(score: AuditScore) -> str:
    """Return recall and false alarms by kind of fault, and over all cases."""
    rows = [("kind", "cases", "outcome right", "expected", "missed", "false errors", "warnings")]
    for kind, cases in by_kind(score.cases).items():
        rows.append(
            (
                kind,
                str(len(cases)),
                str(sum(case.outcome_right for case in cases)),
                str(sum(case.expected for case in cases)),
                str(sum(len(case.missed) for case in cases)),
                str(sum(len(case.false_errors) for case in cases)),
                str(sum(len(case.false_warnings) for case in cases)),
            )
        )
    lines = _aligned(rows)
    lines += [
        "",
        f"recall of errors and warnings   {score.recall:.1%}",
        f"outcome right                   {score.outcomes_right:.1%}",
        f"working cases with false error  {score.working_with_false_error:.1%}",
        f"false warnings per case         {score.false_warnings_per_case:.2f}",
    ]
    for case in score.cases:
        problems = [
            *(f"missed {name}" for name in case.missed),
            *(f"false error {name}" for name in case.false_errors),
            *(f"false warning {name}" for name in case.false_warnings),
        ]
        if not case.outcome_right:
            problems.insert(0, f"outcome {case.outcome}, expected {case.expected_outcome}")
        if problems:
            lines.append(f"{case.name}: {'; '.join(problems)}")
    return "\n".join(lines) + "\n"


def score_document(score: AuditScore) -> dict[str, object]:
    """Return the score as JSON data."""
    return {
        "cases": len(score.cases),
        "recall": score.recall,
        "outcomes_right": score.outcomes_right,
        "working_with_false_error": score.working_with_false_error,
        "false_warnings_per_case": score.false_warnings_per_case,
        "by_case": [
            {
                "name": case.name,
                "kind": case.kind,
                "outcome": case.outcome,
                "expected_outcome": case.expected_outcome,
                "outcome_right": case.outcome_right,
                "expected": case.expected,
                "missed": list(case.missed),
                "false_errors": list(case.false_errors),
                "false_warnings": list(case.false_warnings),
                "pool_error": case.pool_error,
                "blocks_right": case.blocks_right,
            }
            for case in score.cases
        ],
    }


def _aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    table = list(rows)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
