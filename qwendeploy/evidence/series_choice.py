"""Which series of a card speaks for an option: its own image's, else a sister image's."""

from __future__ import annotations

from collections.abc import Sequence

from qwendeploy.documents import Option
from qwendeploy.evidence.transfer_rows import DEAD_DRAFT, dflash_collapses
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.tables.series import Series

FEWEST_CELLS = 6
"""Cells below which a series cannot carry a curve and the joint fit speaks instead."""


def best_series(found: Sequence[Series], option: Option) -> tuple[Series, bool] | None:
    """Return the series that speaks for an option, and whether it is of the same image."""
    fitting = [series for series in found if _matches(series, option)]
    same = [series for series in fitting if series.key.image == option.image]
    pool = same or [
        series
        for series in fitting
        if (series.fork is not None) == option.fork
        and series.key.engine == option.engine
        and not _of_a_fault(series, option)
    ]
    if not pool:
        return None
    best = max(pool, key=lambda series: (len(series.cells), sum(c.n for c in series.cells)))
    return best, bool(same)


def _of_a_fault(series: Series, option: Option) -> bool:
    """Return whether a series shows a fault of its release that another release need not have.

    Faults are DFlash's collapse with depth, more draft tokens than its block holds, and a draft of
    which nothing is accepted.
    """
    key = series.key
    accepted = [cell.accept_rate for cell in series.cells if cell.accept_rate is not None]
    if accepted and sum(accepted) / len(accepted) < DEAD_DRAFT:
        return True
    if key.spec_method != "dflash":
        return False
    if (key.spec_tokens or 0) > QWEN_27B.block_drafter.longest_block:
        return True
    collapsed = dflash_collapses(series.fork is not None, key.engine_version)
    return collapsed and not dflash_collapses(option.fork, option.engine_version)


def image_of_both(found: Sequence[Series], one: Option, other: Option) -> str | None:
    """Return an image whose series measured both options, the first one's own if it did.

    Options of one session may be compared directly; across sessions drift would be compared.
    """
    images = [
        {series.key.image for series in found if _matches(series, option)}
        for option in (one, other)
    ]
    shared = images[0] & images[1] - {None}
    if one.image in shared:
        return one.image
    return max(shared, key=str, default=None)


def _matches(series: Series, option: Option) -> bool:
    key = series.key
    return (
        key.rate_basis == "steady"  # rates of whole runs count their prompts too
        and key.tp == option.tp
        and key.gpu_count == option.tp
        and key.quant == option.quant
        and (key.kv_cache_dtype or "bf16") == "bf16"
        and (key.spec_method or "none") == option.spec_method
        and (key.spec_tokens or 0) == option.spec_tokens
        and len(series.cells) >= FEWEST_CELLS
    )
