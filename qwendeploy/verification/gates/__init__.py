"""Functional gates: does the server return correct output.

A gate passes, fails, or says why it could not run; each keeps the transcript that shows it. Speed
never outweighs a failed gate: the overall verdict is then *refuted*.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from qwendeploy.documents import Gate, Plan
from qwendeploy.verification.gates.answers import (
    arithmetic,
    deterministic_code,
    json_mode,
    limits_honoured,
    multi_turn,
    reasoning_split,
    unicode_text,
)
from qwendeploy.verification.gates.asking import Asker
from qwendeploy.verification.gates.cache import prefix_cache
from qwendeploy.verification.gates.lengths import cancel, needle, over_length
from qwendeploy.verification.gates.tools import tool_call
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.server import Surface

GateFunction = Callable[[Asker], Awaitable[Gate]]

GATES: dict[str, GateFunction] = {
    "deterministic-code": deterministic_code,
    "arithmetic": arithmetic,
    "tool-call": tool_call,
    "multi-turn": multi_turn,
    "json-mode": json_mode,
    "reasoning-split": reasoning_split,
    "stop-and-max-tokens": limits_honoured,
    "unicode": unicode_text,
    "prefix-cache": prefix_cache,
    "cancel": cancel,
    "over-length": over_length,
    "needle": needle,
}
"""In the order of running: quick ones first, those that fill the context last."""


async def run_gates(
    client: Client,
    surface: Surface,
    plan: Plan | None,
    seed: str,
    told: Callable[[str, float | None], None],
    done: Callable[[tuple[Gate, ...]], None] = lambda _gates: None,
) -> tuple[Gate, ...]:
    """Return the outcome of every gate; a gate never stops the ones after it.

    ``done`` is called with those so far after each.

    Where the server is gone after a failed request, that gate and the rest could not run.
    """
    asker = Asker(client, surface, plan, seed)
    found: list[Gate] = []
    gone = ""
    for number, (name, gate) in enumerate(GATES.items()):
        asker.begin(name)
        if gone:
            found.append(asker.not_run(gone))
            continue
        told(f"gates: {name}", number / len(GATES))
        result = await gate(asker)
        if result.outcome == "failed" and not await still_serves(client):
            gone = "the server stopped responding"
            result = asker.not_run(f"the server stopped responding: {result.reason}")
        found.append(result)
        done(tuple(found))
    return tuple(found)


async def still_serves(client: Client) -> bool:
    """Say whether the server answers a question about its health without an error of its own."""
    try:
        return (await client.page("/health", timeout=10)).status < 500
    except (OSError, TimeoutError):
        return False


__all__ = ["GATES", "run_gates"]
