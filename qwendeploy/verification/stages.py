"""The stages of a run, in order: first token, decode, fill, gates, additional loads."""

from __future__ import annotations

from collections.abc import Iterator

from qwendeploy.documents import Fill, Gate, Step
from qwendeploy.errors import UserError
from qwendeploy.figures import Kind
from qwendeploy.verification.expected import held_by
from qwendeploy.verification.judging.evidence import RESTARTED
from qwendeploy.verification.judging.verdict import predictions_at
from qwendeploy.verification.loads.decode_load import DecodeSettings
from qwendeploy.verification.loads.fill import FillRun, FillSettings
from qwendeploy.verification.loads.latency import LatencySettings, measure_latency
from qwendeploy.verification.loads.prompts import PromptMaker
from qwendeploy.verification.loads.telemetry import Gpus
from qwendeploy.verification.session import Session
from qwendeploy.verification.shapes import run_shapes
from qwendeploy.verification.statistics import Interval, t_interval, widened
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.health import wait_for_health
from qwendeploy.verification.wire.replicas import of_one_replica, scrape
from qwendeploy.verification.wire.server import survey

SERVER_GONE = "the server stopped responding"


async def run_stages(session: Session, client: Client, gpus: Gpus) -> None:
    """Measure everything that the settings ask for; a server that dies ends the stages.

    Raises:
        UserError, EnvironmentProblem: the server cannot be read, or cannot hold the point.
    """
    session.enter("waiting for the server")
    await wait_for_health(client, session.settings.wait_s, lambda text: session.told(text, None))
    session.enter("reading the server's settings")
    replicas = session.plan.option.replicas if session.plan else 1
    makes = PromptMaker(content=session.point.content)
    session.surface = await survey(client, makes, replicas=replicas)
    session.warnings.extend(of_one_replica(session.surface.facts))
    session.warnings.extend(_remarks(session, client))
    _check_room(session)
    session.enter("first token")
    session.steps.append(await _latency(session, client))
    session.enter("decode")
    await _decode(session, client, gpus)
    session.freeze_client()
    if not await _alive(session, client):
        return
    if _wanted(session.settings.fill, session.effort.fill):
        session.enter("fill")
        await _fill(session, client, gpus)
    else:
        asked = session.settings.fill is False
        left_out = "skipped as requested" if asked else f"skipped by --{session.settings.level}"
        session.fill = Fill(reason=left_out)
    if _wanted(session.settings.gates, session.effort.gates):
        session.enter("gates")
        await _run_gates(session, client)
    await run_shapes(session, client, gpus)
    await _note_restart(session, client)
    session.enter("done")


def _remarks(session: Session, client: Client) -> Iterator[str]:
    """Yield what a reader must know of the server before any figure."""
    assert session.surface is not None
    facts = session.surface.facts
    if client.metrics_of_another:
        yield "/metrics did not count the tokens of a trial request: it belongs to another server"
    if session.target.model is None and len(facts.served_models) > 1:
        served = len(facts.served_models)
        yield f"the server lists {served} models: measuring {facts.model} (choose with --model)"


def _check_room(session: Session) -> None:
    """Refuse an operating point that the server cannot hold."""
    assert session.surface is not None
    length = session.surface.facts.max_model_len
    if length is not None and session.point.context > length:
        raise UserError(
            f"a context of {session.point.context} tokens exceeds the server's limit of {length}",
            where=session.target.base_url,
            hint="lower --ctx, or start the server with the plan's --max-model-len",
        )


async def _latency(session: Session, client: Client) -> Step:
    assert session.surface is not None
    caching = session.surface.facts.cache_config.get("enable_prefix_caching")
    off = caching == "False" or (
        caching is None and session.plan is not None and not session.plan.option.prefix_cache
    )
    settings = LatencySettings(
        context=session.point.context,
        prompt=session.prompt_length(),
        repeats=session.settings.repeats or session.effort.repeats,
        warm=not off,
        together=session.point.concurrency,
        cached=session.cached_share() or 1.0,
        seed=f"{session.run_id}-latency",
    )
    return await measure_latency(client, session.surface, settings, session.told)


