"""Measured decode rates, one row per repetition of a cell or per published cell.

A row's ``status`` says whether its rate may be used: ``ok`` and ``corrected`` may (a corrected row
had a wrong label or side value, its rate stands); ``excluded`` is not a steady decode rate,
``validation`` is a method check beside the repetitions, ``capacity-limited`` did not run at its
stated concurrency (``running`` holds the real count where it is known) and ``synthetic`` was drawn
with synthetic acceptance, so it measures step time rather than a model's acceptance.

``contexts`` says whether the streams of a cell shared one prompt through the prefix cache; only a
``separate`` cell read a KV cache of its own for every stream.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

from qwendeploy.tables.reader import CellError, read_table

Status = Literal["ok", "corrected", "excluded", "validation", "capacity-limited", "synthetic"]
Origin = Literal["study", "community", "h200", "import", "own"]
"""``import`` is a foreign result file that the user imported, ``own`` a run of this program."""
Contexts = Literal["shared", "separate"]
RateBasis = Literal["steady", "wall"]
USABLE: tuple[Status, ...] = ("ok", "corrected")
"""The states in which a row's rate is a steady decode rate of the stated cell."""
_ABOVE_ZERO = (
    *("aggregate_tps", "per_user_tps", "ttft_ms", "ttft_p99_ms", "itl_ms"),
    *("gpu_count", "tp", "concurrency", "n", "max_model_len", "max_num_seqs"),
)
_FRACTIONS = ("accept_rate", "kv_usage", "gpu_memory_utilization")
TABLES = ("decode_study", "decode_community", "decode_h200")


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """One measured point; an empty cell is *not stated*. Rates in output tokens/s, times in ms.

    ``aggregate_tps`` is over all streams, ``per_user_tps`` one stream while it decodes;
    ``ttft_ms`` is the mean or median that the source prints, for a prompt in the prefix cache if
    ``prefix_cache`` is on; ``n`` counts the repetitions behind the row and ``std_tps`` is their
    deviation as published; ``rate_basis`` says whether ``aggregate_tps`` is of a steady window with
    every stream decoding (``steady``) or of the whole run, prefill and ramps included (``wall``);
    ``output_tokens`` is the length a request generates; ``accept_rate`` and ``kv_usage`` are
    fractions, sampled.
    """

    row_id: str
    status: Status
    reason: str | None
    evidence: str | None
    source: str
    origin: Origin
    experiment: str | None
    config: str | None
    session: str | None
    date: str | None
    image: str | None
    engine: str
    engine_version: str | None
    fork: str | None
    gpu: str
    gpu_count: int
    gpu_vram_gib: float | None
    interconnect: str | None
    driver: str | None
    tp: int | None
    checkpoint: str | None
    quant: str
    kv_cache_dtype: str | None
    spec_method: str | None
    spec_tokens: int | None
    gpu_memory_utilization: float | None
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    capture_size: int | None
    prefix_cache: bool | None
    content: str | None
    contexts: Contexts | None
    concurrency: int | None
    running: int | None
    context: int | None
    output_tokens: int | None
    repetition: int | None
    n: int
    rate_basis: RateBasis | None
    std_tps: float | None
    aggregate_tps: float | None
    per_user_tps: float | None
    ttft_ms: float | None
    ttft_p99_ms: float | None
    itl_ms: float | None
    accept_rate: float | None
    kv_usage: float | None
    note: str | None

    def __post_init__(self) -> None:
        if self.status in USABLE:
            if self.aggregate_tps is None and self.per_user_tps is None:
                raise CellError("aggregate_tps", f"a row of status {self.status} needs a rate")
        elif not self.reason:
            raise CellError("reason", f"status {self.status} needs a reason")
        for name in _ABOVE_ZERO:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise CellError(name, f"{value} is not above 0")
        for name in _FRACTIONS:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise CellError(name, f"{value} is not a fraction of 0 to 1")
        if self.context is not None and self.context < 0:
            raise CellError("context", f"{self.context} is below 0")
        if (self.running or 0) > (self.concurrency or math.inf):
            raise CellError("running", f"{self.running} is above the concurrency")

    @property
    def usable(self) -> bool:
        """Whether the rate is a steady decode rate of the stated cell."""
        return self.status in USABLE

    @property
    def dummy_weights(self) -> bool:
        """Whether the engine ran the architecture with random weights: speed, not acceptance."""
        return self.checkpoint is not None and self.checkpoint.endswith("(dummy weights)")


@cache
def decode_table(name: str) -> tuple[DecodeRow, ...]:
    """Return the rows of one table of ``TABLES``. Raises as ``reader.read_csv``."""
    return read_table(name, DecodeRow)


@cache
def decode_rows() -> tuple[DecodeRow, ...]:
    """Return the rows of every decode table, of every status. Raises as ``reader.read_csv``."""
    return tuple(row for name in TABLES for row in decode_table(name))
