"""Text of a verdict: outcome first, then quantities, fill, gates and causes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from qwendeploy.documents import Fill, Gate, RunDocument, Verdict, VerifyReport
from qwendeploy.figures import Figure
from qwendeploy.reporting.width import text_width
from qwendeploy.units import format_count, format_tokens
from qwendeploy.verification.judging.quantities import SHARE_OF_POOL

if TYPE_CHECKING:
    from qwendeploy.verification.self_test import SelfTest

TEXT_COLUMN = 30
"""Where the text beside the name of a quantity, check or gate begins."""
MARKS = {"confirmed": "ok ", "refuted": "NO ", "inconclusive": " ? "}
GATE_MARKS = {"passed": "ok ", "failed": "NO ", "not_run": " - "}
NAMES = {
    "aggregate_decode_tps": "decode, all requests",
    "per_user_decode_tps": "decode, per request",
    "tpot_ms": "time per token",
    "ttft_warm_ms": "first token, warm",
    "ttft_cold_ms": "first token, cold",
    "kv_pool_blocks": "KV pool, blocks",
    "kv_pool_tokens": "KV pool, tokens",
    "acceptance_length": "acceptance length",
    "kv_usage": "KV cache usage",
    "output_tps_end_to_end": "output end to end",
    "max_running_requests": "max running requests",
    "max_full_length_requests": "full-length requests",
    "max_typical_context_tokens": "longest typical context",
    "blocks_per_request": "blocks per request",
    "ttft_end_to_end_ms": "first token, under load",
    "tpot_end_to_end_ms": "time per token, under load",
    "goodput_rps": "goodput",
    "requests_rps": "requests",
    "stall_ms": "stall during prefill",
    "aggregate_decode_tps_over_content": "decode, by content",
}


def verify_text(report: VerifyReport) -> str:
    """Return the report for a terminal."""
    return "\n".join(part for line in _lines(report) for part in _folded(line)) + "\n"


def _folded(line: str) -> list[str]:
    """Return the line in pieces as wide as text may be, the later ones under the text."""
    if len(line) <= text_width():
        return [line]
    row = line[:3] in (*MARKS.values(), *GATE_MARKS.values(), "   ")
    return textwrap.wrap(
        line,
        text_width(),
        subsequent_indent=" " * (TEXT_COLUMN if row else 6),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _lines(report: VerifyReport) -> Iterator[str]:
    run = report.run
    yield f"{(report.outcome or 'measured').upper()}: {report.statement}"
    yield from _head(run)
    yield ""
    if report.verdicts:
        yield from _verdict_lines(report.verdicts)
    else:
        yield f"     {'quantity':24} measured"
        yield from _measured_lines(run)
    yield from _acceptance(report)
    yield from _fill_lines(report.fill)
    yield from _gate_lines(report.gates)
    yield from _failures(run)
    if report.causes:
        yield ""
        judged = report.outcome in ("refuted", "inconclusive")
        yield "likely causes, most direct first:" if judged else "observations:"
        for cause in report.causes:
            yield f"  {cause.id}: {cause.text} ({cause.evidence})"
            yield f"      {cause.fix}"


def _head(run: RunDocument) -> Iterator[str]:
    server, point = run.server, run.operating_point
    if server is not None:
        version = f" {server.version}" if server.version else ""
        yield f"server {server.base_url}: {server.model}, {server.engine}{version}"
    for warning in run.warnings:
        yield f"note   {warning}"
    context = point.get("context")
    shown = format_tokens(context) if isinstance(context, int) else "?"
    yield (
        f"point  concurrency {point.get('concurrency')}, context {shown},"
        f" {point.get('contexts')} contexts; {run.level}, {run.status}"
    )
    decodes = [step for step in run.steps if step.shape == "decode"]
    for step in decodes:
        clean = sum(window.clean for window in step.windows)
        spread = f", cv {step.cv:.1%} ({stability(step.cv)})" if step.cv is not None else ""
        steady = {True: "steady", False: "NOT steady", None: "steadiness unknown"}[step.steady]
        mean = f", mean context {step.context_mean:,.0f}" if step.context_mean else ""
        load = ""
        if len(decodes) > 1:
            load = f"{step.concurrency} x {format_tokens(step.context)}: "
        drift = step.drift_per_minute
        change = f", drift {drift:+.1%} per minute" if drift is not None else ""
        yield (
            f"load   {load}{len(step.windows)} windows ({clean} clean), {steady}{spread}{change}"
            f"{mean}"
        )
        for note in step.notes:
            yield f"       {note}"


def stability(cv: float) -> str:
    """Return the word for a coefficient of variation of windows, in the bands of other tools."""
    for limit, word in ((0.05, "stable"), (0.10, "good"), (0.20, "fair")):
        if cv < limit:
            return word
    return "unstable"


def quantity_name(quantity: str) -> str:
    """Return a quantity in words; of a ladder's rung with its streams and context."""
    name, *rung = quantity.split(" ")
    found = dict(part.split("=", 1) for part in rung if "=" in part)
    if set(found) == {"c", "context"}:
        return f"decode, {found['c']} x {format_tokens(int(found['context']))}"
    return NAMES.get(name, quantity)


