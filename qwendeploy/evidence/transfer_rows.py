"""From measured rows and catalogue cards to the step model's plain numbers.

A row is fitted and judged if it says what the physics needs: a known GPU kind (no unlike cards),
tp, a quant with a known kernel, draft method and length, and concurrency; a context that is not
stated is taken as a short prompt, and such a row is fitted but not *complete*: the published errors
are of complete rows. Rows whose cause of slowness is outside the physics are set aside with a
reason (``set_aside``), and the accuracy report counts them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from qwendeploy.documents import Option
from qwendeploy.evidence.box import Box
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.models.kernels import READ_BYTES, gguf_bits, weights_read
from qwendeploy.models.speculation import ALIASES, curve_for
from qwendeploy.models.transfer import Features, Link, TransferFit
from qwendeploy.models.transfer_fit import Observation
from qwendeploy.tables.checkpoints import CheckpointRow, find_checkpoint
from qwendeploy.tables.conditions import conditions_of
from qwendeploy.tables.decode import DecodeRow
from qwendeploy.tables.gpus import GpuModel, gpus
from qwendeploy.tables.prefill import PrefillRow
from qwendeploy.tables.releases import find_release
from qwendeploy.tables.transfer import transfer_coefficients
from qwendeploy.versions import llama_build

SHORT_PROMPT = 600
"""Context of a row that states none: a short prompt and half of a typical answer."""
SHORT_ANSWER = 256
"""Streams that generate no more than this mostly ramp up and down."""
CONTENT = {
    "prose": "prose",
    "chat": "prose",
    "code": "code",
    "agent": "agent",
    "extraction": "agent",
    "math": "agent",
    "random": "mixed",
}
KV_DTYPE = {
    "bf16": "bf16",
    "fp16": "bf16",
    "f16": "bf16",
    "auto": "bf16",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "q8_0": "fp8",
}
FILE_BYTES = {
    "AEON-7/Qwen3.6-27B-AEON-Ultimate-Uncensored-NVFP4": 26.0e9,
    "sakamakismile/Qwen3.8-27B-MTP-NVFP4": 20.6e9,
}
"""Checkpoints in results that are not offered: AEON keeps the Gated DeltaNet projections in 16 bits
(its card); the 3.8 sibling is the text checkpoint with vision."""
WEIGHT_ONLY = frozenset({"nvidia/Qwen3.6-27B-NVFP4"})
"""NVFP4 repositories whose 4-bit layers are quantised in weights only (W4A16): every card
multiplies them in 16 bits."""
MEMORY_MHZ = 14001
HOME_SEGMENTS = ("consumer", "laptop", "unified", "too-old")
COLLAPSE = 32768
"""Context past which DFlash on upstream 0.20 runs at a tenth of its speed (study, experiment 5)."""
DEAD_DRAFT = 0.02
"""Acceptance at which drafting is broken: the study's working drafts sample 0.09 to 0.87, the one
that yields nothing 0.005 (finding C13)."""
MOST_PREFILL = 0.6
"""Share of a closed loop's time spent on prompts above which what is left says little."""
LOOP_DOUBT, PREFILL_DOUBT = 0.12, 0.12
"""Deviation, log units, of the closed-loop formula with several users and of a prefill time."""
FASTER_BUILD = 10350
DEEP = 4096
"""From this context on the KV format and the attention kernel decide, not the weights."""


@dataclass(frozen=True, slots=True)
class TransferRow:
    """A row with its features; ``complete`` if it states all that the published errors ask for."""

    row: DecodeRow
    observation: Observation
    complete: bool
    derived: bool = False

    @property
    def asked(self) -> Features:
        """The features as somebody can state them who has not run the option yet.

        What a run's drafts were worth is known afterwards only; acceptance set by hand is a
        setting, and a draft that yields nothing a fault of that image.
        """
        features = self.observation.features
        if self.row.origin != "community":
            return features
        return replace(features, acceptance_length=None, acceptance_known=False)


