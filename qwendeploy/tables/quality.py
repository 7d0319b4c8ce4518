"""What is known of answers: divergence from the BF16 model, task scores, quality classes.

KL is the evidence beside a class, never the class itself: a restart of the same FP8 model moves it
by 12.8 times the BF16 self-noise, so small gaps are ties. A checkpoint that nobody measured is
``unknown``; nothing is inherited from the name of its quant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qwendeploy.tables.reader import read_table

QualityClass = Literal["reference", "near", "relaxed", "any", "unknown"]


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One score of one run; ``value`` in ``unit`` over ``n`` items (counts are ``value`` of n)."""

    row_id: str
    status: Literal["ok", "corrected", "excluded"]
    reason: str | None
    evidence: str | None
    source: str
    experiment: str
    image: str | None
    checkpoint: str | None
    quant: str | None
    kv_cache_dtype: str | None
    spec_method: str | None
    spec_tokens: int | None
    benchmark: str
    metric: str
    value: float
    value_err: float | None
    unit: str
    n: int | None
    max_tokens: int | None
    thinking: Literal["off", "budget", "unbounded"] | None
    thinking_budget: int | None
    temperature: float | None
    concurrency: int | None
    note: str | None


@dataclass(frozen=True, slots=True)
class KlRow:
    """Mean divergence of a checkpoint from its reference, bits per position.

    ``floor_bits`` is the divergence of the BF16 model from itself under the same ``protocol``;
    values of different protocols are not comparable.
    """

    row_id: str
    source: str
    protocol: str
    variant: str
    checkpoint: str
    quant: str
    kv_cache_dtype: str | None
    reference: str
    n_positions: int | None
    kl_ref_bits: float
    kl_rev_bits: float | None
    js_bits: float | None
    kl_max_bits: float | None
    js_max_bits: float | None
    floor_bits: float | None
    note: str | None

    @property
    def noise_multiple(self) -> float | None:
        """Return the mean KL over the protocol's own self-noise; ``None`` if none was measured."""
        return self.kl_ref_bits / self.floor_bits if self.floor_bits else None


@dataclass(frozen=True, slots=True)
class ClassRow:
    """The quality class of a checkpoint; without a KV type it holds for either."""

    checkpoint: str
    quant: str
    kv_cache_dtype: str | None
    quality_class: QualityClass
    kl_row: str | None
    source: str
    note: str | None


def score_rows() -> tuple[ScoreRow, ...]:
    """Return every task score, also excluded ones. Raises as ``reader.read_csv``."""
    return read_table("quality", ScoreRow)


def kl_rows() -> tuple[KlRow, ...]:
    """Return the measured divergences. Raises as ``reader.read_csv``."""
    return read_table("kl", KlRow)


def class_rows() -> tuple[ClassRow, ...]:
    """Return the class of each classified checkpoint. Raises as ``reader.read_csv``."""
    return read_table("quality_classes", ClassRow)


def find_class(
    checkpoint: str, *, quant: str | None = None, kv_cache_dtype: str | None = None
) -> ClassRow | None:
    """Return the class of a checkpoint, the row of exactly this KV type first.

    A repository that holds several quants is told apart by ``quant``. ``None`` means that nobody
    measured it: it is *unknown*.
    """
    rows = [row for row in class_rows() if row.checkpoint == checkpoint]
    if quant is not None:
        rows = [row for row in rows if row.quant == quant]
    for row in rows:
        if row.kv_cache_dtype == kv_cache_dtype:
            return row
    return next((row for row in rows if row.kv_cache_dtype is None), None)


def find_kl(row: ClassRow) -> KlRow | None:
    """Return the divergence behind a class, ``None`` if there is none."""
    return next((kl for kl in kl_rows() if kl.row_id == row.kl_row), None)
