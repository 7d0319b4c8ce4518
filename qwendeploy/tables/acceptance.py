"""Observed acceptance of drafted tokens: the evidence behind the speculation model's curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class AcceptanceRow:
    """One observation: accepted/drafted tokens, or the ratio of rates on code and on prose.

    ``spread`` is the deviation over the ``n`` cells or pairs; ``content`` ``study`` is the study's
    own prompt.
    """

    method: str
    spec_tokens: int
    content: str | None
    measure: Literal["acceptance_rate", "code_over_prose"]
    value: float
    spread: float | None
    n: int
    gpu: str
    quant: str
    image: str
    source: str
    note: str | None

    @property
    def length(self) -> float | None:
        """Return tokens gained a step, ``None`` for a ratio."""
        if self.measure != "acceptance_rate":
            return None
        return 1 + self.spec_tokens * self.value
