"""llama-server's options: every spelling, what each takes, its variable, and what was removed."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from typing import Literal

from qwendeploy.tables.reader import CellError, read_table


@dataclass(frozen=True, slots=True)
class LlamaFlag:
    """One option of llama.cpp's server.

    ``aliases`` and ``allowed`` are separated by ``|``; ``fork`` names the project that alone has
    it; ``last_seen`` is a build that takes a removed option and ``gone_from`` one that refuses it.
    """

    flag: str
    aliases: str | None
    takes: Literal["none", "text", "whole", "number", "choice", "pair"]
    allowed: str | None
    env: str | None
    fork: str | None
    last_seen: int | None
    gone_from: int | None
    successor: str | None
    source: str

    def __post_init__(self) -> None:
        if (self.takes == "choice") != (self.allowed is not None):
            raise CellError("allowed", "values are listed where, and only where, one is chosen")
        if (self.last_seen is None) != (self.gone_from is None):
            raise CellError("gone_from", "a removal has a build on either side")

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return every way to write the option."""
        return (self.flag, *(self.aliases or "").split("|")) if self.aliases else (self.flag,)

    @property
    def values(self) -> tuple[str, ...]:
        """Return the words that may be chosen from."""
        return tuple((self.allowed or "").split("|")) if self.allowed else ()


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


def nearest_llama_flag(spelt: str) -> str | None:
    """Return the spelling of the server's own that is most like one it does not know."""
    known = [name for name, row in _by_spelling().items() if not row.fork and not row.gone_from]
    return next(iter(difflib.get_close_matches(spelt, known, n=1, cutoff=0.7)), None)


@cache
def flags_by_variable() -> dict[str, LlamaFlag]:
    """Return the options that a variable of the environment sets."""
    return {row.env: row for row in llama_flags() if row.env}
