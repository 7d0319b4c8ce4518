"""Acceptance of drafted tokens by method, draft length and content, and what it is worth.

The chance that a draft survives to position ``j`` falls nearly geometrically, so the acceptance
length (tokens gained a step) is

    A(K) = 1 + first * (1 - decay**K) / (1 - decay)

MTP: 0.76, 0.56, 0.41 at positions 1 to 3, the mean of the study's FP8+MTP3 cells, hence ``first``
0.76 and ``decay`` 0.735; its cells with 2, 4, 5 and 6 draft tokens fall on the same curve within
their scatter. DFlash drafts a block at once and saturates: 0.24 of 7, 0.23 of 8 and 0.12 of 15
accepted in the study. Content moves both: code accepts 1.28 times (MTP, 3 tokens) and 1.6 times
(DFlash, 5) the tokens of prose in paired community runs. ``benchdata/acceptance.csv`` lists the
observations; sampled acceptance swings from run to run, so every length carries its spread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate

CONTENTS = ("prose", "mixed", "agent", "code")
"""Content classes from the least to the most predictable text."""
MAX_SHARE = 0.97
"""Largest share of drafted tokens that any run reports as accepted."""


@dataclass(frozen=True, slots=True)
class AcceptanceCurve:
    """Chance of accepting the first drafted token, its decay by position, and the spread.

    ``by_content`` multiplies the acceptance length; ``spread`` is the relative standard deviation
    of the length between runs of one content class.
    """

    first: float
    decay: float
    by_content: Mapping[str, float]
    spread: float
    basis: str

    def length(self, tokens: int, content: str) -> float:
        """Return the acceptance length, never above what a fully accepted draft gives."""
        gained = self.first * (1 - self.decay**tokens) / (1 - self.decay)
        return min((1 + gained) * self.by_content[content], 1 + MAX_SHARE * tokens)


CURVES: Mapping[str, AcceptanceCurve] = {
    "mtp": AcceptanceCurve(
        first=0.76,
        decay=0.735,
        by_content={
            "study": 1.0,
            "synthetic": 1.0,
            "prose": 1.02,
            "mixed": 1.08,
            "agent": 1.18,
            "code": 1.31,
        },
        spread=0.09,
        basis="MTP cells of the study; prose and code of one rig, paired",
    ),
    "dflash": AcceptanceCurve(
        first=0.57,
        decay=0.70,
        by_content={
            "study": 1.0,
            "synthetic": 1.0,
            "prose": 1.08,
            "mixed": 1.15,
            "agent": 1.35,
            "code": 1.735,
        },
        spread=0.15,
        basis="DFlash cells of the study; prose and code of one rig, paired",
    ),
}
"""Method -> curve. ``study`` is the study's own prompt, ``synthetic`` acceptance set by hand to the
same mean; both are the unit of the content factors."""
ALIASES: Mapping[str, str] = {"eagle": "mtp", "qwen3_next_mtp": "mtp", "dspark": "dflash"}


def curve_for(method: str) -> AcceptanceCurve | None:
    """Return the curve of a draft method, ``None`` if no run of that method is on record."""
    return CURVES.get(ALIASES.get(method, method))


def acceptance_length(method: str, tokens: int, content: str | None = "mixed") -> Estimate | None:
    """Return the tokens a sequence gains a step, 1 without drafting; ``None`` without evidence.

    ``content`` ``None`` means not stated: the band then spans prose to code.
    """
    if method == "none" or tokens == 0:
        return Estimate(1.0, 1.0, 1.0, Kind.MEASURED, basis="one token per step")
    curve = curve_for(method)
    if curve is None:
        return None
    if content is not None and content not in curve.by_content:
        raise ValueError(f"content {content!r} is not one of {', '.join(CONTENTS)}")
    ceiling = 1.0 + tokens
    if content is None:
        low, high = curve.length(tokens, "prose"), curve.length(tokens, "code")
        value = curve.length(tokens, "mixed")
    else:
        value = low = high = curve.length(tokens, content)
    reach = 1 + 1.645 * curve.spread
    return Estimate(
        value,
        max(low / reach, 1.0),
        min(high * reach, ceiling),
        Kind.TRANSFERRED,
        basis=curve.basis,
    )


def acceptance_rate(method: str, tokens: int, content: str | None = "mixed") -> Estimate | None:
    """Return accepted/drafted tokens; ``None`` without drafting or without evidence."""
    length = acceptance_length(method, tokens, content)
    if length is None or tokens == 0 or method == "none":
        return None
    return Estimate(
        (length.value - 1) / tokens,
        (length.low - 1) / tokens,
        (length.high - 1) / tokens,
        length.kind,
        basis=length.basis,
    )


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where drafting stops paying: ``pays_up_to`` streams, ``loses_from`` the next one compared.

    ``certain`` is False where the bands of both options overlap at the change. ``None`` means that
    drafting never paid (``pays_up_to``) or never lost (``loses_from``) within the range compared.
    """

    pays_up_to: int | None
    loses_from: int | None
    certain: bool


def crossover(drafted: Mapping[int, Estimate], plain: Mapping[int, Estimate]) -> Crossover:
    """Compare aggregate rates with and without drafting at the concurrencies both name."""
    shared = sorted(set(drafted) & set(plain))
    if not shared:
        raise ValueError("the two options share no concurrency")
    pays_up_to: int | None = None
    loses_from: int | None = None
    for c in shared:
        if drafted[c].value >= plain[c].value:
            pays_up_to, loses_from = c, None
        elif loses_from is None:
            loses_from = c
    if loses_from is None:
        return Crossover(pays_up_to, None, drafted[shared[-1]].low >= plain[shared[-1]].high)
    return Crossover(pays_up_to, loses_from, drafted[loses_from].high <= plain[loses_from].low)