def figure_text(figure: Figure | None, *, unit: bool = True, kind: bool = True) -> str:
    """Return a figure as value, band, unit and kind, the last two on demand."""
    if figure is None:
        return "-"
    value, low, high = (_number(v, figure.unit) for v in (figure.value, figure.low, figure.high))
    if figure.low < figure.value or figure.high > figure.value:
        value += f" [{low}, {high}]"
    if unit:
        value += f" {figure.unit}"
    return f"{value} {figure.kind.value}" if kind else value


def _number(value: float, unit: str) -> str:
    """Return a number as its unit is read: a share in percent, however small."""
    return f"{100 * value:.3g}%" if unit == SHARE_OF_POOL else format_count(value)


def _verdict_lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Return a table of what was measured, then what was not, with the reason."""
    seen = [verdict for verdict in verdicts if verdict.measured is not None]
    # the measured figure beside it names the unit
    texts = [figure_text(verdict.predicted, unit=False) for verdict in seen]
    width = max([len("predicted"), *map(len, texts)])
    yield f"     {'quantity':24} {'predicted':{width}}  measured"
    for verdict, predicted in zip(seen, texts, strict=True):
        name = quantity_name(verdict.quantity)
        measured = figure_text(verdict.measured, kind=False)
        line = f"{MARKS[verdict.outcome]}  {name:24} {predicted:{width}}  {measured}"
        if verdict.outcome != "confirmed" and verdict.reason:
            line += f"  ({verdict.reason})"
        yield line
    absent: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.measured is None:
            key = (MARKS[verdict.outcome], verdict.reason)
            absent.setdefault(key, []).append(quantity_name(verdict.quantity))
    for (mark, reason), names in absent.items():
        if len(names) == 1:
            yield f"{mark}  {names[0]:24} {reason}"
        else:
            yield f"{mark}  {reason}: {', '.join(names)}"


def _measured_lines(run: RunDocument) -> Iterator[str]:
    for name, figure in run.figures.items():
        label = NAMES.get(name, name)
        if figure is not None:
            yield f"     {label:24} {figure_text(figure, kind=False)}"
        elif name in run.reasons:
            yield f"     {label:24} - ({run.reasons[name]})"


def _acceptance(report: VerifyReport) -> Iterator[str]:
    """Return what is measured and not predicted, if the table above is of verdicts."""
    if not report.verdicts:
        return
    for name in ("acceptance_length", "kv_usage"):
        figure = report.run.figures.get(name)
        if figure is not None:
            line = f"     {NAMES[name]:24} {figure_text(figure, kind=False)}, measured"
            if name == "acceptance_length" and report.accepted:
                line += f"; {report.accepted}"
            yield line


def _fill_lines(fill: Fill) -> Iterator[str]:
    yield ""
    if not fill.tested:
        yield f"fill not tested: {fill.reason}"
        return
    context = format_tokens(fill.context) if fill.context else "?"
    yield f"fill {fill.outcome}: {fill.concurrency} distinct contexts of {context}"
    for check in fill.checks:
        yield f"{MARKS[check.outcome]}  {check.id:24} {check.text}"


def _gate_lines(gates: tuple[Gate, ...]) -> Iterator[str]:
    if not gates:
        return
    passed = sum(gate.outcome == "passed" for gate in gates)
    yield ""
    yield f"gates: {passed} of {len(gates)} passed"
    for gate in gates:
        if gate.outcome != "passed":
            yield f"{GATE_MARKS[gate.outcome]}  {gate.id:24} {gate.reason}"


def _failures(run: RunDocument) -> Iterator[str]:
    failed = sum(step.requests.failed for step in run.steps)
    if not failed:
        return
    sent = sum(step.requests.sent for step in run.steps)
    yield ""
    yield f"{failed} of {sent} requests failed (excluded from latencies):"
    seen: dict[str, int] = {}
    for step in run.steps:
        for kind, count in step.requests.failures.items():
            seen[kind] = seen.get(kind, 0) + count
    for kind, count in seen.items():
        yield f"  {count} x {kind}"
    for step in run.steps:
        for example in step.requests.examples[:1]:
            yield f"  {step.name}: {example}"


def self_test_text(found: SelfTest) -> str:
    """Return the client's own error at each concurrency."""
    lines = [
        f"measurement error of the client on this host ({found.loop}, load"
        f" {found.load_average:.1f}):",
        "requests first token  per token     rate   CPU of a core    loop lag (p99)",
    ]
    for rung in found.rungs:
        mark = "" if rung.within else "  NO"
        failed = f"  {rung.failed} failed" if rung.failed else ""
        lines.append(
            f"{rung.concurrency:8} {rung.ttft_error_ms:+8.1f} ms  {rung.tpot_error:+8.2%}"
            f" {rung.rate_error:+8.2%}  {rung.cpu_share:12.0%}  {rung.lag_p99_ms:13.1f} ms"
            f"{mark}{failed}"
        )
    if found.ceiling is None:
        lines.append("no concurrency is within 1 %: measure from another host")
    else:
        lines.append(
            f"rates and times per token are within 1 % up to {found.ceiling} concurrent requests"
        )
    return "\n".join(lines) + "\n"
