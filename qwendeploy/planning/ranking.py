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


TIE_SHARE = 0.25
"""Share of the wider half band below which two scores tie as well: options that rest on one fit
err together, so that their difference is surer than either, but not surer than this."""

ENOUGH = 10
"""Measurements of an option beyond which more of them make it no better evidence."""


@dataclass(frozen=True)
class Scored:
    """A candidate with its predictions at the point the options are ranked at."""

    candidate: Candidate
    predictions: Predictions
    quality: Quality
    running: int
    support: int
    """Measurements of this card with these weights, this draft and this layout."""

    def score(self, objective: Objective) -> float:
        """Return the conservative end of what the objective maximises; 0 if there is no figure."""
        figures = self.predictions
        if objective is Objective.CAPACITY:
            return _low(figures.max_typical_context_tokens)
        if objective is Objective.LATENCY:
            return _low(figures.per_user_decode_tps)
        return _low(figures.aggregate_decode_tps)

    @property
    def evidence(self) -> tuple[int, int, int]:
        """Rank of the evidence, better first: kind, own measurements, repetitions of the cell."""
        rate = self.predictions.aggregate_decode_tps
        if rate is None:
            return 99, 0, 0
        return rate.kind.rank, -min(self.support, ENOUGH), -rate.n

    @property
    def complexity(self) -> tuple[int, int, int]:
        """Fewer replicas, fewer draft tokens and no prefix cache are simpler."""
        option = self.candidate.option
        return option.replicas, option.spec_tokens, int(option.prefix_cache)


def _low(figure: Figure | None) -> float:
    return figure.low if figure is not None else 0.0


def rank(scored: Sequence[Scored], objective: Objective) -> list[Scored]:
    """Return the candidates best first.

    Ties are resolved within groups: the best score opens a group that takes in every score that
    ties with it.
    """
    left = sorted(scored, key=lambda item: -item.score(objective))
    order: list[Scored] = []
    while left:
        group = [item for item in left if tie(item, left[0], objective)]
        group.sort(
            key=lambda item: (
                item.evidence,
                item.quality.rank,
                item.complexity,
                -_low(item.predictions.aggregate_decode_tps),
            )
        )
        order += group
        inside = {id(item) for item in group}
        left = [item for item in left if id(item) not in inside]
    return order


def tie(item: Scored, best: Scored, objective: Objective) -> bool:
    """Say whether an option's score cannot be told from a better one's."""
    mine, top = item.score(objective), best.score(objective)
    width = max(TIE, TIE_SHARE * max(_half_width(item), _half_width(best)))
    return mine >= top * (1 - width)


def _half_width(item: Scored) -> float:
    rate = item.predictions.aggregate_decode_tps
    return rate.half_width if rate is not None else 0.0
