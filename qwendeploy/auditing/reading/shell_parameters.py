"""Shell parameters and substitutions: where they end, and their default values."""

from __future__ import annotations

import re
from collections.abc import Mapping

WINDOW = 8192
"""Characters that one variable or substitution may span."""
_PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::?[-=](.*))?", re.DOTALL)
_DEEPEST = 20
"""Defaults within defaults that are followed."""


def closing_brace(text: str, at: int) -> int:
    """Return where the parameter that opens at ``at`` closes, -1 if not near: defaults may nest."""
    depth = 0
    for brace in re.finditer(r"[{}]", text[at : at + WINDOW]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return at + brace.start()
        if depth > _DEEPEST:
            break
    return -1


def default_text(variables: Mapping[str, str], text: str, depth: int = 0) -> str:
    """Return a default with what it refers to put in; substitutions stay ``$(...)``."""
    text = re.sub(r"`[^`]*`", "$(...)", text)
    parts: list[str] = []
    at = 0
    while at < len(text):
        start = text.find("$", at)
        if start < 0 or depth > _DEEPEST:
            break
        parts.append(text[at:start])
        following = text[start + 1 : start + 2]
        if following == "(":
            at = start + 1 + balanced(text[start + 1 :])
            parts.append("$(...)")
            continue
        end = closing_brace(text, start + 1) if following == "{" else -1
        inner = _PARAMETER.fullmatch(text[start + 2 : end]) if end > 0 else None
        if inner is not None:
            at = end + 1
            known = variables.get(inner[1])
            default = default_text(variables, inner[2], depth + 1) if inner[2] is not None else None
            parts.append(known or default or f"${inner[1]}")
            continue
        parts.append("$")
        at = start + 1
    return "".join([*parts, text[at:]])


def balanced(rest: str) -> int:
    """Return the characters up to the parenthesis that closes the first one, else all."""
    depth = 0
    for index, char in enumerate(rest):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return index + 1
    return len(rest)
