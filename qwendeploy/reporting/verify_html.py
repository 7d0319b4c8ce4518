"""The verification report: one self-contained HTML file, verdict first."""

from __future__ import annotations

from collections.abc import Iterator

from qwendeploy.documents import Distribution, Plan, RunDocument, VerifyReport
from qwendeploy.figures import LEVEL, Figure
from qwendeploy.reporting.verify_charts import (
    RatePoint,
    band_chart,
    distribution_chart,
    rate_chart,
    timeline_charts,
)
from qwendeploy.reporting.verify_text import figure_text, quantity_name
from qwendeploy.resources import data_dir
from qwendeploy.units import format_count

SYMBOLS = {
    "confirmed": "✓",
    "passed": "✓",
    "refuted": "✗",
    "failed": "✗",
    "inconclusive": "?",
    "not_run": "–",
    "measured": "•",
}


def verify_html(report: VerifyReport, plan: Plan | None) -> str:
    """Return the page; ``plan`` adds its machine, option and further predicted points."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(data_dir("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    run = report.run
    pictures = [(caption, Markup(picture)) for caption, picture in _charts(report, plan)]
    times = [(caption, Markup(picture)) for caption, picture in timeline_charts(run.timeline)]
    return environment.get_template("verify_report.html.j2").render(
        title=f"Verification {run.run_id}",
        subtitle=_subtitle(run),
        outcome=report.outcome or "measured",
        symbols=SYMBOLS,
        name_of=quantity_name,
        report=report,
        run=run,
        charts=pictures,
        timelines=times,
        spreads=_spreads(run),
        facts=list(_facts(report, plan)),
        figure=lambda value, kind=True: figure_text(value, kind=kind) if value else "–",
        count=format_count,
        level=LEVEL,
    )


def _subtitle(run: RunDocument) -> str:
    point = run.operating_point
    return (
        f"{run.created}, {run.level}, {run.status}; concurrency {point.get('concurrency')},"
        f" context {point.get('context')} tokens, {point.get('contexts')} contexts,"
        f" {point.get('content')} content"
    )


def _spreads(run: RunDocument) -> list[tuple[str, Distribution]]:
    """Return every latency with the load in which it was measured."""
    return [(step.name, spread) for step in run.steps for spread in step.distributions]


def _of_the_point(run: RunDocument) -> list[Distribution]:
    """Return the latencies of the first load of each shape: the operating point's."""
    first = {step.shape: step for step in reversed(run.steps)}
    loads = [step for step in run.steps if first[step.shape] is step and step.shape != "soak"]
    return [spread for step in loads for spread in step.distributions]


def _charts(report: VerifyReport, plan: Plan | None) -> Iterator[tuple[str, str]]:
    chart = band_chart(report.verdicts, quantity_name)
    if chart:
        yield "Predicted band (bar) and measured interval (dot), prediction = 100 %", chart
    everywhere = _rate_points(report.run, plan)
    for by, fixed in (("concurrency", "context"), ("context", "concurrency")):
        here = report.run.operating_point.get(fixed)
        points = [point for point in everywhere if point.place(fixed) == here]
        chart = rate_chart(points, by) if len(points) > 1 or by == "concurrency" else None
        if chart:
            at = f"{fixed} {here}"
            yield f"Decode rate over {by} at {at}: predicted (bar), measured (dot)", chart
    chart = distribution_chart(_of_the_point(report.run))
    if chart:
        yield "Latencies in ms: range, median (dot), p95 (bar)", chart


def _rate_points(run: RunDocument, plan: Plan | None) -> list[RatePoint]:
    predicted: dict[tuple[int, int], Figure | None] = {}
    if plan is not None:
        point = plan.operating_point
        for cell in plan.cells:
            key = (cell.concurrency, cell.context)
            predicted[key] = cell.figures.aggregate_decode_tps
        predicted[point.concurrency, point.context] = plan.predictions.aggregate_decode_tps
    measured: dict[tuple[int, int], Figure | None] = {
        (step.concurrency, step.context): step.figures.get("aggregate_decode_tps")
        for step in run.steps
        if step.shape == "decode"
    }
    return [
        RatePoint(key[0], key[1], predicted.get(key), measured.get(key))
        for key in sorted({*predicted, *measured})
    ]


def _facts(report: VerifyReport, plan: Plan | None) -> Iterator[tuple[str, str]]:
    run = report.run
    if run.server is not None:
        server = run.server
        yield "server", f"{server.base_url}, {server.engine} {server.version or ''}"
        yield "model", f"{server.model} ({server.root or 'root unknown'})"
        if server.max_model_len:
            yield "served length", f"{server.max_model_len} tokens"
        if server.cache_config:
            told = ", ".join(f"{k}={v}" for k, v in sorted(server.cache_config.items()))
            yield "cache", told
        if server.not_offered:
            yield "not reported", ", ".join(server.not_offered)
    if run.client is not None:
        client = run.client
        share = "?" if client.cpu_share is None else f"{client.cpu_share:.0%} of a core"
        lag = "?" if client.lag_p99_ms is None else f"{client.lag_p99_ms:.1f} ms"
        limited = f"; LIMITED: {client.limited_reason}" if client.limited else ""
        yield "client", f"{client.loop}, {share}, loop lag {lag} (p99){limited}"
    if plan is not None:
        option = plan.option
        yield "plan", plan.plan_id
        yield (
            "option",
            (
                f"{option.checkpoint}, {option.quant}, KV {option.kv_cache_dtype},"
                f" {option.spec_method} {option.spec_tokens or ''},"
                f" tp {option.tp} x {option.replicas},"
                f" image {option.image or '-'}"
            ),
        )
        cards = ", ".join(gpu.model or gpu.name or "?" for gpu in plan.machine.gpus)
        yield "machine", f"{cards}; driver {plan.machine.driver or '?'} ({plan.machine.origin})"
    yield "tool", f"{report.tool.name} {report.tool.version}"