async def _decode(session: Session, client: Client, gpus: Gpus) -> None:
    settings = session.settings
    await session.measure_decode(
        client,
        gpus,
        DecodeSettings(
            concurrency=session.point.concurrency,
            context=session.point.context,
            contexts=session.point.contexts,
            window_s=settings.window_s or session.effort.window_s,
            windows=settings.windows or session.effort.windows,
            settle_s=settings.settle_s,
            patience_s=settings.patience_s,
            expected_user_tps=session.user_rate(),
            seed=f"{session.run_id}-decode",
        ),
        lambda rates: _decided(session, rates),
    )


def _decided(session: Session, rates: list[float]) -> bool:
    """Whether more windows would change nothing: the interval is narrow, or the verdict sure.

    One boot says no more than its spread, so an interval far narrower than that is enough.
    """
    interval = t_interval(rates)
    if interval.half < 0.005:
        return True
    predicted = None
    if session.plan is not None:
        here, _ = predictions_at(session.plan, session.point.as_dict())
        predicted = here.aggregate_decode_tps
    if predicted is None or interval.half > 0.02:
        return False
    wide: Interval = widened(interval)
    inside = predicted.low <= wide.low and wide.high <= predicted.high
    return inside or wide.high < predicted.low or wide.low > predicted.high


async def _alive(session: Session, client: Client) -> bool:
    """Return whether the server still answers, and note if not."""
    try:
        page = await client.page("/health", timeout=10)
        answers = page.status < 500
        told = f"/health returns {page.status}"
    except (OSError, TimeoutError) as problem:
        answers, told = False, str(problem) or "no response"
    if not answers:
        session.gone = True
        session.warnings.append(f"{SERVER_GONE} ({told}), after: {session.stage}")
        if not session.fill.tested:
            session.fill = Fill(reason=SERVER_GONE)
    return answers


async def _note_restart(session: Session, client: Client) -> None:
    """Note if another process told the metrics meanwhile: half of the run was another server's."""
    facts = session.surface.facts if session.surface else None
    if facts is None or not facts.metrics:
        return
    await scrape(client)
    if client.restarted:
        session.warnings.append(f"{RESTARTED}: its counters were reset")


def _wanted(asked: bool | None, usual: bool) -> bool:
    return usual if asked is None else asked


async def _fill(session: Session, client: Client, gpus: Gpus) -> None:
    assert session.surface is not None
    plan, facts = session.plan, session.surface.facts
    typical = plan.predictions.max_typical_context_tokens if plan else None
    if plan is None or typical is None or typical.value < 64:
        reason = plan.predictions.reasons.get("max_typical_context_tokens") if plan else None
        session.fill = Fill(reason=reason or "no plan, so no context to fill")
        return
    context = int(typical.value)
    if facts.max_model_len is not None:
        context = min(context, facts.max_model_len)
    option = plan.option
    session.fill = Fill(reason="started but not finished")
    run = FillRun(
        client,
        session.surface,
        FillSettings(
            concurrency=plan.operating_point.concurrency,
            context=context,
            full_length=facts.max_model_len or option.max_model_len,
            step_tokens=option.max_num_batched_tokens or 8192,
            tokens_per_step=1.0 + option.spec_tokens,
            user_tps=session.user_rate(),
            hold_s=session.settings.hold_s,
            patience_s=max(session.settings.patience_s, 60.0)
            if session.settings.patience_s >= 30
            else session.settings.patience_s,
            kind=typical.kind if typical.kind is not Kind.MEASURED_HERE else Kind.MEASURED,
            seed=f"{session.run_id}-fill",
        ),
        gpus=gpus,
        told=session.told,
        blocks_held=lambda contexts: held_by(option, contexts),
    )
    try:
        session.fill, steps = await run.run()
        session.steps.extend(steps)
    finally:
        session.timeline.extend(run.watch.timeline(session.began))


async def _run_gates(session: Session, client: Client) -> None:
    assert session.surface is not None
    from qwendeploy.verification.gates import run_gates

    def done(gates: tuple[Gate, ...]) -> None:
        session.gates = gates

    session.gates = await run_gates(
        client, session.surface, session.plan, session.run_id, session.told, done
    )
    if any(gate.outcome != "passed" for gate in session.gates):
        await _alive(session, client)
