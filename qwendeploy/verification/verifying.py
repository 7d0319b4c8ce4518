"""``verify`` as one function: run the session, judge the run, find likely causes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from qwendeploy import __version__
from qwendeploy.documents import Cause, Plan, RunDocument, Tool, Verdict, VerifyReport
from qwendeploy.errors import ExitCode
from qwendeploy.verification.beforehand import make_room
from qwendeploy.verification.expected import decisive_differences
from qwendeploy.verification.judging.causes import likely_causes
from qwendeploy.verification.judging.doubts import undecidable
from qwendeploy.verification.judging.drafting import acceptance_of
from qwendeploy.verification.judging.evidence import warned
from qwendeploy.verification.judging.quantities import RATE
from qwendeploy.verification.judging.verdict import Overall, judge_all, overall
from qwendeploy.verification.session import Session
from qwendeploy.verification.settings import Settings
from qwendeploy.verification.stages import SERVER_GONE, run_stages
from qwendeploy.verification.wire.target import Target

ANOTHER_SERVER = {"applied-differs", "other-checkpoint", "other-engine-version"}
CAUSES_OF_FIRST_TOKENS = ANOTHER_SERVER | {
    "client-bound", "other-traffic", "throttled", "other-gpu-user", "no-peer-access", "slow-path",
    "proxy", "host-busy",
}  # fmt: skip
CAUSES_OF = {
    "ttft_warm_ms": {"prefix-cache-cold", *CAUSES_OF_FIRST_TOKENS},
    "ttft_cold_ms": CAUSES_OF_FIRST_TOKENS,
    "kv_pool_blocks": ANOTHER_SERVER | {"smaller-pool", "other-gpu-user"},
    "kv_pool_tokens": ANOTHER_SERVER | {"smaller-pool", "other-gpu-user"},
}
"""Quantities that only some causes explain; the others are explained by any."""
CAUSES_OF_SPEED = ANOTHER_SERVER | {
    "usage-too-high", "wrong-usage", "high-acceptance", "other-traffic", "other-prompts",
    "restarted",
}  # fmt: skip
"""What can make a rate higher than predicted: a busy host or a small pool cannot."""


def verify(
    plan: Plan | None,
    target: Target,
    settings: Settings,
    *,
    directory: Path | None = None,
    rate_only: bool = False,
    told: Callable[[str, float | None], None] = lambda _text, _share: None,
    inputs: dict[str, Any] | None = None,
) -> tuple[RunDocument, VerifyReport]:
    """Measure a live server and judge the plan's prediction.

    Raises:
        UserError, EnvironmentProblem: as the session; KeyboardInterrupt after the run is saved.
    """
    run = verify_once(plan, target, settings, directory=directory, told=told, inputs=inputs)
    return run, report_on(run, plan, rate_only=rate_only)


def verify_once(
    plan: Plan | None,
    target: Target,
    settings: Settings,
    *,
    directory: Path | None = None,
    told: Callable[[str, float | None], None] = lambda _text, _share: None,
    inputs: dict[str, Any] | None = None,
    run_id: str | None = None,
) -> RunDocument:
    """Return the run of one boot of a server, saved as it goes; errors as ``verify``."""
    session = Session(
        target,
        settings,
        plan=plan,
        directory=directory,
        told=told,
        inputs=inputs,
        run_id=run_id,
    )
    make_room(max(session.point.concurrency, *settings.ladder_c, 1))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_until_told_to_stop(session))


async def _until_told_to_stop(session: Session) -> RunDocument:
    """Run the session; SIGTERM ends it as Ctrl-C does, with what was measured saved."""
    task = asyncio.ensure_future(session.run(run_stages))
    loop = asyncio.get_running_loop()
    terminated = False

    def stop() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if terminated:
            raise KeyboardInterrupt from None
        raise


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory where it is installed: it halves the client's share of the CPU."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _above(verdict: Verdict) -> bool:
    """Say whether more was measured than the band allows."""
    predicted, measured = verdict.predicted, verdict.measured
    return bool(predicted and measured and measured.low > predicted.high)


def report_on(run: RunDocument, plan: Plan | None, *, rate_only: bool = False) -> VerifyReport:
    """Return the report on a stored or fresh run."""
    causes = likely_causes(run, plan)
    verdicts: tuple[Verdict, ...] = ()
    accepted = acceptance_of(plan, run.figures) if plan is not None else None
    if plan is None:
        verdict = _without_plan(run)
    else:
        verdicts = judge_all(plan, run)
        if any(one.quantity == RATE and _above(one) for one in verdicts):
            causes = tuple(cause for cause in causes if cause.id in CAUSES_OF_SPEED)
        verdicts = tuple(_with_causes(one, causes) for one in verdicts)
        verdict = overall(
            verdicts,
            run.fill,
            run.gates,
            rate_only=rate_only,
            complete=run.status in ("complete", "failed"),
            differs=decisive_differences(plan, run.server) if run.server else (),
        )
    gone = warned(run, SERVER_GONE)
    if gone and verdict.outcome != "refuted":
        verdict = Overall(
            None if plan is None else "inconclusive",
            verdict.wide,
            f"{gone}; {verdict.statement}",
            ExitCode.ENVIRONMENT,
        )
    return VerifyReport(
        created=run.created,
        tool=Tool(version=__version__),
        inputs=run.inputs,
        outcome=verdict.outcome,
        statement=verdict.statement,
        wide=verdict.wide,
        exit_code=int(verdict.exit_code),
        plan_id=run.plan_id,
        verdicts=verdicts,
        causes=causes,
        gates=run.gates,
        accepted=accepted.assumption if accepted else "",
        fill=run.fill,
        run=run,
    )


def _without_plan(run: RunDocument) -> Overall:
    """Return what can be said of a run that no plan predicted: it came through, gates held."""
    failed = [gate.id for gate in run.gates if gate.outcome == "failed"]
    text = "measured without a plan: no prediction to confirm"
    if doubt := undecidable(run):
        text += f"; the rate is not reliable: {doubt}"
    if failed:
        return Overall(None, False, f"{text}; failed gates: {', '.join(failed)}", ExitCode.REFUTED)
    if run.status != "complete":
        return Overall(None, False, f"{text}; {run.stage} failed", ExitCode.INCONCLUSIVE)
    return Overall(None, False, text, ExitCode.DONE)


def _with_causes(verdict: Verdict, causes: Sequence[Cause]) -> Verdict:
    """Return the verdict with the causes that can explain its quantity, unless confirmed."""
    if verdict.outcome == "confirmed" or not (verdict.predicted and verdict.measured):
        return verdict
    able = CAUSES_OF.get(verdict.quantity)
    found = tuple(cause for cause in causes if able is None or cause.id in able)
    return verdict.model_copy(update={"causes": found})
