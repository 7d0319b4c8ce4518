"""Gates on the context length (used and exceeded) and on cancelled requests."""

from __future__ import annotations

import asyncio
import random

from qwendeploy.documents import Gate
from qwendeploy.verification.gates.asking import Asker
from qwendeploy.verification.loads.streams import Streams, Turn
from qwendeploy.verification.wire.backing_off import REFUSALS
from qwendeploy.verification.wire.replicas import scrape

SHARES = (0.25, 0.50, 0.90)
"""Shares of the served context that are filled, and depths at which the needle lies."""


def needle_text(asker: Asker, tokens: int, depth: float, seed: str) -> tuple[str, str]:
    """Return a text of about ``tokens`` with a code at ``depth`` of it, and the code."""
    chooser = random.Random(seed)
    code = (
        f"{chooser.choice(('amber', 'cobalt', 'willow', 'falcon'))}-{chooser.randint(1000, 9999)}"
    )
    text = asker.surface.prompts.text(max(64, tokens - 60), seed)
    cut = text.find(" ", int(len(text) * depth * 0.95))
    cut = cut if cut > 0 else len(text) // 2
    body = f"{text[:cut]} The vault code is {code}. {text[cut:]}"
    return f"{body}\n\nWhat is the vault code in the text above? Answer with the code alone.", code


async def needle(asker: Asker) -> Gate:
    """A sentence is found at 25, 50 and 90 % of the served context: "boots" is not "fills"."""
    length = asker.max_model_len
    if length is None:
        return asker.not_run("the server does not report its context length")
    for share in SHARES:
        tokens = int(length * share) - 96
        if tokens < 128:
            return asker.not_run(f"a context of {length} tokens is too short")
        text, code = needle_text(asker, tokens, share, f"{asker.seed}-needle-{share}")
        record = await asker.ask(text, tokens=64)
        if broken := asker.broken(record):
            return broken
        if code not in record.text and code not in record.reasoning:
            return asker.failed(
                f"at {share:.0%} of {length} tokens ({record.prompt_tokens} in the prompt):"
                f" {record.text[:60]!r}, not {code!r}"
            )
    return asker.passed()


async def over_length(asker: Asker) -> Gate:
    """A prompt beyond the served length is refused with a clear 400, and the server lives on."""
    length = asker.max_model_len
    if length is None:
        return asker.not_run("the server does not report its context length")
    text = asker.surface.prompts.text(int(length * 1.1) + 64, f"{asker.seed}-over")
    record = await asker.ask(text, tokens=16)
    if record.failure is None:
        return asker.failed(f"a prompt of {record.prompt_tokens} tokens was accepted")
    if record.status not in (400, 413, 422):
        if record.status in REFUSALS and (put_off := asker.broken(record)):
            return put_off
        return asker.failed(f"rejected with {record.failure} {record.status}: {record.message}")
    after = await asker.ask("Say yes.", tokens=16)
    if after.failure is not None:
        if after.status in REFUSALS and (put_off := asker.broken(after)):
            return put_off
        return asker.failed(f"the next request fails: {after.message}")
    return asker.passed(record.message[:120])


async def cancel(asker: Asker) -> Gate:
    """Requests whose clients go away stop running."""
    if not asker.surface.facts.metrics:
        return asker.not_run("no /metrics: the number of running requests is unknown")
    message = [{"role": "user", "content": "Tell a very long story about the sea."}]
    limit = min(4096, (asker.max_model_len or 4096) // 2)

    def turn(_stream: int, number: int) -> Turn | None:
        return Turn(asker.surface.body(message, limit)) if number == 0 else None

    begun = 0
    for _ in range(3):  # a host that stalls may see them end before it can cancel
        streams = Streams(asker.client, 4, turn)
        streams.start()
        for _ in range(1200):
            await asyncio.sleep(0.05)
            if len(streams.decoding) == 4 or streams.broken.is_set() or streams.finished.is_set():
                break
        begun = len(streams.decoding)
        await streams.stop()
        if begun:
            break
    if begun == 0:
        return asker.not_run("every request finished before it could be cancelled")
    running: float | None = None
    for _ in range(50):
        metrics = await scrape(asker.client)
        running = metrics.get("running") if metrics else None
        if running == 0:
            return asker.passed(f"{begun} cancelled, none left running")
        await asyncio.sleep(0.2)
    if running is None:
        return asker.not_run("the server does not report running requests")
    return asker.failed(f"{running:g} requests still run 10 s after their clients disconnected")
