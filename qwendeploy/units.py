"""Parsing and printing of the quantities people type: token counts, sizes, durations."""

from __future__ import annotations

import re

from qwendeploy.errors import UserError

GIB = 2**30
MIB = 2**20

_TOKENS = re.compile(
    r"^\s*(\d+(?:[_,]\d{3})*(?:\.\d+)?|\d*\.\d+)\s*([kKmM]?)(?:i?[tT]ok(?:ens)?)?\s*$"
)
_TOKEN_FACTOR = {"": 1, "k": 1024, "m": 1024 * 1024}


def parse_tokens(text: str | int, *, setting: str = "length") -> int:
    """Return a token count; ``256k`` is 262144 and ``0.25M`` is 262144.

    Raises:
        UserError: the text is not a positive whole number of tokens.
    """
    if isinstance(text, int):
        value = float(text)
    else:
        match = _TOKENS.match(text)
        if match is None:
            raise UserError(
                f"{text!r} is not a number of tokens",
                where=setting,
                hint="write 262144, 256k or 0.25M",
            )
        value = float(match[1].replace("_", "").replace(",", "")) * _TOKEN_FACTOR[match[2].lower()]
    if value < 1 or value != int(value):
        raise UserError(
            f"{text!r} is not a positive whole number of tokens",
            where=setting,
            hint="write 262144, 256k or 0.25M",
        )
    return int(value)


def format_tokens(tokens: int) -> str:
    """Return ``256k`` for exact multiples of 1024, else the number with separators."""
    if tokens >= 1024 and tokens % 1024 == 0:
        return f"{tokens // 1024}k"
    return f"{tokens:,}"


def format_count(value: float) -> str:
    """Return a number at the precision it deserves: three significant digits, thousands marked."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"
