"""Runs client and loads for tests on the loop that the product uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from qwendeploy.documents import Content, RunDocument, VerifyReport
from qwendeploy.verification.client import Client, Limits
from qwendeploy.verification.prompts import PromptMaker
from qwendeploy.verification.server import Surface, survey
from qwendeploy.verification.settings import Settings
from qwendeploy.verification.target import resolve_target
from qwendeploy.verification.verifying import loop_factory, verify

T = TypeVar("T")
BRIEF = Limits(connect=2, first=4, gap=1.5, total=60)


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


def verified(url: str, plan: Any = None, **changes: Any) -> tuple[RunDocument, VerifyReport]:
    """Return run and report of a brief verification."""
    rate_only = changes.pop("rate_only", False)
    directory = changes.pop("directory", None)
    return verify(
        plan,
        resolve_target(url),
        brief_settings(**changes),
        directory=directory,
        rate_only=rate_only,
    )
