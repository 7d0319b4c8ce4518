"""What becomes of an option: a candidate with its memory and settings, or a rejection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qwendeploy.documents import Option
from qwendeploy.evidence.memory_view import Pool, Servers, Slots
from qwendeploy.planning.settings import Chosen
from qwendeploy.rulebook.book import Fired


@dataclass(frozen=True)
class Rejection:
    """Why an option is out."""

    rule: str
    reason: str
    missed_by: str | None = None
    would_return: str | None = None


def refusal_of(fired: Iterable[Fired]) -> Rejection | None:
    """Return the first rejection among fired rules, ``None`` if there is none."""
    for result in fired:
        if result.rejects:
            return Rejection(result.rule.id, result.reason, result.missed_by, result.would_return)
    return None


@dataclass(frozen=True)
class Candidate:
    """An option with its settings, memory and the rules that shaped it."""

    option: Option
    memory: Pool | Slots
    flags: tuple[Chosen, ...]
    env: tuple[Chosen, ...]
    fired: tuple[Fired, ...]

    @property
    def servers(self) -> Servers:
        """Its replicas with their memory and seats."""
        option = self.option
        return Servers(self.memory, option.max_num_seqs or 1, option.replicas, option.prefix_cache)
