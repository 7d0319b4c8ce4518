"""Unescaping of texts that were embedded in JSON, HTML or Markdown.

Each step looks for the traces of its own kind and leaves every other text as it is.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any

from qwendeploy.hardware.texts.columns import is_column

_TAGGED = re.compile(r"&(?:nbsp|lt|gt|quot|#\d{2,5}|#x[0-9a-f]{2,4});", re.IGNORECASE)
_BREAK = re.compile(r"<br\s{0,4}/?>\n?", re.IGNORECASE)
_MARKUP = re.compile(r"</?(?:pre|code|p|div|span|details|summary|tt|samp)(?: [^<>\n]{0,200})?>")
_ESCAPED_LINE = re.compile(r"\\n(?=[|+0-9\s]|GPU|\"|$)")
_CONTROL_WORDS = (("\\r", ""), ("\\t", "\t"), ('\\"', '"'))
_LITERAL = re.compile(r"^\s*[rbf]{0,2}([\"'])(.{0,4000})\\n\1[,)+;]?\s*$")
"""A line as a program's source holds it: ``"GPU0\\t X \\tPHB\\n"``."""
_MARKDOWN = re.compile(r"\\([|._#\[\]-])")
"""Signs that Markdown editors escape."""
_MEMBER = re.compile(r'^[+\s-]{0,40}"\w{1,40}"\s{0,4}:\s{0,4}"')
"""The name of a JSON member before its value, also in a line of a diff."""
MAX_STRINGS = 10_000


def unescaped(text: str) -> str:
    """Return the text as the tool printed it, as far as its wrapping can be told."""
    text = _from_json(text)
    if "\\n" in text:
        lines = (_LITERAL.sub(_of_literal, line) for line in text.split("\n"))
        text = "\n".join(map(_unquoted, lines))
    if _TAGGED.search(text) and "<nvidia_smi_log" not in text:
        text = html.unescape(_BREAK.sub("\n", text))
    if "<nvidia_smi_log" not in text and "<" in text:
        text = _MARKUP.sub("", _BREAK.sub("\n", text))
    return _MARKDOWN.sub(r"\1", text)


def _from_json(text: str) -> str:
    """Return the strings of a JSON text, each on lines of its own, else the text."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return text
    found: list[str] = []
    waiting: list[Any] = [content]
    while waiting and len(found) < MAX_STRINGS:
        item = waiting.pop()
        if isinstance(item, dict):
            found.extend(_columns_of(item))
            waiting.extend(reversed(item.values()))
        elif isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, str):
            found.append(item)
    return "\n".join(found)


def _of_literal(match: re.Match[str]) -> str:
    return match[2].replace("\\t", "\t").replace('\\"', '"').replace("\\'", "'")


def _columns_of(item: dict[Any, Any]) -> list[str]:
    """Return the query columns among an object's names as ``name : value``, a line each."""
    lines = [
        f"{name} : {value}"
        for name, value in item.items()
        if is_column(name) and isinstance(value, str | int | float) and len(str(value)) < 200
    ]
    return ["", *lines] if len(lines) > 1 else []


def _unquoted(line: str) -> str:
    """Return a line with several escaped line ends as those lines; a Windows path has few."""
    if len(_ESCAPED_LINE.findall(line)) < 2:
        return line
    if member := _MEMBER.match(line):
        line = re.sub(r'"\s*,?\s*$', "", line[member.end() :])
    for escape, plain in _CONTROL_WORDS:
        line = line.replace(escape, plain)
    return line.replace("\\n", "\n")
