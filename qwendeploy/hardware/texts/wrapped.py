"""Joining of lines that a terminal or a mail program wrapped.

A table's border tells that it is broken: a rule that begins with ``+--`` and does not end with
``+`` goes on in the next line. A matrix tells by a header that goes on before the first row.
"""

from __future__ import annotations

import re

_RULE = re.compile(r"^[+|][-=+]{20,}$")
_REST = re.compile(r"^[-=+]{0,200}[+|]$")
LABEL = r"(?:GPU\d{1,3}|NIC\d{1,3}|mlx\w{1,12})"
"""What begins a row of a matrix."""
CELL = r"(?:X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS)"
_LABEL = re.compile(rf"^{LABEL}$")
_CELL = re.compile(rf"^{CELL}$")
MAX_PIECES = 12
MAX_BLOCK = 400


def unwrapped(lines: list[str]) -> list[str]:
    """Return the lines with broken tables and matrices joined again; others are kept."""
    return _matrices(_tables(lines))


def _tables(lines: list[str]) -> list[str]:
    joined: list[str] = []
    width = full = 0
    position = 0
    while position < len(lines):
        line = lines[position]
        if _RULE.match(line):
            width, full = _broken_rule(lines, position) or (width, full)
        take = 1
        if width and line[:1] in "|+" and 0 < len(line) <= width:
            take = -(-full // width)
            pieces = lines[position : position + take]
            if any(piece[:1] in "|+" and len(piece) > 2 for piece in pieces[1:]):
                take = 1
        joined.append("".join(piece.ljust(width) for piece in lines[position : position + take]))
        position += take
    return [line.rstrip() for line in joined]


def _broken_rule(lines: list[str], start: int) -> tuple[int, int] | None:
    """Return width of a piece and of the whole rule, ``(0, 0)`` if the rule is whole."""
    first = lines[start]
    total = len(first)
    for rest in lines[start + 1 : start + MAX_PIECES]:
        if first.endswith(("+", "|")) and not _REST.match(rest):
            return 0, 0
        if not re.fullmatch(r"[-=+|]{1,200}", rest) or len(rest) > len(first):
            return 0, 0
        total += len(rest)
        if len(rest) < len(first):
            return (len(first), total) if _REST.match(rest) else (0, 0)
    return 0, 0


def _matrices(lines: list[str]) -> list[str]:
    joined: list[str] = []
    position = 0
    while position < len(lines):
        end = _block_end(lines, position)
        if end:
            joined.extend(_rows(lines[position:end]))
            position = end
        else:
            joined.append(lines[position])
            position += 1
    return joined


def _block_end(lines: list[str], start: int) -> int:
    """Return the end of a matrix whose header is broken, 0 if there is none at ``start``."""
    tokens = lines[start].split()
    if len(tokens) < 2 or tokens[0] != "GPU0" or not all(_LABEL.match(t) for t in tokens[1:-1]):
        return 0
    following = lines[start + 1].split() if start + 1 < len(lines) else []
    if not following or _starts_row(following) or tokens[-1] in ("Affinity", "ID"):
        return 0
    end = start + 1
    while end < len(lines) and end - start < MAX_BLOCK and lines[end].strip():
        if lines[end].lstrip().startswith("Legend"):
            break
        end += 1
    return end


def _starts_row(tokens: list[str]) -> bool:
    return len(tokens) > 1 and bool(_LABEL.match(tokens[0]) and _CELL.match(tokens[1]))


def _rows(block: list[str]) -> list[str]:
    """Return header and rows whole; a word that the break cut in two is one word again."""
    width = max(len(line) for line in block)
    rows: list[str] = []
    for line in block:
        if not rows or _starts_row(line.split()):
            rows.append(line)
        else:
            cut = len(rows[-1]) % width == 0 and not line.startswith(" ")
            rows[-1] += line if cut else " " + line
    return rows
