"""Shell functions: their bodies are read where they are called, with the call's arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_DEFINITION = re.compile(
    r"^[ \t]*(?:function[ \t]+([A-Za-z_][\w-]*)[ \t]*(?:\(\))?|([A-Za-z_][\w-]*)[ \t]*\(\))\s*\{",
    re.MULTILINE,
)
MOST_FUNCTIONS = 100
LONGEST_BODY = 16 * 1024


@dataclass(frozen=True, slots=True)
class Function:
    """The text between a function's braces and the line of the whole that it begins on."""

    text: str
    line: int


def cut_functions(text: str) -> tuple[str, Mapping[str, Function]]:
    """Return the text without the functions that it calls, line ends kept, and those functions.

    A function that is never called stays: what it starts may be called from elsewhere.
    """
    found: dict[str, Function] = {}
    parts: list[str] = []
    at = 0
    for match in list(_DEFINITION.finditer(text))[:MOST_FUNCTIONS]:
        if match.start() < at:
            continue
        end = _closing(text, match.end())
        name = match[1] or match[2]
        called = re.search(
            rf"(?:^|[;&|({{]|\b(?:then|else|do)\b)[ \t]*{re.escape(name)}(?=[ \t;&|)\n]|$)",
            text[: match.start()] + "\n" + text[end:],
            re.MULTILINE,
        )
        if end < 0 or called is None:
            continue
        body = text[match.end() : end]
        found[name] = Function(body, text.count("\n", 0, match.end()) + 1)
        parts += [text[at : match.start()], "\n" * text.count("\n", match.start(), end + 1)]
        at = end + 1
    return "".join([*parts, text[at:]]), found


def _closing(text: str, start: int) -> int:
    """Return where the brace open at ``start`` closes, -1 if not near; quotes are skipped."""
    depth = 1
    quote = ""
    at = start
    stop = min(len(text), start + LONGEST_BODY)
    while at < stop:
        char = text[at]
        if char == "\\":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and text[at - 1].isspace():
            end = text.find("\n", at)
            at = (end if end >= 0 else stop) - 1
        elif char in "{}":
            depth += 1 if char == "{" else -1
            if depth == 0:
                return at
        at += 1
    return -1
