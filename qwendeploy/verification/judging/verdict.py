"""The three-way verdict: the measured interval against the predicted band.

Confirmed: the interval, widened by what one boot can differ from the next, lies inside the band.
Refuted: it lies outside altogether. Else inconclusive. A band wider than ±20 % says too little to
be confirmed. The overall outcome follows the decode rate and the fill (and latency limits that the
workload states); a failed functional gate refutes the plan whatever its speed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qwendeploy.documents import (
    Fill,
    Gate,
    Outcome,
    Plan,
    Predictions,
    RunDocument,
    Step,
    Verdict,
)
from qwendeploy.errors import ExitCode
from qwendeploy.figures import WIDE, Figure
from qwendeploy.verification import statistics as st
from qwendeploy.verification.judging.doubts import doubt_of, doubt_of_all, undecidable
from qwendeploy.verification.judging.drafting import PACED, Acceptance, acceptance_of
from qwendeploy.verification.judging.evidence import points_of
from qwendeploy.verification.judging.quantities import (
    COUNTED,
    JUDGED,
    OF_REQUESTS,
    OVER_CONTENT,
    RATE,
    over_boots,
    pooled,
)

DRIFTED = 0.05
"""Change of the rate over the windows, relative, that no text explains: what one boot differs."""


@dataclass(frozen=True)
class Overall:
    """The outcome in one word and one sentence, with the process exit code."""

    outcome: Outcome | None
    wide: bool
    statement: str
    exit_code: ExitCode


def judge(
    quantity: str,
    predicted: Figure | None,
    measured: Figure | None,
    *,
    boot_id: str | None = None,
    decisive: bool = False,
    missing: str = "",
    broken: str = "",
    accepted: Acceptance | None = None,
) -> Verdict:
    """Return the verdict on one quantity; ``missing`` says why something is not there.

    One value has no interval and decides nothing; no time or rate does of a run of which ``broken``
    says why not. The reason of a rate that misses its band says whether the drafts ``accepted``
    explain the miss alone.
    """
    outcome: Outcome = "inconclusive"
    wide = predicted is not None and predicted.half_width > WIDE
    if predicted is None or measured is None:
        reason = missing or ("not predicted" if predicted is None else "not measured")
    elif broken and quantity not in COUNTED:
        reason = broken
    elif boot_id is not None and _calibrated_here(predicted, boot_id):
        reason = "the prediction was calibrated from this boot and cannot confirm itself"
    elif quantity not in COUNTED and measured.n < 2:
        reason = "a single value has no interval"
    else:
        interval = st.Interval(
            measured.value, measured.low, measured.high, measured.n, measured.level
        )
        if quantity not in COUNTED and not over_boots(measured):
            interval = st.widened(interval)
        outcome, reason = _compare(predicted, interval)
        if accepted is not None and quantity.split()[0] in PACED and outcome == "refuted":
            reason = _with_acceptance(quantity, predicted, interval, accepted, reason)
        if wide and outcome == "confirmed":
            reason += f"; the band is wider than ±{WIDE:.0%}"
    return Verdict(
        quantity=quantity,
        predicted=predicted,
        measured=measured,
        outcome=outcome,
        reason=reason,
        wide=wide,
        decisive=decisive,
    )


def _calibrated_here(predicted: Figure, boot_id: str) -> bool:
    return re.search(rf"boot {re.escape(boot_id)}(?![\d.+])", predicted.source) is not None


def _compare(predicted: Figure, interval: st.Interval) -> tuple[Outcome, str]:
    if interval.high < predicted.low:
        return "refuted", f"{1 - interval.mean / predicted.low:.1%} below the predicted band"
    if interval.low > predicted.high:
        return "refuted", f"{interval.mean / predicted.high - 1:.1%} above the predicted band"
    if predicted.low <= interval.low and interval.high <= predicted.high:
        return "confirmed", "the measured interval is inside the predicted band"
    return "inconclusive", "the measured interval is partly outside the predicted band"


def _accepted(plan: Plan, step: Step) -> Acceptance | None:
    """Return the acceptance that may explain a rate: only if all streams ran at one pace."""
    ran = all(window.clean or window.turnover for window in step.windows)
    seconds = step.windows[-1].start_s - step.windows[0].start_s if step.windows else 0.0
    drifted = abs(step.drift_per_minute or 0.0) * seconds / 60
    return acceptance_of(plan, step.figures) if ran and drifted < DRIFTED else None


def _with_acceptance(
    quantity: str, predicted: Figure, interval: st.Interval, accepted: Acceptance, reason: str
) -> str:
    """Return why a rate missed its band, and whether the drafts of this run explain it alone."""
    if accepted.as_assumed:
        return reason
    if not accepted.works:
        return f"{reason}; almost no drafts are accepted"
    low, high = accepted.here(quantity, predicted)
    at = f"at this run's {accepted.measured.value:.2f} tokens per step the band is"
    band = f"{low:,.4g} to {high:,.4g} {predicted.unit}"
    if interval.high < low or interval.low > high:
        return f"{reason}; {at} {band}"
    return f"{reason}, explained by draft acceptance alone: {at} {band}"


def judge_all(plan: Plan, run: RunDocument) -> tuple[Verdict, ...]:
    """Return one verdict per predicted or measured quantity, decisive ones first."""
    boot_id = run.server.boot_id if run.server else None
    limits = _limited(plan)
    broken = undecidable(run)
    verdicts = []
    predictions, elsewhere = predictions_at(plan, run.operating_point)
    points = points_of(run)
    accepted = _accepted(plan, points[0]) if points else None
    for name in JUDGED:
        predicted = getattr(predictions, name)
        measured = run.figures.get(RATE if name == OVER_CONTENT else name)
        if name == OVER_CONTENT and (predicted is None or not _one_of_many_texts(plan, run)):
            continue
        otherwise = _other_requests(plan, run) if name in OF_REQUESTS else ""
        if otherwise:
            predicted = None
        if predicted is None and measured is None:
            continue
        missing = ""
        if predicted is None:
            why = otherwise or elsewhere or predictions.reasons.get(name, "no reason given")
            missing = f"not predicted: {why}"
        elif measured is None:
            missing = f"not measured: {run.reasons.get(name, 'not part of this run')}"
        verdicts.append(
            judge(
                name,
                predicted,
                measured,
                boot_id=boot_id,
                decisive=name == RATE or name in limits,
                missing=missing,
                broken=_doubt_of_requests(run) if name in OF_REQUESTS else broken,
                accepted=accepted,
            )
        )
    verdicts += _judge_rungs(plan, run)
    return tuple(sorted(verdicts, key=lambda verdict: not verdict.decisive))


def _one_of_many_texts(plan: Plan, run: RunDocument) -> bool:
    """Whether the run's text is of a kind that a rate from prose to code speaks of."""
    known = run.operating_point.get("content") in ("prose", "code", "mixed", "agent")
    return known and plan.operating_point.content.value == "mixed"