def card_features(card: GpuModel) -> dict[str, object] | None:
    """Return a card's part of the features, ``None`` if bandwidth or matrix rate is unknown."""
    rate = card.bf16_tflops or card.fp16_tflops
    if card.bandwidth_gbps is None or rate is None:
        return None
    capability = card.compute_capability
    nvidia = card.vendor == "NVIDIA"
    return {
        "gpu": card.name,
        "vendor": card.vendor.lower(),
        "architecture": card.architecture,
        "bandwidth_gbps": card.bandwidth_gbps,
        "bf16_tflops": rate,
        "fp8_tflops": card.fp8_tflops,
        "fp4_tflops": card.fp4_tflops,
        "compute_capability": float(capability) if capability and nvidia else None,
        "home_built": card.segment in HOME_SEGMENTS,
    }


def weight_features(checkpoint: str | None, quant: str) -> dict[str, object]:
    """Return what is known of the weights of one repository beyond its quant.

    Only NVFP4 differs between publishers by more than rounding: 18 to 26 GB on disk.
    """
    if quant != "nvfp4" or not checkpoint:
        return {}
    name = checkpoint.split(" ")[0]
    row = find_checkpoint(name, quant=quant)
    size = FILE_BYTES.get(name) or (_bytes_of(row) if row else None)
    if size is None:
        return {}
    vision = row.vision is not False if row else True
    return {
        "weights_bytes": weights_read(quant, size, vision=vision),
        "weight_only": name in WEIGHT_ONLY,
    }


def _bytes_of(row: CheckpointRow) -> float | None:
    gib = row.gib_on_disk or row.gib_loaded
    return gib * 2**30 if gib else None


def link_of(card: GpuModel, interconnect: str | None, p2p: bool | None = None) -> Link:
    """Return the kind of link between the cards of one option.

    ``p2p`` ``None`` means not stated: the stock driver of the card decides. More than two cards on
    PCIe leave the engine's own all-reduce to NCCL, which goes from card to card as well.
    """
    if interconnect == "nvlink" or (interconnect is None and card.nvlink == "board"):
        return "nvlink"
    if card.unified:
        return "network"
    if p2p is None:
        p2p = card.p2p == "yes"
    return "pcie-p2p" if p2p else "pcie"


def link_in(box: Box, card: GpuModel, option: Option) -> Link:
    """Return the kind of link between the cards of one replica of an option in a box."""
    interconnect, p2p = box.joined(option.tp, option.replicas)
    stated = None if interconnect in ("unknown", "none") else interconnect
    return link_of(card, stated, {"yes": True, "no": False}.get(p2p))


def image_family(engine: str, fork: str | None, version: str | None = None) -> str:
    """Return whose host code runs the step: the fork, upstream vLLM by age, or another engine.

    Upstream of late overlaps scheduling with drafting, which shortens the host's part. The
    builds of llama.cpp that state a number from ``FASTER_BUILD`` on draft at a fraction of what the
    earlier ones need (paired runs of one public table).
    """
    if engine != "vllm":
        if not engine.endswith("llama.cpp"):
            return engine
        return "llama.cpp-new" if (llama_build(version) or 0) >= FASTER_BUILD else "llama.cpp"
    if fork == "repne":
        return "fork"
    release = find_release(version)
    return "upstream-0.22" if release is not None and release.overlaps_drafting else "upstream"


def overclock(row: DecodeRow) -> float:
    """Return the memory clock that a row states over the card's own, 1 if it states none.

    GDDR7 of the RTX 5090, of which alone rows state it, runs at 14,001 MHz.
    """
    return 1 + (conditions_of(row.row_id).memory_oc_mhz or 0) / 2 / MEMORY_MHZ


def linked_directly(row: DecodeRow | PrefillRow) -> bool | None:
    """Return whether a row's cards reach each other directly; ``None`` if it does not say."""
    return True if row.origin == "study" else conditions_of(row.row_id).p2p


