"""Pools whose budget is known whole: what a server had, loaded and left for its KV cache.

One row is one server start. ``use`` says whether the rest term was fitted on it or is tested on
it; ``outside`` rows are of another model or engine line, or not whole, and the note says why: they
widen the band. ``known`` rows are of an engine line with too few starts to fit; ``here`` ones are
starts of the user's own machine and in no shipped table. ``blocks_how`` says how exactly the block
count is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qwendeploy.tables.reader import read_table


@dataclass(frozen=True)
class BudgetRow:
    """One start; memory in MiB as nvidia-smi prints it, sizes in GiB, the pool in blocks."""

    id: str
    source: str
    use: Literal["fit", "held-out", "known", "outside", "here"]
    gpu: str
    memory_mib: int
    compute_capability: str
    engine_version: str
    fork: bool
    gpu_memory_utilization: float
    tp: int
    checkpoint: str
    quant: str
    files_gib: float
    has_vision: bool
    has_mtp: bool
    text_only: bool
    spec_method: str
    spec_tokens: int
    kv_cache_dtype: str
    prefix_cache: bool
    sliding_drafter: bool
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    capture_size: int | None
    """``None`` is the engine's default, 0 runs without graphs."""
    weights_gib: float | None
    """As logged on each rank; ``None`` is computed from the files."""
    blocks: int
    blocks_how: Literal["logged", "solved", "counter", "rounded-x", "rounded-tokens", "rounded-gib"]
    note: str | None


def budget_rows() -> tuple[BudgetRow, ...]:
    """Return every row of benchdata/memory_budget.csv. Raises DataError as ``read_table``."""
    return read_table("memory_budget", BudgetRow)
