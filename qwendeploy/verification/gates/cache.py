"""The prefix-cache gate: answers from cached states are as right as cold ones.

On this hybrid model with drafting, cached recurrent states have corrupted output on upstream
images; speed shows nothing of it. The same long conversation is asked cold and warm, needles at
several depths are asked for on cache hits, and a tool is used in a later turn. Passing is what
lets a plan keep prefix caching on together with MTP on this machine.
"""

from __future__ import annotations

import random
from typing import Any

from qwendeploy.documents import Gate
from qwendeploy.engines.metrics import Metrics
from qwendeploy.verification.gates.asking import Asker
from qwendeploy.verification.gates.tools import WEATHER, call_problem
from qwendeploy.verification.wire.replicas import scrape

TOKENS = 9000
"""Several cache blocks of the hybrid layout (800 to 1,648 tokens each)."""
FACTS = 6


def fact_context(asker: Asker, tokens: int, seed: str) -> tuple[str, dict[str, str]]:
    """Return a long text that hides numbered codes at even depths, and the codes by name."""
    chooser = random.Random(seed)
    names = ("north", "south", "east", "west", "upper", "lower")[:FACTS]
    codes = {name: f"{chooser.randint(100, 999)}-{chooser.randint(100, 999)}" for name in names}
    text = asker.surface.prompts.text(max(256, tokens - 120), seed)
    parts = []
    size = len(text) // (len(names) + 1)
    for number, (name, code) in enumerate(codes.items()):
        parts.append(text[number * size : (number + 1) * size])
        parts.append(f" The code of the {name} gate is {code}. ")
    parts.append(text[len(names) * size :])
    return "".join(parts), codes


def _question(context: str, name: str) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": f"Use this text:\n\n{context}"},
        {"role": "user", "content": f"What is the code of the {name} gate? The code alone."},
    ]


async def _counters(asker: Asker) -> Metrics | None:
    return await scrape(asker.client) if asker.surface.facts.metrics else None


async def prefix_cache(asker: Asker) -> Gate:
    """Cold and warm answers, needles and a tool call on cache hits are all right."""
    facts = asker.surface.facts
    caching = facts.cache_config.get("enable_prefix_caching")
    if caching == "False":
        return asker.not_run("prefix caching is off on this server")
    tokens = min(TOKENS, int((facts.max_model_len or TOKENS) * 0.6))
    if tokens < 512:
        return asker.not_run("the server's context is too short for a cached prefix")
    context, codes = fact_context(asker, tokens, f"{asker.seed}-cache")
    before = await _counters(asker)
    wrong: list[str] = []
    for turn, name in enumerate([*codes, *codes]):
        record = await asker.ask(_question(context, name), tokens=64)
        if broken := asker.broken(record):
            return broken
        state = "cold" if turn == 0 else "warm"
        if codes[name] not in record.text and codes[name] not in record.reasoning:
            wrong.append(f"{name} {state}: {record.text[:40]!r}, not {codes[name]!r}")
    wrong += await _dialogue(asker, context, codes)
    after = await _counters(asker)
    served = after.since(before, "prefix_hits") if after and before else None
    if served == 0:
        return asker.not_run("the repeated conversation had no cache hits")
    if wrong:
        where = "from the cache" if served else "(cache use unknown)"
        return asker.failed(f"{len(wrong)} wrong answers {where}: {wrong[0]}")
    if served is None:
        return asker.not_run("all answers correct, but the server does not report cache hits")
    return asker.passed(f"{2 * len(codes) + 3} answers correct, {served:,.0f} cached tokens")


async def _dialogue(asker: Asker, context: str, codes: dict[str, str]) -> list[str]:
    """Continue one conversation over several turns with a tool call in the middle."""
    wrong: list[str] = []
    names = list(codes)
    messages = _question(context, names[0])
    record = await asker.ask(messages, tokens=64)
    if codes[names[0]] not in record.text + record.reasoning:
        wrong.append(f"dialogue, turn 1: {record.text[:40]!r}")
    messages += [
        {"role": "assistant", "content": record.text},
        {"role": "user", "content": "What is the weather in Lisbon, in celsius? Use the tool."},
    ]
    record = await asker.ask(messages, tools=[WEATHER], tool_choice="auto")
    if record.failure == "status" and record.status == 400:
        messages = messages[:-1]  # a server without tools: the dialogue goes on without one
    elif problem := call_problem(record):
        return [*wrong, f"dialogue, tool call: {problem}"]
    else:
        call = {**record.tool_calls[0], "type": "function"}
        call["id"] = call.get("id") or "call-1"
        messages += [
            {"role": "assistant", "content": record.text or "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": '{"celsius": 21}'},
        ]
    messages.append(
        {"role": "user", "content": f"What is the code of the {names[-1]} gate? The code alone."}
    )
    record = await asker.ask(messages, tokens=64)
    if record.failure is not None or codes[names[-1]] not in record.text + record.reasoning:
        wrong.append(f"dialogue, last turn: {record.text[:40]!r}, not {codes[names[-1]]!r}")
    return wrong
