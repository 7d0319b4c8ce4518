"""Gates on single answers and short dialogues."""

from __future__ import annotations

import ast
import json
import re

from qwendeploy.documents import Gate
from qwendeploy.verification.gates.asking import Asker

FIBONACCI = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
FIBONACCI_TASK = (
    "Write a Python function fib(n) that returns the n-th Fibonacci number iteratively, with "
    "fib(0) = 0. Answer with one Python code block, then one line that starts with 'values:' and "
    "lists fib(0) to fib(11), separated by commas."
)
UNICODE = "naïve Žižek 北京 ελληνικά 🙂 ½"


def code_block(text: str) -> str:
    """Return the first fenced code of an answer, else the answer."""
    match = re.search(r"```(?:[a-zA-Z]*)\n(.*?)```", text, re.DOTALL)
    return match[1] if match else text


def _fibonacci_problem(text: str) -> str:
    """Return what is wrong with an answer, empty if nothing is."""
    try:
        tree = ast.parse(code_block(text))
    except SyntaxError as problem:
        return f"the code does not parse: {problem.msg}"
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if "fib" not in names:
        return "the response has no function fib"
    line = re.search(r"values:\W*([\d,\s]+)", text)
    if line is None:
        return "the response has no 'values:' line"
    values = [int(number) for number in re.findall(r"\d+", line[1])]
    return "" if values[: len(FIBONACCI)] == FIBONACCI else f"wrong values {values}"


async def deterministic_code(asker: Asker) -> Gate:
    """The Fibonacci function, five times at temperature 0: right each time."""
    texts: list[str] = []
    for _ in range(5):
        record = await asker.ask(FIBONACCI_TASK)
        if broken := asker.broken(record):
            return broken
        if problem := _fibonacci_problem(record.text):
            return asker.failed(f"answer {len(texts) + 1} of 5: {problem}")
        texts.append(record.text)
    distinct = len(set(texts))
    return asker.passed(f"5 of 5 correct, {distinct} distinct text{'s' * (distinct > 1)}")


async def arithmetic(asker: Asker) -> Gate:
    """47 x 83 = 3901."""
    record = await asker.ask("What is 47 * 83? Answer with the number alone.")
    if broken := asker.broken(record):
        return broken
    if "3901" in record.text.replace(",", "").replace(" ", ""):
        return asker.passed()
    return asker.failed(f"the response does not contain 3901: {record.text[:80]!r}")


async def multi_turn(asker: Asker) -> Gate:
    """A fact of the first turn is known in the third, after another was corrected."""
    messages = [
        {"role": "user", "content": "My cat is called Pixel and she is four. Say only: noted."}
    ]
    for follow in (
        "I was wrong, she is seven. Say only: noted.",
        "What is my cat called, and how old is she? Answer in one short sentence.",
    ):
        record = await asker.ask(messages)
        if broken := asker.broken(record):
            return broken
        messages += [
            {"role": "assistant", "content": record.text},
            {"role": "user", "content": follow},
        ]
    record = await asker.ask(messages)
    if broken := asker.broken(record):
        return broken
    text = record.text.lower()
    if "pixel" in text and ("seven" in text or "7" in text):
        return asker.passed()
    return asker.failed(f"the response does not contain Pixel and seven: {record.text[:80]!r}")


async def json_mode(asker: Asker) -> Gate:
    """``response_format`` json_object gives one JSON object."""
    record = await asker.ask(
        "Give the capital and the population in millions of Japan as a JSON object with the keys "
        "capital and population.",
        response_format={"type": "json_object"},
    )
    if record.failure == "status" and record.status == 400:
        return asker.not_run(f"the server rejects response_format: {record.message}")
    if broken := asker.broken(record):
        return broken
    try:
        value = json.loads(record.text)
    except ValueError:
        return asker.failed(f"not JSON: {record.text[:80]!r}")
    if not isinstance(value, dict) or not {"capital", "population"} <= set(value):
        return asker.failed(f"expected an object with capital and population: {value!r:.80}")
    return asker.passed()


async def reasoning_split(asker: Asker) -> Gate:
    """Thinking arrives apart from the answer; no think tag is left in the content."""
    record = await asker.ask(
        "Is 391 a prime number? Think, then answer yes or no.", tokens=4096, thinking=True
    )
    if broken := asker.broken(record):
        return broken
    if "<think>" in record.text or "</think>" in record.text:
        return asker.failed("the content contains a think tag: set --reasoning-parser")
    if not record.reasoning:
        return asker.not_run("the server sent no reasoning")
    if not record.text and record.finish_reason != "length":
        return asker.failed("reasoning but no final answer")
    if not record.text:
        return asker.not_run("the reasoning did not end within the token limit")
    return asker.passed()


async def limits_honoured(asker: Asker) -> Gate:
    """``stop`` ends before its text, ``max_tokens`` gives that many tokens and says why."""
    record = await asker.ask(
        "Count from 1 to 12, the numbers separated by a comma and a space, nothing else.",
        stop=["7"],
    )
    if broken := asker.broken(record):
        return broken
    if "7" in record.text or "8" in record.text:
        return asker.failed(f"the output includes the stop word: {record.text[:80]!r}")
    if record.finish_reason != "stop":
        return asker.failed(f"finish_reason is {record.finish_reason!r}, not 'stop'")
    record = await asker.ask("Tell a long story about the sea.", tokens=7, exact_length=True)
    if broken := asker.broken(record):
        return broken
    if record.tokens != 7 or record.finish_reason != "length":
        return asker.failed(
            f"max_tokens 7 gave {record.tokens} tokens, finish_reason {record.finish_reason!r}"
        )
    return asker.passed()


async def unicode_text(asker: Asker) -> Gate:
    """Characters of several scripts come back whole."""
    record = await asker.ask(f"Repeat this exactly, and nothing else: {UNICODE}")
    if broken := asker.broken(record):
        return broken
    if "\ufffd" in record.text:
        return asker.failed("the response contains replacement characters")
    if UNICODE not in record.text:
        return asker.failed(f"the text is not repeated exactly: {record.text[:80]!r}")
    return asker.passed()
