"""Cold prefills: how long a prompt that is in no cache takes to its first token."""

from __future__ import annotations

from dataclasses import dataclass

from qwendeploy.tables.pools import OptionRow
from qwendeploy.tables.reader import CellError, read_table


@dataclass(frozen=True, slots=True)
class PrefillRow(OptionRow):
    """One cold prefill of a single request, or a prefill rate that a source prints.

    ``ttft_ms`` runs from sending to the first token; ``prefill_tps`` are prompt tokens/s as the
    source prints them. At least one of the two is given.
    """

    gpu_count: int
    gpu_memory_utilization: float | None
    max_num_batched_tokens: int | None
    host_tuning: str | None
    prompt_tokens: int
    ttft_ms: float | None
    prefill_tps: float | None
    n: int
    method: str
    note: str | None

    def __post_init__(self) -> None:
        rates = [rate for rate in (self.ttft_ms, self.prefill_tps) if rate is not None]
        if not rates or min(rates) <= 0:
            raise CellError("ttft_ms", "needs ttft_ms or prefill_tps, each above 0")
        if self.prompt_tokens < 1 or self.n < 1:
            raise CellError("prompt_tokens", "prompt_tokens and n are at least 1")
        if self.status == "excluded" and not self.reason:
            raise CellError("reason", "status excluded needs a reason")

    @property
    def seconds(self) -> float:
        """Return the time to the first token, s; from the rate where only that is printed."""
        if self.ttft_ms is not None:
            return self.ttft_ms / 1000
        assert self.prefill_tps is not None
        return self.prompt_tokens / self.prefill_tps


def prefill_rows() -> tuple[PrefillRow, ...]:
    """Return every cold prefill, also excluded ones. Raises as ``reader.read_csv``."""
    return read_table("prefill", PrefillRow)
