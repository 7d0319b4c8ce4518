"""Which attention backend vLLM takes on a card, and which of the stated ones it refuses.

``benchdata/attention_backends.csv`` holds what the selectors of twelve releases answered for this
model (heads of 256), ``attention_stated.csv`` what they said to a backend that was asked for.
``since`` and ``until`` are the first and last of the releases read with one answer; a release that
was not read is answered by the older neighbour, one older than all by the oldest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeVar

from packaging.version import Version

from qwendeploy.tables.reader import read_table
from qwendeploy.tables.releases import find_release
from qwendeploy.versions import release_of

Backend = Literal["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT"]

_AS_AUTO = frozenset({"auto", "bf16", "bfloat16", "fp16", "float16", "half"})
_AS_FP8 = frozenset({"fp8", "fp8_e4m3"})


@dataclass(frozen=True, slots=True)
class BackendRow:
    """What a release runs by itself; drafting is MTP.

    ``flash_attention`` is the version of FLASH_ATTN's kernels. ``splits_kv`` says whether a decode
    step spreads one context over many blocks of threads: ``few`` up to eight query tokens.
    ``decode_graphs`` are the CUDA graphs of a decode step and ``decode_kernel`` its kernel where
    the backend has several. ``usable`` are the backends that would do, the preferred one first.
    """

    engine: Literal["vllm"]
    since: str
    until: str
    compute_capabilities: str
    kv_cache_dtype: Literal["auto", "fp8"]
    drafting: bool
    backend: Backend
    flash_attention: int | None
    splits_kv: Literal["yes", "few", "no"]
    decode_graphs: Literal["FULL", "PIECEWISE"]
    decode_kernel: Literal["trtllm-gen", "xqa", "fa2"] | None
    usable: str
    source: str
    note: str | None


@dataclass(frozen=True, slots=True)
class StatedRow:
    """What a release does when asked for a backend; ``reason`` is the engine's own words."""

    engine: Literal["vllm"]
    since: str
    until: str
    backend: Backend
    kv_cache_dtype: str
    compute_capabilities: str
    taken: bool
    reason: str | None
    source: str


Row = TypeVar("Row", BackendRow, StatedRow)


@cache
def backend_rows() -> tuple[BackendRow, ...]:
    """Return every row of ``benchdata/attention_backends.csv``. Raises as ``read_csv``."""
    return read_table("attention_backends", BackendRow)


@cache
def stated_rows() -> tuple[StatedRow, ...]:
    """Return every row of ``benchdata/attention_stated.csv``. Raises as ``read_csv``."""
    return read_table("attention_stated", StatedRow)


@cache
def default_backend(
    version: str | None,
    compute_capability: str,
    kv_cache_dtype: str,
    *,
    drafting: bool = False,
    fork: bool = False,
) -> BackendRow | None:
    """Return what a release takes unasked on a card.

    ``None`` where the version, the cache type or the card's generation is unknown. A fork is
    answered by the release at the low end of its base.
    """
    release = _release(version, fork=fork)
    dtype = _cache_type(kv_cache_dtype)
    card = _card_read(compute_capability)
    found = [
        row
        for row in backend_rows()
        if (row.kv_cache_dtype, row.drafting) == (dtype, drafting)
        and card in row.compute_capabilities.split()
    ]
    return None if release is None else _answering(found, release)


@cache
def refusal(
    version: str | None, backend: str, compute_capability: str, kv_cache_dtype: str
) -> str | None:
    """Return why a release refuses a stated backend, ``None`` if it takes it or nothing is known.

    The words are those of the engine's message.
    """
    release = _release(version, fork=False)
    dtype = _cache_type(kv_cache_dtype)
    card = _card_read(compute_capability)
    found = [
        row
        for row in stated_rows()
        if (row.backend, row.kv_cache_dtype) == (backend.upper(), dtype)
        and card in row.compute_capabilities.split()
    ]
    row = None if release is None else _answering(found, release)
    return None if row is None or row.taken else row.reason


def _release(version: str | None, *, fork: bool) -> Version | None:
    if not fork:
        return release_of(version)
    base = find_release(version, fork=True)
    return None if base is None else Version(base.since)


def _cache_type(name: str) -> str:
    return "auto" if name in _AS_AUTO else "fp8" if name in _AS_FP8 else name


@cache
def _card_read(capability: str) -> str | None:
    """Return the capability read that answers for a card: its own or the next below, one major."""
    wanted = release_of(capability)
    read = {text for row in backend_rows() for text in row.compute_capabilities.split()}
    below = [
        text
        for text in read
        if wanted is not None
        and Version(text) <= wanted
        and text.split(".")[0] == str(wanted.major)
    ]
    return max(below, key=Version, default=None)


def _answering(rows: list[Row], release: Version) -> Row | None:
    """Return the row of the newest releases up to this one, the oldest if none is."""
    rows = sorted(rows, key=lambda row: Version(row.since))
    older = [row for row in rows if Version(row.since) <= release]
    return older[-1] if older else next(iter(rows), None)