def _other_requests(plan: Plan, run: RunDocument) -> str:
    """Return for which requests the plan predicts, if whole requests of others were measured."""
    loops = [step for step in run.steps if step.shape in ("mixed", "chat")]
    point = plan.operating_point
    if not loops or (loops[0].shape, loops[0].context) == ("mixed", point.isl + point.osl):
        return ""
    return f"the plan is for single-turn requests, {point.isl:,} tokens in and {point.osl:,} out"


def _doubt_of_requests(run: RunDocument) -> str:
    """Return why the load of whole requests decides nothing, empty if it may."""
    loops = [step for step in run.steps if step.shape in ("mixed", "chat")]
    return doubt_of_all(run) or (doubt_of(loops[0]) if loops else "")


def _judge_rungs(plan: Plan, run: RunDocument) -> list[Verdict]:
    """Return verdicts on the rates of a ladder's other rungs, where the plan has figures.

    A rung that several boots measured has one verdict, over the boots.
    """
    here = (run.operating_point.get("concurrency"), run.operating_point.get("context"))
    rungs: dict[tuple[int, int], list[Step]] = {}
    for step in run.steps:
        if step.shape == "decode" and (step.concurrency, step.context) != here:
            rungs.setdefault((step.concurrency, step.context), []).append(step)
    found = []
    for (concurrency, context), steps in rungs.items():
        point = {"concurrency": concurrency, "context": context, "contexts": steps[0].contexts,
                 "content": run.operating_point.get("content")}  # fmt: skip
        predictions, elsewhere = predictions_at(plan, point)
        measured = pooled([step.figures.get(RATE) for step in steps], RATE)
        doubts = [doubt for step in steps if (doubt := doubt_of(step))]
        why = next((step.reasons[RATE] for step in steps if RATE in step.reasons), "")
        missing = f"not predicted: {elsewhere}" if elsewhere else f"not measured: {why}"
        found.append(
            judge(
                f"{RATE} c={concurrency} context={context}",
                predictions.aggregate_decode_tps,
                measured,
                missing=missing if elsewhere or why else "",
                broken=doubt_of_all(run) or next(iter(doubts), ""),
                accepted=_accepted(plan, steps[0]),
            )
        )
    return found


