"""The quantities of a verdict: counted ones, ones of whole requests, and intervals over boots."""

from __future__ import annotations

from collections.abc import Sequence

from qwendeploy.documents import PREDICTION_NAMES
from qwendeploy.figures import Figure, Kind
from qwendeploy.verification import statistics as st

RATE = "aggregate_decode_tps"
OVER_CONTENT = "aggregate_decode_tps_over_content"
OF_REQUESTS = ("output_tps_end_to_end", "ttft_end_to_end_ms", "tpot_end_to_end_ms", "stall_ms")
"""Quantities of whole requests, which only the plan's own requests measure."""
JUDGED = (*PREDICTION_NAMES, *OF_REQUESTS[1:], OVER_CONTENT)
COUNTED = frozenset(
    {
        "kv_pool_blocks",
        "kv_pool_tokens",
        "blocks_per_request",
        "max_full_length_requests",
        "max_running_requests",
        "max_typical_context_tokens",
    }
)
"""Quantities that are counted, not timed: no boot-to-boot spread."""
SHARE_OF_POOL = "of the pool"
"""Unit of a share of the KV blocks."""
ENOUGH_BOOTS = 3
"""Boots from which the spread between them is measured (DESIGN §7)."""


def pooled(figures: Sequence[Figure | None], name: str) -> Figure | None:
    """Return one figure of several boots' figures, ``None`` if no boot gave one."""
    known = [figure for figure in figures if figure is not None]
    if not known:
        return None
    values = [figure.value for figure in known]
    if name in COUNTED:
        return known[-1].model_copy(
            update={"low": min(values), "high": max(values), "n": len(values)}
        )
    if len(known) < 2:
        return known[0]
    interval = st.t_interval(values)
    floor = 0.0 if min(values) >= 0 else interval.low
    return Figure(
        value=interval.mean,
        unit=known[0].unit,
        low=max(interval.low, floor),
        high=interval.high,
        level=interval.level,
        kind=Kind.MEASURED_HERE,
        source=f"{len(known)} boots",
        n=len(known),
    )


def over_boots(figure: Figure) -> bool:
    """Whether the interval is over enough boots, and so holds what one differs from the next."""
    return figure.n >= ENOUGH_BOOTS and figure.source == f"{figure.n} boots"
