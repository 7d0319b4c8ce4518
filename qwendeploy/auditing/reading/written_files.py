"""Files that a script writes with here-documents, such as units and compose files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qwendeploy.auditing.reading.shell_parameters import default_text

MOST_FILES = 20
_HEREDOC = re.compile(r"<<(-?)[ \t]*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")
_ASSIGNED = re.compile(
    r"^[ \t]*(?:export[ \t]+|readonly[ \t]+|local[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)="
    r"(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\s;'\"]*))[ \t]*$",
    re.MULTILINE,
)
_ESCAPED = "\ue001"
"""Stands for an escaped dollar sign while variables are put in (a private-use character)."""


def written_files(text: str) -> Iterator[str]:
    """Yield the texts of here-documents, empty lines in front so that lines keep their number.

    What the script assigned before is put in, unless the mark is quoted.
    """
    at = 0
    for _ in range(MOST_FILES):
        match = _HEREDOC.search(text, at)
        start = text.find("\n", match.end()) + 1 if match is not None else 0
        if match is None or not start:
            return
        close = re.compile(rf"^[ \t]*{re.escape(match[3])}[ \t]*$", re.MULTILINE)
        end = close.search(text, start)
        stop = end.start() if end is not None else len(text)
        body = text[start:stop]
        if not match[2]:
            body = _expanded(body, _assigned(text[: match.start()]))
        if match[1]:
            body = re.sub(r"(?m)^\t+", "", body)
        yield "\n" * text.count("\n", 0, start) + body
        at = stop


def _assigned(text: str) -> dict[str, str]:
    known: dict[str, str] = {}
    for name, double, single, bare in _ASSIGNED.findall(text):
        value = single or default_text(known, double or bare)
        if "$(" not in value:
            known[name] = value
    return known


def _expanded(body: str, known: dict[str, str]) -> str:
    marked = body.replace("\\$", _ESCAPED).replace("\\\\", "\\")
    return default_text(known, marked).replace(_ESCAPED, "$")
