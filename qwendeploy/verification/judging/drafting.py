"""Draft acceptance, measured and as assumed by the plan's rates.

A decode rate is steps per second times tokens a step. The step is the machine's; the tokens a step
are the text's too, and the text of a measurement is its own. A rate outside its band is refuted
whatever the acceptance was; the verdict says whether that alone explains the miss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qwendeploy.documents import Content, Plan
from qwendeploy.figures import Figure
from qwendeploy.models.speculation import acceptance_length

PACED = ("aggregate_decode_tps", "per_user_decode_tps", "tpot_ms")
"""Quantities that follow the tokens a step."""
WORKING = 0.25
"""Share of the gain assumed of drafts below which no text explains it: cells of the study with a
working draft head accept 0.16 to 0.87 of three tokens, 0.57 on average."""


@dataclass(frozen=True)
class Acceptance:
    """Tokens a step: measured, and the range and middle that the plan assumes."""

    measured: Figure
    low: float
    high: float
    middle: tuple[float, float]
    """Smallest and largest value that the rate may rest on."""
    content: str

    @property
    def as_assumed(self) -> bool:
        """Whether the measured interval meets the assumed range."""
        return self.measured.low <= self.high and self.low <= self.measured.high

    @property
    def works(self) -> bool:
        """Whether the drafts gain enough for the text alone to explain the rest."""
        return self.measured.value - 1 >= WORKING * (self.middle[0] - 1)

    def here(self, quantity: str, predicted: Figure) -> tuple[float, float]:
        """Return the predicted band at the acceptance of this run."""
        down, up = (self.measured.value / middle for middle in reversed(self.middle))
        if quantity == "tpot_ms":
            return predicted.low / up, predicted.high / down
        return predicted.low * down, predicted.high * up

    @property
    def assumption(self) -> str:
        """What the plan assumes, in words."""
        return f"the plan assumes {self.low:.2f} to {self.high:.2f} ({self.content} content)"

    def __str__(self) -> str:
        return f"{self.measured.value:.2f} tokens per step, {self.assumption}"


def acceptance_of(plan: Plan, figures: Mapping[str, Figure | None]) -> Acceptance | None:
    """Return measured and assumed acceptance; ``None`` without drafts or without evidence.

    Mixed text is the study's own prompt on cards that the study measured.
    """
    measured, option = figures.get("acceptance_length"), plan.option
    if measured is None or option.spec_method == "none":
        return None
    content = plan.operating_point.content
    classes = ("study", "mixed") if content is Content.MIXED else (content.value,)
    found = [acceptance_length(option.spec_method, option.spec_tokens, one) for one in classes]
    known = [one for one in found if one is not None]
    if not known:
        return None
    return Acceptance(
        measured=measured,
        low=min(one.low for one in known),
        high=max(one.high for one in known),
        middle=(min(one.value for one in known), max(one.value for one in known)),
        content=content.value,
    )
