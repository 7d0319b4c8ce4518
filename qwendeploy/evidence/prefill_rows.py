"""From measured prefills and warm cells to the latency models' plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from qwendeploy.evidence.transfer_rows import (
    SHORT_PROMPT,
    TransferRow,
    card_features,
    counts_prompts,
    decode_part,
    features_of,
    link_of,
    linked_directly,
    weight_features,
)
from qwendeploy.models.latency import WarmFit
from qwendeploy.models.prefill import PrefillFit, PrefillPoint, fit_prefill
from qwendeploy.models.speculation import curve_for
from qwendeploy.models.transfer import Features
from qwendeploy.tables.decode import DecodeRow, decode_rows
from qwendeploy.tables.gpus import gpus
from qwendeploy.tables.prefill import PrefillRow, prefill_rows
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
    features = Features(
        **base,  # type: ignore[arg-type]
        quant=row.quant,
        engine=row.engine,
        tp=row.tp,
        link=link_of(card, None, linked_directly(row)),
        spec_method=method if drafts else "none",
        spec_tokens=drafts,
        deep_gemm=row.origin != "h200",
        **weight_features(row.checkpoint, row.quant),  # type: ignore[arg-type]
        rig="|".join(map(str, (row.source.split(" ")[0], row.experiment, row.image, row.tp))),
    )
    return PrefillPoint(features, row.prompt_tokens, row.max_num_batched_tokens)


def prefill_points(rows: Iterable[PrefillRow]) -> list[tuple[PrefillPoint, float]]:
    """Return (point, milliseconds) of every row that can be fitted."""
    found = ((prefill_point(row), row.seconds * 1000) for row in rows)
    return [(point, time) for point, time in found if point is not None]


def cold_start(row: DecodeRow) -> tuple[PrefillPoint, float] | None:
    """Return a decode row's prompt with its time to the first token in ms, if that was cold.

    One request at a time with a prompt of stated length and no prefix cache waits for its own
    prefill alone.
    """
    alone = row.usable and row.concurrency == 1 and row.prefix_cache is not True
    features = features_of(row) if alone and row.origin == "community" else None
    if features is None or row.context is None or row.ttft_ms is None:
        return None
    if row.context <= SHORT_PROMPT:
        return None
    rig = "|".join(map(str, (row.source.split(" ")[0], row.session, row.image, row.tp)))
    point = replace(features, rig=rig)
    return PrefillPoint(point, row.context, row.max_num_batched_tokens), row.ttft_ms


def all_prefills() -> list[tuple[PrefillPoint, float]]:
    """Return every cold prefill of the tables: the prefill table's and those beside decode rows."""
    known = {(row.source.split(" ")[0], row.gpu, row.prompt_tokens) for row in prefill_rows()}
    beside = (
        cold_start(row)
        for row in decode_rows()
        if (row.source.split(" ")[0], row.gpu, row.context) not in known
    )
    return [*prefill_points(prefill_rows()), *(found for found in beside if found is not None)]


def loop_rows(rows: Iterable[DecodeRow]) -> tuple[TransferRow, ...]:
    """Return the decode parts of the closed loops among ``rows``.

    A prompt's time is the one that the same series waited for a prompt alone, else the fit's.
    """
    rows = tuple(rows)
    alone: dict[tuple[object, ...], float] = {}
    for row in rows:
        found = cold_start(row)
        if found is not None:
            alone[_prompt_key(row)] = found[1]
    pairs = all_prefills()
    fit = fit_prefill([point for point, _ in pairs], [time for _, time in pairs])
    parts: list[TransferRow] = []
    for row in rows:
        if not counts_prompts(row):
            continue
        features = features_of(row)
        if features is None or row.context is None:
            continue
        time = alone.get(_prompt_key(row))
        if time is None:
            point = PrefillPoint(
                replace(features, rig=None), row.context, row.max_num_batched_tokens
            )
            time = fit.predict(point).value
        part = decode_part(row, time / 1000)
        if part is not None:
            parts.append(part)
    return tuple(parts)


def _prompt_key(row: DecodeRow) -> tuple[object, ...]:
    return (row.source, row.session, row.gpu, row.tp, row.quant, row.spec_tokens, row.context)


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
