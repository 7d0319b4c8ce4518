"""Figures: the only form in which a quantity reaches a user.

A figure carries its unit, a band with the coverage it claims, the kind of evidence behind it and
the source. A quantity that cannot be given honestly is ``None`` and the reason stands beside it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

LEVEL = 0.90
"""Coverage that every band claims unless it says otherwise (DESIGN: figure)."""


WIDE = 0.20
"""Half width of a predicted band from which a verdict confirms nothing (DESIGN §7)."""


class Kind(StrEnum):
    """Evidence behind a figure, best first; comparison is by ``rank``."""

    MEASURED_HERE = "measured-here"
    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"
    TRANSFERRED = "transferred"
    ESTIMATED = "estimated"
    SYNTHETIC = "synthetic"

    @property
    def rank(self) -> int:
        """0 for the best evidence; larger is weaker."""
        return _RANKS[self]


_RANKS = {kind: rank for rank, kind in enumerate(Kind)}


def weakest(*kinds: Kind) -> Kind:
    """Return the weakest of ``kinds``: a figure derived from several is no better than that."""
    return max(kinds, key=lambda kind: kind.rank)


class Figure(BaseModel):
    """A quantity with unit, band ``low``..``high`` at coverage ``level``, kind, source and n.

    ``n`` is the number of independent observations behind the value, 0 if none. An exact figure
    (a block count by the engine's arithmetic) has ``low == value == high``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    value: float
    unit: str
    low: float
    high: float
    level: float = LEVEL
    kind: Kind
    source: str
    n: int = 0

    @model_validator(mode="after")
    def _band_contains_value(self) -> Self:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"band {self.low}..{self.high} does not contain {self.value}")
        if not 0 < self.level <= 1:
            raise ValueError(f"level {self.level} is not in (0, 1]")
        return self

    @property
    def half_width(self) -> float:
        """Half of the band relative to the value; 0.1 means ±10 %."""
        return (self.high - self.low) / 2 / abs(self.value) if self.value else 0.0

    def scaled(self, factor: float, *, unit: str | None = None) -> Figure:
        """Return the figure times a positive constant, band and evidence kept."""
        return self.model_copy(
            update={
                "value": self.value * factor,
                "low": self.low * factor,
                "high": self.high * factor,
                "unit": unit or self.unit,
            }
        )

    def inverse(self, numerator: float, unit: str) -> Figure:
        """Return ``numerator / figure``; the band's ends change places."""
        return self.model_copy(
            update={
                "value": numerator / self.value,
                "low": numerator / self.high,
                "high": numerator / self.low,
                "unit": unit,
            }
        )


def exact(value: float, unit: str, *, kind: Kind, source: str, n: int = 0) -> Figure:
    """Return a figure without spread: arithmetic, not measurement."""
    return Figure(value=value, unit=unit, low=value, high=value, kind=kind, source=source, n=n)
