"""Every option worth asking the rules about, for one machine and workload.

Options are the product of images, checkpoints, drafts, layouts, KV dtypes and prefix caching.
Nothing is judged here: an option that cannot run is rejected by a rule or by memory, so that the
trace can say why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from qwendeploy.documents import KvDtype, Option, SpecMethod, Workload
from qwendeploy.documents.request import Pins
from qwendeploy.evidence.box import Box
from qwendeploy.evidence.knowledge import Knowledge
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.family.names import MODEL, model_of
from qwendeploy.tables.checkpoints import CheckpointRow
from qwendeploy.tables.images import ImageRow

DRAFTS: tuple[tuple[SpecMethod, int], ...] = (
    ("none", 0),
    ("mtp", 2),
    ("mtp", 3),
    ("mtp", 4),
    ("mtp", 5),
    ("dflash", 5),
    ("dflash", 7),
    ("dflash", 8),
    ("dflash", 15),
)
"""Draft methods and lengths that anybody measured on this model (benchdata/decode_*.csv)."""

COMMON_DRAFTS = (("mtp", 3),)
"""Considered on every card; other lengths only where somebody measured them on this card."""


def enumerate_options(
    box: Box, workload: Workload, pins: Pins, knowledge: Knowledge, *, any_release: bool = False
) -> Iterator[Option]:
    """Yield every option that the pins leave open, most measured image first.

    ``any_release`` as in ``Knowledge.candidate_images``.
    """
    measured = knowledge.measured_drafts(box)
    for image in knowledge.candidate_images(box, pins, any_release=any_release):
        for checkpoint in _checkpoints(image, pins, knowledge):
            drafts = _drafts(checkpoint, pins, measured)
            yield from _options_of(image, checkpoint, drafts, box, workload, pins)


def _options_of(
    image: ImageRow,
    checkpoint: CheckpointRow,
    drafts: Sequence[tuple[SpecMethod, int]],
    box: Box,
    workload: Workload,
    pins: Pins,
) -> Iterator[Option]:
    for (method, tokens), (tp, replicas), kv_dtype in product(
        drafts, layouts(box.count, workload.concurrency, pins), _kv_dtypes(pins)
    ):
        for prefix_cache in _caching(workload, method):
            yield Option(
                engine="vllm",
                image=image.name,
                engine_version=image.engine_version,
                fork=image.fork is not None,
                checkpoint=checkpoint.name,
                quant=checkpoint.quant,
                kv_cache_dtype=kv_dtype,
                spec_method=method,
                spec_tokens=tokens,
                tp=tp,
                replicas=replicas,
                prefix_cache=prefix_cache,
            )


def _checkpoints(image: ImageRow, pins: Pins, knowledge: Knowledge) -> list[CheckpointRow]:
    found = [
        row for row in knowledge.checkpoints if row.engine == image.engine and row.role == "target"
    ]
    if pins.checkpoint:
        return [row for row in found if row.name == pins.checkpoint]
    if pins.quant:
        found = [row for row in found if row.quant == pins.quant]
    return [row for row in found if model_of(row.name) == MODEL]


def _drafts(
    checkpoint: CheckpointRow, pins: Pins, measured: set[tuple[str, int]]
) -> Sequence[tuple[SpecMethod, int]]:
    if pins.spec_method is not None:
        tokens = pins.spec_tokens
        if tokens is None:
            lengths = [length for method, length in DRAFTS if method == pins.spec_method]
            return [(pins.spec_method, length) for length in lengths]
        return [(pins.spec_method, 0 if pins.spec_method == "none" else tokens)]
    wanted = {("none", 0), *COMMON_DRAFTS, *measured}
    return [
        draft
        for draft in DRAFTS
        if draft in wanted and (draft[0] != "mtp" or checkpoint.mtp is not False)
    ]


def layouts(gpus: int, concurrency: int, pins: Pins) -> list[tuple[int, int]]:
    """Return every (tp, replicas) that uses the GPUs, fewest idle first.

    A tensor-parallel size that leaves GPUs over is kept: three cards serve as one pair. There are
    never more replicas than requests unless they are stated; a number that the GPUs cannot hold is
    kept for a rule to refuse.
    """
    if pins.tp is not None:
        replicas = pins.replicas or max(1, min(gpus // pins.tp, concurrency))
        return [(pins.tp, replicas)]
    sizes = [tp for tp in QWEN_27B.tensor_parallel_sizes if tp <= gpus]
    found = [(tp, min(gpus // tp, concurrency)) for tp in sizes]
    if pins.replicas is not None:
        fitting = [tp for tp, _ in found if tp * pins.replicas <= gpus]
        found = [(tp, pins.replicas) for tp in fitting or (1,)]
    return sorted(found, key=lambda layout: (gpus - layout[0] * layout[1], layout[1]))


def _kv_dtypes(pins: Pins) -> tuple[KvDtype, ...]:
    if pins.kv_cache_dtype:
        return (pins.kv_cache_dtype,)
    return ("bf16", "fp8")


def _caching(workload: Workload, method: SpecMethod) -> tuple[bool, ...]:
    """Return whether to cache prefixes: as stated; else both with MTP, where a rule decides.

    Without MTP nothing speaks against caching, and without it nothing is shared, so the option
    that is left out could only lose.
    """
    if workload.prefix_cache != "auto":
        return (workload.prefix_cache == "on",)
    return (True, False) if method == "mtp" else (True,)