def predictions_at(plan: Plan, point: Mapping[str, Any]) -> tuple[Predictions, str]:
    """Return the plan's predictions for a measured point, and why there are none if so.

    A run at another point than the plan's is judged by the plan's figures for that point, or not
    at all; the pool does not depend on it.
    """
    own = plan.operating_point
    concurrency, context = point.get("concurrency"), point.get("context")
    contexts = "shared" if own.contexts == "shared" and own.prefix_cache else "separate"
    alike = point.get("contexts", contexts) == contexts
    if alike and (concurrency, context) == (own.concurrency, own.context):
        return _of_text(plan, plan.predictions, point)
    for cell in plan.cells:
        if alike and (cell.concurrency, cell.context) == (concurrency, context):
            return _of_text(plan, cell.figures, point)
    pool = {name: getattr(plan.predictions, name) for name in ("kv_pool_blocks", "kv_pool_tokens")}
    return Predictions(**pool), (
        f"the plan is for concurrency {own.concurrency}, {own.context} tokens, {contexts} contexts"
    )


def _of_text(plan: Plan, figures: Predictions, point: Mapping[str, Any]) -> tuple[Predictions, str]:
    """Return the figures that hold for the text of a run: drafts make the rates those of a kind."""
    own, content = plan.operating_point.content.value, point.get("content")
    if content in (None, own) or plan.option.spec_method == "none":
        return figures, ""
    without = dict.fromkeys((*PACED, *OF_REQUESTS[:3]))
    return figures.model_copy(
        update=without
    ), f"the plan is for {own} content, this run used {content}"


def _limited(plan: Plan) -> set[str]:
    """Return the quantities on which the workload sets a limit."""
    found = set()
    if plan.workload.tpot_ms is not None:
        found.add("tpot_ms")
    if plan.workload.ttft_ms is not None:
        found.add("ttft_cold_ms")
    return found


