"""Launches in fenced code blocks of a page, with their line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+.-]*)[^`\n]*$")
_PROMPT = re.compile(r"^([ \t]*)(?:\$|#|>|[\w.-]+@[\w.-]+[:~\w/.-]*[$#])[ \t]+(?=\S)")
"""A shell's prompt as pages print it; a comment of its own stays one to the reader of shells."""
_PROMPTED = ("console", "shell-session", "terminal")
MOST_BLOCKS = 60
MOST_LINES = 5000
"""Blocks and lines of a page that are looked at."""


def is_page(text: str, file: str) -> bool:
    """Say whether a text is a page with fenced blocks, by its name or by its first lines."""
    if file.lower().endswith((".md", ".markdown", ".mdx")):
        return True
    return bool(re.match(r"\s*#{1,6} \S[^\n]*\n", text)) and "\n```" in text


def fenced_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and text of every fenced block, behind as many empty lines as precede it.

    So what is read from a block stands at the page's own lines. Blocks within lists are shifted
    to the margin.
    """
    block: list[str] | None = None
    mark = language = ""
    count = indent = 0
    for number, line in enumerate(text.split("\n")[:MOST_LINES]):
        fence = _FENCE.match(line)
        if block is None:
            if fence is not None:
                mark, language, block = fence[1], fence[2].lower(), [""] * (number + 1)
                indent = len(line) - len(line.lstrip())
        elif fence is not None and fence[1].startswith(mark) and not fence[2]:
            yield language, "\n".join(block) + "\n"
            block, count = None, count + 1
            if count >= MOST_BLOCKS:
                return
        else:
            shifted = line[indent:] if not line[:indent].strip() else line
            block.append(_without_prompt(shifted, language))


def _without_prompt(line: str, language: str) -> str:
    prompted = language in _PROMPTED or line.lstrip().startswith("$ ")
    return _PROMPT.sub(r"\1", line) if prompted else line
