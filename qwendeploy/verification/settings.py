"""What a verification measures and how thoroughly."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from qwendeploy.documents import Content, Level, Plan
from qwendeploy.verification.loads.closed_loop import LoopLimits
from qwendeploy.verification.wire.client import Limits

Shape = Literal["decode", "prompt", "mixed", "chat"]


@dataclass(frozen=True)
class Settings:
    """What to measure and how thoroughly; ``None`` is decided by level and plan."""

    level: Level = "standard"
    concurrency: int | None = None
    context: int | None = None
    contexts: Literal["shared", "separate"] | None = None
    content: Content | None = None
    window_s: float | None = None
    windows: int | None = None
    settle_s: float = 45.0
    patience_s: float = 30.0
    hold_s: float = 5.0
    repeats: int | None = None
    fill: bool | None = None
    gates: bool | None = None
    wait_s: float = 30.0
    limits: Limits = field(default_factory=Limits)
    keep_requests: bool = False
    shapes: tuple[Shape, ...] = ()
    """Loads beside the decode shape at the operating point."""
    ladder_c: tuple[int, ...] = ()
    """Further concurrencies of the decode shape, at the operating point's context."""
    ladder_ctx: tuple[int, ...] = ()
    """Further contexts, at the operating point's concurrency."""
    isl: int | None = None
    osl: int | None = None
    spread: float = 0.0
    loop_s: float | None = None
    """Seconds of a mixed or chat plateau."""
    latency_limits: LoopLimits = field(default_factory=LoopLimits)
    soak_s: float | None = None
    """Seconds of decoding after everything else, to see whether the rate holds."""


@dataclass(frozen=True)
class Effort:
    """How much a level measures."""

    window_s: float
    windows: int
    repeats: int
    fill: bool
    gates: bool
    loop_s: float = 120.0
    shapes: tuple[Shape, ...] = ()
    ladder: bool = False
    """Concurrencies 1, 2, 4 ... up to the operating point's."""
    soak_s: float = 0.0


EFFORT: dict[Level, Effort] = {
    "quick": Effort(window_s=6.0, windows=5, repeats=2, fill=False, gates=False),
    "standard": Effort(window_s=10.0, windows=6, repeats=3, fill=True, gates=True),
    "thorough": Effort(
        window_s=20.0,
        windows=12,
        repeats=5,
        fill=True,
        gates=True,
        loop_s=300.0,
        shapes=("prompt", "mixed", "chat"),
        ladder=True,
        soak_s=900.0,
    ),
}


@dataclass(frozen=True)
class MeasuredPoint:
    """The operating point as it is measured."""

    concurrency: int
    context: int
    contexts: Literal["shared", "separate"]
    content: Content

    def as_dict(self) -> dict[str, Any]:
        """Return it for the document."""
        return {
            "concurrency": self.concurrency,
            "context": self.context,
            "contexts": self.contexts,
            "content": self.content.value,
        }


def operating_point(plan: Plan | None, settings: Settings) -> MeasuredPoint:
    """Return what is measured: the plan's point unless stated otherwise.

    Contexts are shared only as the plan runs them: with prefix caching and shared contexts.
    """
    if plan is None:
        return MeasuredPoint(
            settings.concurrency or 1,
            settings.context or 2048,
            settings.contexts or "separate",
            settings.content or Content.MIXED,
        )
    point = plan.operating_point
    shared = point.contexts == "shared" and point.prefix_cache
    return MeasuredPoint(
        settings.concurrency or point.concurrency,
        settings.context or point.context,
        settings.contexts or ("shared" if shared else "separate"),
        settings.content or point.content,
    )


def run_name() -> str:
    """Return a new run's name: UTC time and three random bytes, sortable and unique."""
    return f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(3)}"
