"""From measured prefills and warm cells to the latency models' plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from qwendeploy.models.latency import WarmFit
from qwendeploy.models.prefill import PrefillFit, PrefillPoint
from qwendeploy.models.speculation import curve_for
from qwendeploy.models.transfer import Features
from qwendeploy.planning.transfer_rows import card_features, link_of, stated_p2p
from qwendeploy.tables.decode import DecodeRow
from qwendeploy.tables.gpus import gpus
from qwendeploy.tables.prefill import PrefillRow
from qwendeploy.tables.transfer import transfer_coefficients

WARM_CARD = "RTX PRO 6000 Blackwell Workstation"
"""The card whose decode cells state a warm TTFT."""


def prefill_point(row: PrefillRow) -> PrefillPoint | None:
    """Return the row's features, ``None`` for unlike cards, unknown cards or unstated layouts."""
    if row.status == "excluded" or "mixed" in row.gpu or row.tp is None:
        return None
    card = gpus().find(row.gpu)
    base = card_features(card) if card else None
    if card is None or base is None:
        return None
    method = row.spec_method or "none"
    drafts = (row.spec_tokens or 0) if curve_for(method) else 0
    p2p = True if row.origin == "study" else stated_p2p(row.note or "")
    features = Features(
        **base,  # type: ignore[arg-type]
        quant=row.quant,
        engine=row.engine,
        tp=row.tp,
        link=link_of(card, None, p2p, tp=row.tp),
        spec_method=method if drafts else "none",
        spec_tokens=drafts,
        deep_gemm=row.origin != "h200",
        rig="|".join(map(str, (row.source.split(" ")[0], row.experiment, row.image, row.tp))),
    )
    return PrefillPoint(features, row.prompt_tokens, row.max_num_batched_tokens)


def prefill_points(rows: Iterable[PrefillRow]) -> list[tuple[PrefillPoint, float]]:
    """Return (point, milliseconds) of every row that can be fitted."""
    found = ((prefill_point(row), row.seconds * 1000) for row in rows)
    return [(point, time) for point, time in found if point is not None]


def warm_cells(rows: Iterable[DecodeRow]) -> list[tuple[float, float, float]]:
    """Return (concurrency, cached tokens, TTFT ms) of the study's warm cells."""
    return [
        (float(row.concurrency), float(row.context), row.ttft_ms)
        for row in rows
        if row.origin == "study"
        and row.usable
        and row.quant != "nvfp4"
        and row.ttft_ms
        and row.concurrency
        and row.context is not None
    ]


@cache
def prefill_fit() -> PrefillFit:
    """Return the prefill fit shipped in the tables."""
    data: Mapping[str, Any] = transfer_coefficients()["prefill"]
    return PrefillFit.from_mapping(data)


@cache
def warm_fit() -> WarmFit:
    """Return the warm TTFT fit shipped in the tables."""
    return WarmFit(**transfer_coefficients()["warm"])
