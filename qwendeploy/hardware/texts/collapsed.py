"""Tables and matrices whose line breaks a web page turned into spaces.

A rule of such a table tells how many cells the rows after it have, and so where each row ends.
"""

from __future__ import annotations

import re

from qwendeploy.hardware.texts.wrapped import CELL, LABEL

_RULE = re.compile(r"[+|](?:[-=]{10,}[+|])(?:[-=]{3,}[+|]){0,6}(?=\s|$)")
_HEADER = re.compile(r"(?<!\S)GPU0\s.{0,2000}?(?<!\S)GPU0\s+X(?!\S)")
_MATRIX_ROW = re.compile(rf"\s(?={LABEL}\s+{CELL}\s+{CELL})")
_LEGEND = re.compile(r"\s(?=Legend:|NIC Legend:|(?:X|SYS|NODE|PHB|PXB|PIX|NV#)\s+= )")
MIN_LENGTH = 150
"""The shortest rule alone is 79 characters long."""


def expanded(lines: list[str]) -> list[str]:
    """Return the lines with every table or matrix that stands in one of them on lines again."""
    found: list[str] = []
    for line in lines:
        if len(line) >= MIN_LENGTH and len(rules := list(_RULE.finditer(line))) > 1:
            found.extend(_table(line, rules))
        elif header := _HEADER.search(line):
            found.append(line[: header.start()].rstrip())
            matrix = _MATRIX_ROW.sub("\n", line[header.start() :])
            found.extend(_LEGEND.sub("\n", matrix).split("\n"))
        else:
            found.append(line)
    return found


def _table(line: str, rules: list[re.Match[str]]) -> list[str]:
    rows = [line[: rules[0].start()]]
    for number, rule in enumerate(rules):
        cells = len(re.findall(r"[-=]{3,}", rule[0]))
        stop = rules[number + 1].start() if number + 1 < len(rules) else len(line)
        rows.append(rule[0])
        rows.extend(_rows(line[rule.end() : stop], cells))
    return rows


def _rows(text: str, count: int) -> list[str]:
    """Return rows of ``count`` cells; what follows the last bar stands alone."""
    parts = text.strip().split("|")
    if len(parts) < 2:
        return [text.strip()]
    step = count + 1
    rows = [
        "|" + "|".join(parts[at : at + count]) + "|"
        for at in range(1, len(parts), step)
        if any(part.strip() for part in parts[at : at + count])
    ]
    rest = parts[-1].strip() if (len(parts) - 1) % step == 0 else ""
    return [part for part in (parts[0].strip(), *rows, rest) if part]
