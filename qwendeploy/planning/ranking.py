"""Ordering of the options that can run: objective first, then evidence, quality, simplicity.

An option is scored on the conservative end of its band. Two options whose scores differ by less
than the repetition noise of one measurement tie, and then better evidence wins, then the stricter
quality class, then the simpler option.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qwendeploy.documents import Objective, Predictions, Quality
from qwendeploy.figures import Figure
from qwendeploy.planning.resolve import Candidate

TIE = 0.02
"""Relative difference below which two scores tie: the repetition noise of one decode cell at
c >= 8 (leave-one-out noise floor of the study's repeated cells, median 0.9 %, p90 3.4 %)."""


@dataclass(frozen=True)
class Scored:
    """A candidate with its predictions at the point the options are ranked at."""

    candidate: Candidate
    predictions: Predictions
    quality: Quality
    running: int

    def score(self, objective: Objective) -> float:
        """Return the conservative end of what the objective maximises; 0 if there is no figure."""
        figures = self.predictions
        if objective is Objective.CAPACITY:
            return _low(figures.max_typical_context_tokens)
        if objective is Objective.LATENCY:
            return _low(figures.per_user_decode_tps)
        return _low(figures.aggregate_decode_tps)

    @property
    def evidence(self) -> tuple[int, int]:
        """Rank of the evidence behind the rate, better first: kind, then number of repetitions."""
        rate = self.predictions.aggregate_decode_tps
        return (rate.kind.rank, -rate.n) if rate else (99, 0)

    @property
    def complexity(self) -> tuple[int, int, int]:
        """Fewer replicas, fewer draft tokens and no prefix cache are simpler."""
        option = self.candidate.option
        return option.replicas, option.spec_tokens, int(option.prefix_cache)


def _low(figure: Figure | None) -> float:
    return figure.low if figure is not None else 0.0


def rank(scored: Sequence[Scored], objective: Objective) -> list[Scored]:
    """Return the candidates best first.

    Ties are resolved within groups: the best score opens a group that takes in every score within
    ``TIE`` of it.
    """
    left = sorted(scored, key=lambda item: -item.score(objective))
    order: list[Scored] = []
    while left:
        floor = left[0].score(objective) * (1 - TIE)
        group = [item for item in left if item.score(objective) >= floor]
        group.sort(
            key=lambda item: (
                item.evidence,
                item.quality.rank,
                item.complexity,
                -_low(item.predictions.aggregate_decode_tps),
            )
        )
        order += group
        left = left[len(group) :]
    return order