def decode_rate(row: DecodeRow) -> float | None:
    """Return the rate while decoding, ``None`` if the row measures a run with its prefills."""
    if row.concurrency == 1:
        if row.per_user_tps is not None:
            return row.per_user_tps
        if row.itl_ms and row.origin == "community" and row.engine != "llama.cpp":
            return 1000 / row.itl_ms
    if row.concurrency == 1 or row.rate_basis == "steady" or row.origin != "community":
        with_prefill = row.rate_basis == "wall" and (row.context or 0) > SHORT_PROMPT
        return None if with_prefill else row.aggregate_tps
    answer = row.output_tokens or 2 * SHORT_PROMPT
    long_prompt = (row.context or 0) > SHORT_PROMPT or answer < 2 * (row.context or 0)
    return None if long_prompt or answer <= SHORT_ANSWER else row.aggregate_tps


def dflash_collapses(fork: bool, version: str | None) -> bool:
    """Return whether DFlash loses its speed past ``COLLAPSE`` tokens."""
    release = find_release(version, fork=fork)
    return release is not None and release.deep_dflash == "collapses"


def _nvfp4_is_broken(row: DecodeRow) -> bool:
    """Say whether the kernels of the row's server are known for it; not stated counts as old."""
    if row.fork == "repne" or not row.engine_version:
        return True
    release = find_release(row.engine_version) if row.engine == "vllm" else None
    return release is not None and release.nvfp4 == "broken"


def set_aside(row: DecodeRow) -> str | None:
    """Return why a usable row is outside the step physics, ``None`` if it is inside."""
    method = row.spec_method or ""
    if "mixed" in row.gpu or " + " in row.gpu:
        return "unlike cards"
    if row.quant == "nvfp4" and _nvfp4_is_broken(row):
        return "NVFP4 on an image whose kernels are known to be broken"
    if method == "dflash" and (row.spec_tokens or 0) > QWEN_27B.block_drafter.longest_block:
        return "more draft tokens than the drafter's block of 16 holds"
    collapses = dflash_collapses(row.fork is not None, row.engine_version)
    if method == "dflash" and collapses and (row.context or 0) > COLLAPSE:
        return "DFlash on upstream 0.20, which collapses past 32k"
    deep = (row.context or 0) >= DEEP
    if deep and row.kv_cache_dtype and row.kv_cache_dtype not in KV_DTYPE:
        return "a KV format whose attention kernel collapses with depth"
    if conditions_of(row.row_id).with_prefill:
        return "rate of a run with its prefills"
    return None


def features_of(row: DecodeRow) -> Features | None:
    """Return a row's features, ``None`` if it does not say what the physics needs."""
    card = gpus().find(row.gpu)
    base = card_features(card) if card else None
    if base is not None:
        base = {**base, "bandwidth_gbps": base["bandwidth_gbps"] * overclock(row)}  # type: ignore[operator]
    method = row.spec_method
    if card is None or base is None or method is None or row.tp is None or row.concurrency is None:
        return None
    known_quant = row.quant in READ_BYTES or gguf_bits(row.quant) is not None
    by_layers = row.engine == "llama.cpp" and row.tp == 1
    if not (row.gpu_count in (row.tp, 1) or by_layers) or not known_quant:
        return None
    tokens = 0 if method == "none" else row.spec_tokens
    if tokens is None or (tokens and curve_for(method) is None):
        return None
    if row.engine == "sglang" and tokens:
        tokens -= 1  # its draft tokens count the target's own
    accept = row.accept_rate if tokens else None
    if accept is not None and row.origin == "study" and accept > DEAD_DRAFT:
        accept = None  # sampled, it swings by a factor of two between repetitions of a cell
    length = None if accept is None else 1 + tokens * accept
    link = link_of(card, row.interconnect, linked_directly(row))
    content = CONTENT.get(row.content or "", "mixed")
    return Features(
        **base,  # type: ignore[arg-type]
        quant=row.quant,
        engine=row.engine,
        image_family=image_family(row.engine, row.fork, row.engine_version),
        tp=row.tp,
        link=link,
        kv_cache_dtype=KV_DTYPE.get(row.kv_cache_dtype or "bf16", "fp8"),
        spec_method=ALIASES.get(method, method),
        spec_tokens=tokens,
        acceptance_length=length,
        acceptance_known=length is not None,
        content={"study": "study", "h200": "synthetic"}.get(row.origin, content),
        concurrency=row.running or row.concurrency,
        context=float(SHORT_PROMPT if row.context is None else row.context),
        contexts=row.contexts or ("shared" if row.origin == "study" else "separate"),
        capture_size=0 if conditions_of(row.row_id).graphs is False else row.capture_size,
        deep_gemm=row.origin != "h200",
        **weight_features(row.checkpoint, row.quant),  # type: ignore[arg-type]
        rig="|".join(map(str, (row.session or row.source, row.date, card.name, row.tp, link))),
    )


