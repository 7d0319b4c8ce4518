"""Prompts of a wanted length, made here: no download, no repetition, cache-proof when asked.

Text is put together from word lists by a seeded generator, as prose or as code, because drafts are
accepted at different rates on them. Two prompts of different seeds differ from their first words
on, so no prefix cache can serve one from the other. Lengths come out in the server's own tokens
once ``calibrated`` with a count by the server.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from qwendeploy.documents import Content

_SUBJECTS = (
    "the harbour master", "a retired surveyor", "the night shift", "our second laboratory",
    "the council of the valley", "an early steam engine", "the youngest apprentice",
    "a row of lime trees", "the northern railway", "every printed almanac", "the glass works",
    "a visiting botanist", "the river authority", "the old observatory",
)  # fmt: skip
_VERBS = (
    "measured", "kept a record of", "rebuilt", "argued about", "carefully described", "sold",
    "inherited", "mapped", "postponed", "copied by hand", "praised", "misread", "repaired",
)  # fmt: skip
_OBJECTS = (
    "the tides of that autumn", "a bridge with three arches", "forty crates of instruments",
    "the price of salt", "an unfinished catalogue", "the first electric lamps",
    "a collection of moths", "the boundary stones", "two contradictory reports",
    "the winter timetable", "a method for casting bells", "the depth of the reservoir",
)  # fmt: skip
_TAILS = (
    "before the frost came", "with unusual patience", "although nobody had asked",
    "for the third time in a decade", "as the letters of the period show",
    "which later proved decisive", "at considerable expense", "without telling the owners",
    "in spite of the weather", "and published the result in spring",
)  # fmt: skip
_NOUNS = (
    "order", "sensor", "packet", "ledger", "voyage", "sample", "tenant", "batch", "signal",
    "invoice", "cursor", "route", "token", "shard", "quota", "replica",
)  # fmt: skip
_ACTIONS = (
    "merge", "validate", "split", "rank", "encode", "collect", "rotate", "flush", "trim",
    "resolve", "sort", "pack", "count", "filter",
)  # fmt: skip

TASKS: dict[str, str] = {
    "prose": "Continue this chronicle with many further paragraphs in the same manner. "
    "Do not summarise and do not stop.",
    "code": "Continue this Python module with many further functions in the same manner, "
    "each with a docstring and type hints. Do not summarise and do not stop.",
}


TextKind = Literal["prose", "code"]
TOKENS_PER_CHARACTER = (0.05, 1.5)
"""From words of twenty characters to bytes with marks between; beyond, the count is no count."""
OWN_TOKENS = 64
"""Tokens of its own that a request adds to a shared context, as in the tables' measurements."""


@dataclass(frozen=True)
class PromptMaker:
    """Makes prompts; the ratios are the server's once it has counted a text of each kind."""

    content: Content = Content.MIXED
    prose: float = 0.22
    """Tokens per character of prose; until counted, about 4.5 characters a token."""
    code: float = 0.31
    """Tokens per character of code; until counted, about 3.2 characters a token."""
    overhead: float = 12.0
    """Tokens of the chat template around the text."""
    counted: bool = False
    """The ratios are from counts by the server."""

    @property
    def kinds(self) -> tuple[TextKind, ...]:
        """Kinds of text that this content is made of."""
        if self.content is Content.CODE:
            return ("code",)
        return ("prose",) if self.content is Content.PROSE else ("prose", "code")

    def margin(self, tokens: int) -> int:
        """Return by how much a prompt of wanted length may be longer in the server's tokens."""
        return max(16, tokens // 50 if self.counted else tokens // 2)

    def calibrated(self, kind: TextKind, characters: int, tokens: int) -> PromptMaker:
        """Return the maker corrected by a count of the server, unless no tokenizer counts so."""
        ratio = (tokens - self.overhead) / characters
        if not TOKENS_PER_CHARACTER[0] <= ratio <= TOKENS_PER_CHARACTER[1]:
            return self
        if kind == "prose":
            return replace(self, counted=True, prose=ratio)
        return replace(self, counted=True, code=ratio)

    def estimate(self, characters: int) -> float:
        """Return the tokens of a text of either kind, the larger of the two estimates."""
        return characters * max(self.prose, self.code)

    def kind_of(self, seed: str) -> TextKind:
        """Return which kind of text a seed gives: half and half in mixed content."""
        return random.Random(f"kind-{seed}").choice(self.kinds)

    def kind_at(self, index: int) -> TextKind:
        """Return the kind of text of one of several streams: in turn, so that none prevails."""
        return self.kinds[index % len(self.kinds)]

    def shared(
        self, tokens: int, share: float, seed: str, own: str, kind: TextKind | None = None
    ) -> str:
        """Return a message of ``tokens`` that begins with what others of ``seed`` begin with.

        ``share`` of it is common, at most all but ``OWN_TOKENS``; seed ``own`` makes the rest,
        which is of ``kind`` and says how to go on.
        """
        rest = max(min(OWN_TOKENS, tokens // 2), round(tokens * (1 - share)))
        if rest >= tokens:
            return self.text(tokens, own, kind)
        return f"{_common(self, tokens - rest, seed)}\n\n{self.text(rest, own, kind)}"

    def text(self, tokens: int, seed: str, kind: TextKind | None = None) -> str:
        """Return a user message of about ``tokens`` prompt tokens, template included."""
        chooser = random.Random(seed)
        kind = kind or self.kind_of(seed)
        task = TASKS[kind]
        head = f"Document {chooser.getrandbits(64):016x}.\n\n"
        ratio = self.code if kind == "code" else self.prose
        wanted = int(max(0.0, tokens - self.overhead) / ratio)
        room = wanted - len(head) - len(task) - 2
        if room <= 0:
            return (head + task)[: max(20, wanted)]
        body = _fill(chooser, room, _function if kind == "code" else _paragraph)
        return f"{head}{body}\n\n{task}"


@lru_cache(maxsize=4)
def _common(maker: PromptMaker, tokens: int, seed: str) -> str:
    """Return the text that many messages begin with, made once."""
    return maker.text(tokens, seed)


def _fill(chooser: random.Random, characters: int, piece: Callable[[random.Random], str]) -> str:
    """Return exactly ``characters`` of generated text."""
    parts: list[str] = []
    length = 0
    while length < characters:
        part = piece(chooser)
        parts.append(part)
        length += len(part)
    return "".join(parts)[:characters]


def _sentence(chooser: random.Random) -> str:
    words = " ".join(chooser.choice(part) for part in (_SUBJECTS, _VERBS, _OBJECTS, _TAILS))
    if chooser.random() < 0.3:
        words += f", in {chooser.randint(1612, 1989)}"
    return words[0].upper() + words[1:] + ". "


def _paragraph(chooser: random.Random) -> str:
    return "".join(_sentence(chooser) for _ in range(chooser.randint(3, 6))) + "\n\n"


def _function(chooser: random.Random) -> str:
    action, noun, other = chooser.choice(_ACTIONS), chooser.choice(_NOUNS), chooser.choice(_NOUNS)
    number = chooser.randint(2, 997)
    return (
        f"def {action}_{noun}_{number}({noun}s: list[int], {other}: int = {number}) -> list[int]:\n"
        f'    """Return the {noun}s that {action} leaves, each below {other}."""\n'
        f"    kept = []\n"
        f"    for index, {noun} in enumerate({noun}s):\n"
        f"        if {noun} % {chooser.randint(2, 9)} == index % {chooser.randint(2, 9)}:\n"
        f"            kept.append({noun} + {other} * {chooser.randint(1, 99)})\n"
        f"    return kept\n\n\n"
    )
