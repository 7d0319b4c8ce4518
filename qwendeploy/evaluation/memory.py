"""How well the memory model predicts pools before start: the table of ``data accuracy``.

The rest term is fitted on the rows marked ``fit`` (scripts/fit_memory.py) and judged on the rows
marked ``held-out``; no known start is looked up. The error is that of KV tokens, which is that of
blocks: both count the same pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qwendeploy.evidence.pool_estimate import estimate_pool, question_of, rest_coefficients
from qwendeploy.models.rest_term import RestCoefficients
from qwendeploy.tables.memory_budget import BudgetRow, budget_rows

_ORDER = {"held-out": 0, "fit": 1, "known": 2, "outside": 3}


@dataclass(frozen=True)
class PoolError:
    """Predicted against known blocks of one start."""

    id: str
    use: str
    gpu: str
    tp: int
    blocks: int
    predicted: float
    low: float
    high: float
    note: str

    @property
    def error(self) -> float:
        """Relative error of KV tokens; positive means that more was promised than there is."""
        return self.predicted / self.blocks - 1

    @property
    def covered(self) -> bool:
        """The band contains the known count."""
        return self.low <= self.blocks <= self.high

    @property
    def half_width(self) -> float:
        """Half of the band, as a fraction of the prediction."""
        return (self.high - self.low) / 2 / self.predicted


def pool_error(row: BudgetRow, coefficients: RestCoefficients) -> PoolError:
    """Return the prediction for one start beside its known count."""
    predicted = estimate_pool(question_of(row), known=(), coefficients=coefficients).blocks
    return PoolError(
        id=row.id,
        use=row.use,
        gpu=row.gpu,
        tp=row.tp,
        blocks=row.blocks,
        predicted=predicted.value,
        low=predicted.low,
        high=predicted.high,
        note=row.note or "",
    )


def memory_accuracy(
    pools: Iterable[BudgetRow] | None = None, coefficients: RestCoefficients | None = None
) -> tuple[PoolError, ...]:
    """Return one error a row, held-out rows first; every row of the table by default."""
    known = budget_rows() if pools is None else tuple(pools)
    values = coefficients or rest_coefficients()
    return tuple(pool_error(row, values) for row in sorted(known, key=lambda row: _ORDER[row.use]))