def transfer_row(row: DecodeRow) -> TransferRow | None:
    """Return the row with its features if it is a usable decode rate inside the physics."""
    synthetic = row.status == "synthetic" and row.origin == "h200"
    if not (row.usable or synthetic) or set_aside(row):
        return None
    rate, features = decode_rate(row), features_of(row)
    if rate is None or features is None:
        return None
    complete = row.engine_version is not None and row.context is not None
    return TransferRow(row, Observation(features, rate, row.row_id), complete)


def transfer_rows(rows: Iterable[DecodeRow]) -> tuple[TransferRow, ...]:
    """Return the rows that are fitted, repetitions of one cell averaged into one."""
    cells: dict[tuple[object, ...], list[TransferRow]] = {}
    for row in rows:
        found = transfer_row(row)
        if found is not None:
            key = (
                found.observation.features,
                row.origin,
                row.content,
                row.source.split(" ")[0],
                row.experiment,
                row.config,
                row.row_id if row.origin == "community" else "",
            )
            cells.setdefault(key, []).append(found)
    return tuple(_mean(group) for group in cells.values())


def counts_prompts(row: DecodeRow) -> bool:
    """Whether a row's aggregate rate is of whole requests of stated prompt and answer length."""
    return bool(
        row.usable
        and row.rate_basis == "wall"
        and row.aggregate_tps
        and row.output_tokens
        and (row.context or 0) > SHORT_PROMPT
        and row.prefix_cache is not True
    )


def decode_part(row: DecodeRow, prefill_s: float) -> TransferRow | None:
    """Return the decode rate inside a closed loop's rate, ``None`` if prefill is most of it.

    ``prefill_s`` is the time of one of its prompts alone; a request costs the engine that and its
    share of the decoding (``models.latency``). Fitted with doubt, never judged as a decode rate.
    """
    if not counts_prompts(row) or (row.concurrency or 1) < 2 or set_aside(row):
        return None
    features = features_of(row)
    if features is None or features.vendor != "nvidia" or row.context is None:
        return None
    if row.output_tokens is None or row.aggregate_tps is None:
        return None
    request_s = row.output_tokens / row.aggregate_tps
    share = prefill_s / request_s
    if share > MOST_PREFILL:
        return None
    features = replace(features, context=row.context + row.output_tokens / 2, contexts="separate")
    doubt = math.hypot(LOOP_DOUBT, PREFILL_DOUBT * share / (1 - share))
    rate = row.output_tokens / (request_s - prefill_s)
    return TransferRow(row, Observation(features, rate, row.row_id, doubt), False, derived=True)


def _mean(group: list[TransferRow]) -> TransferRow:
    first = group[0]
    weight = sum(item.row.n for item in group)
    rate = sum(item.observation.rate * item.row.n for item in group) / weight
    kept = Observation(first.observation.features, rate, first.observation.label)
    return TransferRow(first.row, kept, first.complete)


@cache
def transfer_fit() -> TransferFit:
    """Return the fit shipped in the tables."""
    data: Mapping[str, object] = transfer_coefficients()
    return TransferFit.from_mapping(data)
