"""What a model returns: a value with its band, the kind of evidence and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qwendeploy.figures import LEVEL, Figure, Kind


@dataclass(frozen=True)
class Estimate:
    """``value`` with ``low``..``high`` at ``level``; ``n`` observations; ``basis`` says of what.

    Raises:
        ValueError: the band does not contain the value.
    """

    value: float
    low: float
    high: float
    kind: Kind
    n: int = 0
    basis: str = ""
    level: float = LEVEL

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"band {self.low}..{self.high} does not contain {self.value}")

    @property
    def half_width(self) -> float:
        """Half of the band relative to the value; 0.1 means ±10 %."""
        return (self.high - self.low) / 2 / abs(self.value) if self.value else 0.0

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate times a positive constant, band and evidence kept."""
        return replace(
            self, value=self.value * factor, low=self.low * factor, high=self.high * factor
        )

    def figure(self, unit: str, source: str | None = None) -> Figure:
        """Return the figure that reaches a user; the basis is its source unless one is given."""
        return Figure(
            value=self.value,
            unit=unit,
            low=self.low,
            high=self.high,
            level=self.level,
            kind=self.kind,
            source=source if source is not None else self.basis,
            n=self.n,
        )
