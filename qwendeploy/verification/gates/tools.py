"""The tool-call gate: automatic and required choice, streamed, arguments match the schema."""

from __future__ import annotations

import json
from typing import Any

from qwendeploy.documents import Gate
from qwendeploy.verification.gates.asking import Asker
from qwendeploy.verification.wire.records import Record

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
QUESTION = "What is the weather in Lisbon right now, in celsius? Use the tool."


def call_problem(record: Record) -> str:
    """Return what is wrong with the tool call of an answer, empty if nothing is."""
    if not record.tool_calls:
        return f"no tool call, but {record.text[:80]!r}"
    function = record.tool_calls[0]["function"]
    if function["name"] != "get_weather":
        return f"called {function['name']!r}"
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return f"arguments are not JSON: {function['arguments'][:80]!r}"
    if not isinstance(arguments, dict) or set(arguments) != {"city", "unit"}:
        return f"arguments do not match the schema: {arguments!r:.80}"
    if not isinstance(arguments["city"], str) or "lisbon" not in arguments["city"].lower():
        return f"the city is {arguments['city']!r}"
    if arguments["unit"] not in ("celsius", "fahrenheit"):
        return f"the unit is {arguments['unit']!r}"
    return ""


async def tool_call(asker: Asker) -> Gate:
    """A call with ``tool_choice`` auto and with required, both streamed."""
    for choice in ("auto", "required"):
        record = await asker.ask(QUESTION, tools=[WEATHER], tool_choice=choice)
        if record.failure == "status" and record.status == 400:
            if asker.plan is not None and not asker.plan.workload.tools:
                return asker.not_run("the workload uses no tools, the server accepts none")
            return asker.failed(f"the server rejects tool_choice {choice}: {record.message}")
        if broken := asker.broken(record):
            return broken
        if problem := call_problem(record):
            return asker.failed(f"tool_choice {choice}: {problem}")
    return asker.passed()
