"""Ordering of the options that can run: objective first, then evidence, quality, simplicity.

An option is scored on the conservative end of its band. Options whose scores cannot be told apart
tie (``tie_width``) if they hold the load alike; one that surely holds less of it goes after them.
Among equals better evidence wins, then the stricter quality class, then the higher middle of the
band, then the simpler option.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from qwendeploy.documents import Objective, Predictions, Quality
from qwendeploy.figures import Figure
from qwendeploy.planning.candidate import Candidate

TIE = 0.02
"""Relative difference below which two scores tie: the repetition noise of one decode cell at
c >= 8 (leave-one-out noise floor of the study's repeated cells, median 0.9 %, p90 3.4 %)."""


TIE_SHARE = 0.25
"""Share of the wider half band below which two scores tie as well: options that rest on one fit
err together, so that their difference is surer than either, but not surer than this."""

STEP = 0.01
"""Relative difference of two middles below which neither is better, and simplicity decides."""

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
    tier: int = 2
    """Nearness of the evidence: -1 own runs of this machine, 0 this image's series, 1 a sister
    image's, 2 the joint fit."""
    concurrency: int = 1
    """Requests in flight."""
    held: tuple[tuple[int, int], ...] = ()
    """Fewest and most of them, over the pool's band, that run at once: at the load's context, then
    at the full length that was asked for."""
    end_to_end: bool = False
    """Whether throughput is that of a closed loop of stated prompts and answers."""

    @property
    def sure(self) -> bool:
        """Whether the engine starts, and runs a request of the load with the smallest pool too."""
        return not self.candidate.memory.may_refuse and all(low > 0 for low, _ in self.held[:1])

    @property
    def share(self) -> float:
        """Part of the requests in flight that run at once; the rest wait."""
        return self.running / self.concurrency

    def figure(self, objective: Objective) -> Figure | None:
        """Return the figure that the objective maximises."""
        figures = self.predictions
        throughput = figures.aggregate_decode_tps
        if self.end_to_end:
            throughput = figures.output_tps_end_to_end
        return {
            Objective.CAPACITY: figures.max_typical_context_tokens,
            Objective.LATENCY: figures.per_user_decode_tps,
            Objective.THROUGHPUT: throughput,
        }[objective]

    def score(self, objective: Objective, end: Literal["low", "value"] = "low") -> float:
        """Return the conservative end of what the objective maximises; 0 if there is no figure."""
        figure = self.figure(objective)
        if figure is None:
            return 0.0
        value = figure.low if end == "low" else figure.value
        if objective is Objective.CAPACITY and value < 1:
            return self.share  # where never all run, more of them is more room
        # a request that waits gets nothing, however fast the others are
        return value * self.share if objective is Objective.LATENCY else value

    @property
    def evidence(self) -> tuple[int, int, int, int]:
        """Rank of the evidence, better first: nearness, kind, measurements, repetitions."""
        rate = self.predictions.aggregate_decode_tps
        if rate is None:
            return 99, 99, 0, 0
        repetitions = rate.n if self.standing < 2 else 0
        return self.standing, rate.kind.rank, -min(self.support, ENOUGH), -repetitions

    @property
    def standing(self) -> int:
        """The tier as far as it speaks for the image.

        A third party's build has to be measured itself to go before upstream, which needs no trust
        in it: its sister's series tells its rate, not that it runs.
        """
        return 3 if self.tier > 0 and self.candidate.option.fork else self.tier

    @property
    def complexity(self) -> tuple[int, int, int]:
        """Fewer replicas, fewer draft tokens and no prefix cache are simpler."""
        option = self.candidate.option
        return option.replicas, option.spec_tokens, int(option.prefix_cache)


def level(rate: float) -> int:
    """Return the rate in steps of ``STEP``: middles on one step are equal."""
    return round(math.log(rate) / STEP) if rate > 0 else -(10**6)


def _low(figure: Figure | None) -> float:
    return figure.low if figure is not None else 0.0


def rank(scored: Sequence[Scored], objective: Objective) -> list[Scored]:
    """Return the candidates best first; those that may not start at all after the others.

    Ties are resolved within groups: the best score opens a group that takes in every score that
    ties with it. In a group those come first that hold as much of the load as any other. Options
    that hold the same are told apart by their speed.
    """
    if len({item.sure for item in scored}) > 1:
        sure, unsure = ([item for item in scored if item.sure is it] for it in (True, False))
        return rank(sure, objective) + rank(unsure, objective)
    left = sorted(scored, key=lambda item: -item.score(objective))
    order: list[Scored] = []
    while left:
        group = [item for item in left if tie(item, left[0], objective)]
        if objective is Objective.CAPACITY:
            order += rank(group, Objective.THROUGHPUT)
        else:
            order += _among_equals(group, objective)
        inside = {id(item) for item in group}
        left = [item for item in left if id(item) not in inside]
    return order


def _among_equals(group: Sequence[Scored], objective: Objective) -> list[Scored]:
    """Return a tied group in order: by the load that is held, then evidence, class, simplicity."""
    by_load: dict[tuple[bool, ...], list[Scored]] = {}
    for item in group:
        by_load.setdefault(_holds_less(item, group), []).append(item)
    order: list[Scored] = []
    for _, equals in sorted(by_load.items()):
        equals.sort(
            key=lambda item: (
                item.evidence,
                item.quality.rank,
                -level(item.score(objective, "value")),
                item.complexity,
                -_low(item.predictions.aggregate_decode_tps),
            )
        )
        order += _undominated(equals, objective)
    return order


def _holds_less(item: Scored, group: Sequence[Scored]) -> tuple[bool, ...]:
    """Say where an option surely holds less of the load than another of the group does."""
    return tuple(
        most < max(other.held[at][0] for other in group) for at, (_, most) in enumerate(item.held)
    )


def _undominated(group: Sequence[Scored], objective: Objective) -> list[Scored]:
    """Return a tied group in its order, but better weights before coarser that are no faster."""
    left, order = list(group), []
    while left:
        first = left[0]
        for item in left[1:]:
            if _dominates(item, first, objective):
                first = item
        order.append(first)
        left = [item for item in left if item is not first]
    return order


def _dominates(item: Scored, other: Scored, objective: Objective) -> bool:
    return (
        item.quality.rank < other.quality.rank
        and item.standing <= other.standing
        and item.score(objective) >= other.score(objective)
        and item.score(objective, "value") >= other.score(objective, "value")
    )


def tie(item: Scored, best: Scored, objective: Objective) -> bool:
    """Say whether an option's score cannot be told from a better one's.

    An option that nobody measured on this card has to beat the middle of a measured one's band
    with the low end of its own: the joint fit knows the card, not this kernel on it. A third
    party's build that nobody ran so has to beat upstream's in the same way.
    """
    mine, top = item.score(objective), best.score(objective)
    if _trusted_more(item, best, objective) and item.score(objective, "value") >= top:
        return True
    return mine >= top * (1 - tie_width(item, best, objective))


def _trusted_more(item: Scored, best: Scored, objective: Objective) -> bool:
    """Say whether an option stands on evidence that the better one lacks.

    Nobody measured a closed loop: it rests on the prefill of the card as much as on the rate.
    """
    if objective is Objective.CAPACITY or best.standing < 2:
        return False
    if best.standing > 2:
        return item.standing <= 2
    return item.standing < (0 if best.end_to_end else 2)


def tie_width(item: Scored, best: Scored, objective: Objective) -> float:
    """Return the share by which two scores may differ and still tie."""
    if objective is Objective.CAPACITY or not (item.tier or best.tier):
        return TIE
    widest = max(_half_width(each.figure(objective)) for each in (item, best))
    return max(TIE, TIE_SHARE * widest)


def tie_words(item: Scored, best: Scored, objective: Objective) -> str:
    """Return why the scores of an option and of the chosen one count as equal."""
    lower, upper = sorted((item, best), key=lambda each: each.score(objective))
    width = tie_width(item, best, objective)
    if lower.score(objective) >= upper.score(objective) * (1 - width):
        return f"within {width:.0%}"
    if not tie(lower, upper, objective):
        return "both tie with the highest low end"
    if lower is item:
        return "its median is within the band of an option not measured on this card"
    return "it is not measured on this card, and its low end is below the chosen option's median"


def preference(best: Scored, other: Scored, objective: Objective) -> str:
    """Return in words what placed an option before one that its score ties with."""
    if objective is Objective.CAPACITY:
        if not tie(other, best, Objective.THROUGHPUT):
            return "decodes faster"
        objective = Objective.THROUGHPUT
    if more := _more_held(best, other):
        return more
    if best.standing < other.standing:
        return {
            -1: "is measured on this machine",
            0: "is measured on this card",
            1: "is measured on this card in a sibling image",
            2: "needs no third-party image",
        }[best.standing]
    if best.evidence < other.evidence:
        return "has better evidence"
    if _dominates(best, other, objective):
        return f"is in quality class {best.quality} and not slower"
    if best.quality.rank < other.quality.rank:
        return f"is in quality class {best.quality}"
    if level(best.score(objective, "value")) > level(other.score(objective, "value")):
        return "has the higher median"
    if best.complexity < other.complexity:
        return "is simpler"
    return "has the higher low end"


def _more_held(best: Scored, other: Scored) -> str:
    """Return in words what more of the load an option surely holds, nothing if none."""
    where = ("at the typical context", "at full length")
    for (low, high), (_, most), words in zip(best.held, other.held, where, strict=False):
        if most < low:
            count = f"{low}" if low == high else f"{low} to {high}"
            return f"runs {count} requests {words} at once, the other at most {most}"
    return ""


def _half_width(figure: Figure | None) -> float:
    return figure.half_width if figure is not None else 0.0
