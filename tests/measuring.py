"""Runs client and loads for tests on the loop that the product uses."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from plan_samples import figure, sample_plan

from qwendeploy.documents import Content, Plan, Predictions, RunDocument, VerifyReport
from qwendeploy.documents.identity import plan_id
from qwendeploy.verification.loads import watch
from qwendeploy.verification.loads.prompts import PromptMaker
from qwendeploy.verification.settings import Settings
from qwendeploy.verification.verifying import loop_factory, verify
from qwendeploy.verification.wire.client import Client, Limits
from qwendeploy.verification.wire.server import Surface, survey
from qwendeploy.verification.wire.target import resolve_target

T = TypeVar("T")
watch.LAG_LIMIT_MS = 1000.0
"""Tests share a few cores with each other: that the client woke late is not what they test."""
BRIEF = Limits(connect=2, first=4, gap=1.5, total=60)


def oversubscription() -> float:
    """Return how many times more work than cores this host has, at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def on_client(
    url: str, work: Callable[[Client, Surface], Awaitable[T]], *, limits: Limits | None = None
) -> T:
    """Return what ``work`` makes of a surveyed server."""

    async def main() -> T:
        async with Client(resolve_target(url), limits) as client:
            surface = await survey(client, PromptMaker(content=Content.PROSE))
            return await work(client, surface)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main())


def brief_settings(**changes: Any) -> Settings:
    """Return settings of a run that takes seconds."""
    usual: dict[str, Any] = {
        "level": "quick",
        "concurrency": 2,
        "context": 600,
        "window_s": 0.6,
        "windows": 3,
        "settle_s": 4.0,
        "patience_s": 1.5,
        "hold_s": 0.6,
        "repeats": 2,
        "wait_s": 5.0,
        "limits": BRIEF,
    }
    return Settings(**{**usual, **changes})


def verified(
    url: str, plan: Any = None, *, calm: bool = False, **changes: Any
) -> tuple[RunDocument, VerifyReport]:
    """Return run and report of a brief verification.

    ``calm`` measures again, up to four times, while the rate of a server that keeps its schedule
    swings: then the host stalled, which is not what is tested.
    """
    rate_only = changes.pop("rate_only", False)
    directory = changes.pop("directory", None)
    if plan is not None:
        changes = {"concurrency": None, "context": None, **changes}
    for _ in range(4):
        run, report = verify(
            plan,
            resolve_target(url),
            brief_settings(**changes),
            directory=directory,
            rate_only=rate_only,
        )
        swing = max((step.cv or 0.0 for step in run.steps if step.shape == "decode"), default=0.0)
        if not calm or swing < 0.02:
            break
    return run, report


POOL = ("--block-tokens", "800", "--state-groups", "3", "--spec-tokens", "3", "--tokens", "3,1,2",
        "--max-model-len", "8000", "--version", "0.22.0")  # fmt: skip
"""The layout of FP8 + MTP3 as the block arithmetic has it, on a server of 8,000 tokens."""


def small_plan(
    rate: float = 300.0, spread: float = 0.12, *, concurrency: int = 3, **changes: Any
) -> Plan:
    """Return a plan that the known server with ``POOL`` fulfils at 100 tok/s a stream."""
    plan = sample_plan(checkpoint="known/known", **changes)
    option = plan.option.model_copy(update={"max_model_len": 8000, "max_num_seqs": 32})
    point = plan.operating_point.model_copy(update={"concurrency": concurrency, "context": 600})
    predictions = Predictions(
        aggregate_decode_tps=figure(rate, "tok/s", spread),
        per_user_decode_tps=figure(rate / concurrency, "tok/s", spread),
        tpot_ms=figure(1e3 * concurrency / rate, "ms", spread),
        ttft_cold_ms=figure(32, "ms", 0.5),
        kv_pool_blocks=figure(100_000, "blocks", 0.05),
        max_typical_context_tokens=figure(2400, "tokens", 0),
        reasons={"ttft_warm_ms": "prefix caching is off"},
    )
    return plan.model_copy(
        update={
            "plan_id": plan_id(option, plan.flags, plan.env, point),
            "option": option,
            "operating_point": point,
            "predictions": predictions,
            "served_model_name": "known",
        }
    )
