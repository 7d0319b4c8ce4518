"""KV pools that engines really allocated, and what they held.

``num_blocks`` is given where the source states a block counter (``counter``) or where exactly one
whole number of blocks prints the published tokens under the engine's own arithmetic (``solved``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qwendeploy.tables.decode import Origin
from qwendeploy.tables.reader import CellError, read_table


@dataclass(frozen=True, slots=True)
class OptionRow:
    """What was observed of one option, and whether it may be used: ``reason`` says why not."""

    row_id: str
    status: Literal["ok", "corrected", "excluded"]
    reason: str | None
    evidence: str | None
    source: str
    origin: Origin
    experiment: str | None
    image: str | None
    engine: str
    engine_version: str | None
    gpu: str
    gpu_count: int | None
    tp: int | None
    checkpoint: str | None
    quant: str
    kv_cache_dtype: str | None
    spec_method: str | None
    spec_tokens: int | None


@dataclass(frozen=True, slots=True)
class PoolRow(OptionRow):
    """One start of an engine: what was asked, what it allocated, how it ended.

    ``kv_tokens`` and ``max_concurrency_x`` as the engine prints them; ``*_gib_per_gpu`` GiB on one
    card, ``block_mib`` MiB of one block on one card; ``memory_mib`` total of the card;
    ``vision`` is ``no`` where the source says that images were off.
    """

    prefix_cache: bool | None
    vision: bool | None
    gpu_memory_utilization: float | None
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    capture_size: int | None
    memory_mib: int | None
    kv_tokens: int | None
    max_concurrency_x: float | None
    num_blocks: int | None
    blocks_basis: Literal["counter", "solved"] | None
    kv_gib_per_gpu: float | None
    weights_gib_per_gpu: float | None
    vram_gib_per_gpu: float | None
    cudagraph_gib: float | None
    block_tokens: int | None
    block_mib: float | None
    kind: Literal["logged", "published"]
    outcome: Literal["ok", "fails_at_start", "fails_under_load"] | None
    note: str | None

    def __post_init__(self) -> None:
        if (self.num_blocks is None) != (self.blocks_basis is None):
            raise CellError("blocks_basis", "num_blocks and blocks_basis belong together")
        if self.status != "ok" and not self.reason:
            raise CellError("reason", f"status {self.status} needs a reason")
        share = self.gpu_memory_utilization
        if share is not None and not 0 < share <= 1:
            raise CellError("gpu_memory_utilization", f"{share} is not in (0, 1]")


@dataclass(frozen=True, slots=True)
class KvUseRow:
    """Share of the pool in use while ``concurrency`` streams decode at ``context``, sampled."""

    row_id: str
    source: str
    experiment: str
    image: str
    tp: int
    quant: str
    kv_cache_dtype: str | None
    spec_method: str
    spec_tokens: int
    concurrency: int
    context: int
    kv_usage: float
    pool_tokens: int
    note: str | None


def pool_rows() -> tuple[PoolRow, ...]:
    """Return every pool, also excluded ones and starts that failed. Raises as ``read_csv``."""
    return read_table("pools", PoolRow)
