"""What a well-behaved model answers to the gates' questions, and ways to get each one wrong.

The known server asks ``answer(body)`` for requests that do not ignore the end of text; ``None``
lets it send words until the limit. ``KNOWN_WRONG`` in the environment names gates to fail.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

CODE = (
    "```python\ndef fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n"
    "    return a\n```\nvalues: 0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89\n"
)


def wrong(name: str) -> bool:
    """Whether the answer of a gate is to be wrong."""
    return name in os.environ.get("KNOWN_WRONG", "").split(",")


def answer(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the message to send: content, reasoning, tool_calls, finish_reason."""
    messages = body.get("messages")
    if not messages:
        return None
    asked = str(messages[-1].get("content") or "")
    everything = " ".join(str(message.get("content") or "") for message in messages)
    if body.get("tools") and "weather" in asked:
        return _tool_call()
    for question, reply in (
        ("fib(n)", _fibonacci),
        ("47 * 83", lambda: {"content": "3801" if wrong("arithmetic") else "3901"}),
        ("JSON object", _json),
        ("prime number", _prime),
        ("Count from 1", _count),
        ("Repeat this exactly", lambda: _repeat(asked)),
        ("Say yes", lambda: {"content": "yes"}),
        ("Say only: noted", lambda: {"content": "noted."}),
        ("my cat called", lambda: _cat(everything)),
    ):
        if question in asked:
            return reply()
    gate = re.search(r"code of the (\w+) gate\? The code alone", asked)
    if gate:
        return _gate_code(gate[1], everything, turns=len(messages))
    if "What is the vault code" in asked:
        found = re.search(r"vault code is ([a-z]+-\d+)", everything)
        lost = wrong("needle") or found is None
        return {"content": "I do not know" if lost or not found else found[1]}
    return None


def _fibonacci() -> dict[str, Any]:
    return {"content": CODE.replace("89", "88") if wrong("deterministic-code") else CODE}


def _json() -> dict[str, Any]:
    text = json.dumps({"capital": "Tokyo", "population": 124})
    return {"content": f"Sure! {text}" if wrong("json-mode") else text}


def _prime() -> dict[str, Any]:
    if wrong("reasoning-split"):
        return {"content": "<think>391 = 17 * 23</think>no"}
    return {"reasoning": "391 is 17 * 23, so it is not prime.", "content": "no"}


def _count() -> dict[str, Any]:
    if wrong("stop-and-max-tokens"):
        return {"content": "1, 2, 3, 4, 5, 6, 7, 8, 9"}
    return {"content": "1, 2, 3, 4, 5, 6, ", "finish_reason": "stop"}


def _repeat(asked: str) -> dict[str, Any]:
    text = asked.split("nothing else: ")[-1]
    return {"content": text.replace("京", "\ufffd") if wrong("unicode") else text}


def _cat(everything: str) -> dict[str, Any]:
    known = "Pixel" in everything and not wrong("multi-turn")
    return {"content": "She is called Pixel and is seven." if known else "I cannot know that."}


def _gate_code(name: str, everything: str, turns: int) -> dict[str, Any]:
    found = re.search(rf"code of the {name} gate is (\d+-\d+)", everything)
    broken = wrong("prefix-cache") and (name == "west" or turns > 3)
    return {"content": "000-000" if broken or found is None else found[1]}


def _tool_call() -> dict[str, Any]:
    arguments = {"city": "Lisbon"} if wrong("tool-call") else {"city": "Lisbon", "unit": "celsius"}
    function = {"name": "get_weather", "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"id": "call-1", "type": "function", "function": function}]}