def overall(
    verdicts: Sequence[Verdict],
    fill: Fill,
    gates: Sequence[Gate],
    *,
    rate_only: bool = False,
    complete: bool = True,
    differs: Sequence[tuple[str, str, str]] = (),
) -> Overall:
    """Return the outcome of a plan from its parts.

    ``rate_only`` asks for the rate alone: a confirmed rate then exits 0 without a fill check,
    which it otherwise does not. ``differs`` is what the server runs otherwise than the plan says,
    as (what, asked, applied): whatever was measured, the plan was not.
    """
    decisive = [verdict for verdict in verdicts if verdict.decisive]
    rate = next((verdict for verdict in verdicts if verdict.quantity == RATE), None)
    wide = any(verdict.wide for verdict in decisive)
    failed = [gate.id for gate in gates if gate.outcome == "failed"]
    refuted = [verdict for verdict in decisive if verdict.outcome == "refuted"]
    told = rate_sentence(rate)
    if not complete:
        text = f"the run is incomplete; {_beside(rate)}"
        return Overall("inconclusive", wide, text, _inconclusive())
    if refuted or (fill.tested and fill.outcome == "refuted" and not rate_only) or failed:
        parts = [f"{v.quantity} refuted ({v.reason})" for v in refuted if v is not rate]
        if fill.tested and fill.outcome == "refuted":
            parts.append(f"fill refuted: {refuting(fill)}")
        if failed:
            parts.append(f"failed gates: {', '.join(failed)}")
        parts = [told, *parts] if rate in refuted else [*parts, _beside(rate)]
        return Overall("refuted", wide, "; ".join(parts), ExitCode.REFUTED)
    if differs:
        text = ", ".join(f"{what} {applied} instead of {asked}" for what, asked, applied in differs)
        text = f"the server differs from the plan: {text}; {_beside(rate)}"
        return Overall("inconclusive", wide, text, _inconclusive())
    if wide:
        names = [v.quantity for v in decisive if v.wide and v is not rate]
        of = f" of {', '.join(names)}" if names else ""
        text = (
            f"the predicted band{of} is wider than ±{WIDE:.0%}; {_beside(rate, 'inside the band')}"
        )
        return Overall("inconclusive", True, text, _inconclusive())
    if any(verdict.outcome != "confirmed" for verdict in decisive) or rate is None:
        open_ = [v for v in decisive if v.outcome == "inconclusive"]
        parts = [f"{v.quantity}: {v.reason}" for v in open_ if v is not rate]
        if rate in open_:
            parts = [told, *([rate.reason] if rate and _judged(rate) else []), *parts]
        else:
            parts.append(_beside(rate))
        return Overall("inconclusive", wide, "; ".join(parts), _inconclusive())
    if fill.tested and fill.outcome == "confirmed":
        return Overall("confirmed", wide, f"{told}; fill confirmed", ExitCode.DONE)
    if fill.tested:
        text = f"fill inconclusive: {fill.reason or doubtful(fill)}; {_beside(rate)}"
        return Overall("inconclusive", wide, text, _inconclusive())
    text = f"rate confirmed, fill not tested: {rate_sentence(rate, '')}"
    code = ExitCode.DONE if rate_only else _inconclusive()
    return Overall("inconclusive", wide, text, code)


def _inconclusive() -> ExitCode:
    return ExitCode.INCONCLUSIVE


def refuting(fill: Fill) -> str:
    """Return what refuted the fill."""
    return "; ".join(check.text for check in fill.checks if check.outcome == "refuted")


def doubtful(fill: Fill) -> str:
    """Return what left the fill open."""
    return "; ".join(check.text for check in fill.checks if check.outcome == "inconclusive")


def _beside(rate: Verdict | None, confirmed: str = "confirmed") -> str:
    """Return the rate's own outcome where something else decided: named as the rate's."""
    if rate is None or not _judged(rate):
        return rate_sentence(rate)
    return rate_sentence(rate, f"rate {confirmed if rate.outcome == 'confirmed' else rate.outcome}")


def _judged(verdict: Verdict) -> bool:
    """Say whether there was something to compare on both sides."""
    return verdict.measured is not None and verdict.predicted is not None


def rate_sentence(verdict: Verdict | None, outcome: str | None = None) -> str:
    """Return predicted and measured rate with the outcome, in the words of the README.

    ``outcome`` stands for the rate's own; an empty one leaves it out.
    """
    if verdict is None or verdict.measured is None:
        why = f" ({verdict.reason})" if verdict else ""
        return f"the decode rate was not measured{why}"
    measured = verdict.measured
    seen = f"measured {measured.value:,.0f} [{measured.low:,.0f}, {measured.high:,.0f}]"
    if verdict.predicted is None:
        return f"{seen} tok/s, {verdict.reason}"
    predicted = verdict.predicted
    half = (predicted.high - predicted.low) / 2
    said = f"predicted {predicted.value:,.0f} ± {half:,.0f} tok/s"
    outcome = verdict.outcome if outcome is None else outcome
    return f"{said}, {seen}: {outcome}" if outcome else f"{said}, {seen}"
