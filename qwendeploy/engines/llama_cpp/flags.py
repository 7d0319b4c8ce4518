"""llama-server's options: every spelling, what each takes, its variable, and what was removed."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from qwendeploy.tables.reader import CellError, read_table

LEAST_LIKE = 0.6
"""Likeness from which a word is taken for another one misspelt."""


@dataclass(frozen=True, slots=True)
class LlamaFlag:
    """One option of llama.cpp's server.

    ``aliases`` and ``allowed`` are separated by ``|``; a ``list`` takes several of the allowed
    words, separated by commas; ``fork`` names the project that alone has it; ``last_seen`` is a
    build that takes a removed option and ``gone_from`` one that refuses it.
    """

    flag: str
    aliases: str | None
    takes: Literal["none", "text", "whole", "number", "choice", "list", "pair"]
    allowed: str | None
    env: str | None
    fork: str | None
    last_seen: int | None
    gone_from: int | None
    successor: str | None
    source: str

    def __post_init__(self) -> None:
        if self.chosen != (self.allowed is not None):
            raise CellError("allowed", "values are listed where, and only where, one is chosen")
        if (self.last_seen is None) != (self.gone_from is None):
            raise CellError("gone_from", "a removal has a build on either side")

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return every way to write the option."""
        return (self.flag, *self.aliases.split("|")) if self.aliases else (self.flag,)

    @property
    def values(self) -> tuple[str, ...]:
        """Return the words that may be chosen from."""
        return tuple(self.allowed.split("|")) if self.allowed else ()

    @property
    def chosen(self) -> bool:
        """Whether its words are chosen from ``values``."""
        return self.takes in ("choice", "list")

    def refused(self, value: str) -> str | None:
        """Return the word of a value at which the server stops, ``None`` if it takes the value."""
        if self.chosen:
            words = value.split(",") if self.takes == "list" else [value]
            return next((word for word in words if word not in self.values), None)
        if self.takes in ("whole", "number"):
            # The parser reads as far as there are digits, and stops where there are none.
            return None if re.match(r"[-+]?\d", value) else value
        return value if self.takes == "none" else None

    def nearest(self, word: str) -> str | None:
        """Return the allowed word that is most like one that is refused, the first of equals."""
        like = {near: difflib.SequenceMatcher(None, word, near).ratio() for near in self.values}
        best = max(self.values, key=lambda near: like[near], default=None)
        return best if best is not None and like[best] >= LEAST_LIKE else None


@cache
def llama_flags() -> tuple[LlamaFlag, ...]:
    """Return every option. Raises as ``reader.read_csv``."""
    return read_table("llama_flags", LlamaFlag)


@cache
def _by_spelling() -> dict[str, LlamaFlag]:
    return {name: row for row in llama_flags() for name in row.spellings}


def find_llama_flag(spelt: str) -> LlamaFlag | None:
    """Return the option of a spelling; like the server, ``_`` counts as ``-`` in long ones."""
    name = spelt.replace("_", "-") if spelt.startswith("--") else spelt
    return _by_spelling().get(name)


def nearest_llama_flag(spelt: str, value: str | None = None) -> str | None:
    """Return the spelling of the server's own that is most like one it does not know.

    Options that refuse the value are not what was meant.
    """
    known = [
        name
        for name, row in _by_spelling().items()
        if not row.fork and not row.gone_from and (value is None or row.refused(value) is None)
    ]
    return next(iter(difflib.get_close_matches(spelt, known, n=1, cutoff=0.7)), None)


@cache
def flags_by_variable() -> dict[str, LlamaFlag]:
    """Return the options that a variable of the environment sets."""
    return {row.env: row for row in llama_flags() if row.env}
