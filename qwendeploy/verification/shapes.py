"""Additional loads: ladders, cold prompts, whole requests, soak."""

from __future__ import annotations

from typing import Literal

from qwendeploy.verification.loads.closed_loop import ClosedLoop, LoopSettings
from qwendeploy.verification.loads.decode_load import DecodeSettings
from qwendeploy.verification.loads.latency import LatencySettings, measure_latency
from qwendeploy.verification.loads.telemetry import Gpus
from qwendeploy.verification.session import Session
from qwendeploy.verification.wire.client import Client

RUNG_WINDOWS = 3
PROMPT_LADDER = (1024, 4096, 16384, 65536, 131072)
"""Cold prompt lengths in tokens; those beyond the served length are left out."""
SOAK_WINDOW_S = 30.0
SOAK_GROWTH = 2048
"""Tokens after which a stream of the soak starts anew, so that contexts stay what they are."""


async def run_shapes(session: Session, client: Client, gpus: Gpus) -> None:
    """Run every further load that level and settings ask for."""
    settings, effort = session.settings, session.effort
    facts = session.surface.facts if session.surface else None
    longest = facts.max_model_len if facts else None
    for concurrency, context in rungs(session):
        if longest is not None and context > longest:
            session.warnings.append(
                f"ladder skips {context:,} tokens: the server allows {longest:,} per request"
            )
            continue
        session.enter(f"ladder c={concurrency} context={context}")
        await session.measure_decode(
            client, gpus, _rung(session, concurrency, context), lambda _rates: False
        )
    shapes = settings.shapes or effort.shapes
    if "prompt" in shapes:
        session.enter("prompt ladder")
        await _prompts(session, client)
    for shape in ("mixed", "chat"):
        if shape in shapes:
            session.enter(shape)
            await _loop(session, client, gpus, "mixed" if shape == "mixed" else "chat")
    soak = effort.soak_s if settings.soak_s is None else settings.soak_s
    if soak:
        session.enter("soak")
        await _soak(session, client, gpus, soak)


def rungs(session: Session) -> list[tuple[int, int]]:
    """Return (concurrency, context) of the ladders without the operating point itself."""
    point, settings = session.point, session.settings
    concurrencies = settings.ladder_c
    if not concurrencies and session.effort.ladder:
        concurrencies = tuple(2**i for i in range(13) if 2**i < point.concurrency)
    found = [(c, point.context) for c in concurrencies]
    found += [(point.concurrency, context) for context in settings.ladder_ctx]
    here = (point.concurrency, point.context)
    return [rung for rung in dict.fromkeys(found) if rung != here]


def _rung(session: Session, concurrency: int, context: int) -> DecodeSettings:
    settings = session.settings
    return DecodeSettings(
        concurrency=concurrency,
        context=context,
        contexts=session.point.contexts,
        window_s=settings.window_s or session.effort.window_s,
        windows=RUNG_WINDOWS,
        settle_s=settings.settle_s,
        patience_s=settings.patience_s,
        expected_user_tps=session.user_rate(),
        seed=f"{session.run_id}-{concurrency}-{context}",
    )


async def _prompts(session: Session, client: Client) -> None:
    assert session.surface is not None
    length = session.surface.facts.max_model_len
    for tokens in PROMPT_LADDER:
        if tokens == session.prompt_length() or (length is not None and tokens > 0.95 * length):
            continue
        step = await measure_latency(
            client,
            session.surface,
            LatencySettings(
                context=tokens, repeats=2, warm=False, seed=f"{session.run_id}-prompt-{tokens}"
            ),
            session.told,
        )
        session.steps.append(step.model_copy(update={"name": f"cold prompt {tokens}"}))


async def _loop(
    session: Session, client: Client, gpus: Gpus, shape: Literal["mixed", "chat"]
) -> None:
    assert session.surface is not None
    settings, plan = session.settings, session.plan
    point = plan.operating_point if plan else None
    isl = settings.isl or (point.isl if point else 1024)
    osl = settings.osl or (point.osl if point else 256)
    if shape == "chat":
        isl = settings.isl or min(isl, 2048)
    loop = ClosedLoop(
        client,
        session.surface,
        LoopSettings(
            shape=shape,
            concurrency=session.point.concurrency,
            isl=isl,
            osl=osl,
            spread=settings.spread,
            cached=session.cached_share(),
            seconds=settings.loop_s or session.effort.loop_s,
            limits=settings.latency_limits,
            seed=f"{session.run_id}-{shape}",
        ),
        gpus=gpus,
        told=session.told,
    )
    session.lateness.reset()
    try:
        await loop.run()
    finally:
        limit = session.lateness.facts(session.loop_name, proxy=False).limited_reason
        session.steps.append(loop.step().model_copy(update={"client_limit": limit}))
        session.timeline.extend(loop.watch.timeline(session.began))


async def _soak(session: Session, client: Client, gpus: Gpus, seconds: float) -> None:
    """Decode on at the operating point and keep the windows: heat shows only after minutes."""
    point = session.point
    window = min(SOAK_WINDOW_S, seconds / 4)
    await session.measure_decode(
        client,
        gpus,
        DecodeSettings(
            concurrency=point.concurrency,
            context=point.context,
            contexts=point.contexts,
            window_s=window,
            windows=max(4, round(seconds / window)),
            settle_s=session.settings.settle_s,
            patience_s=session.settings.patience_s,
            expected_user_tps=session.user_rate(),
            ceiling=point.context + SOAK_GROWTH,
            seed=f"{session.run_id}-soak",
        ),
        lambda _rates: False,
    )
    session.steps[-1] = session.steps[-1].model_copy(update={"shape": "soak", "name": "soak"})
