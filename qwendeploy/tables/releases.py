"""What depends on an engine's release: ``benchdata/engine_releases.csv``, read here and only here.

A row is a range of upstream releases, or a third party's build with the upstream releases around
its base. A release between two rows is answered by the older one, one newer than all by the
newest, one older than all by the oldest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from packaging.version import Version

from qwendeploy.image_names import image_name
from qwendeploy.tables.reader import CellError, read_table
from qwendeploy.versions import release_of, version_in

ANY_FORK = "*"
"""Stands for third parties that have no row of their own."""


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """Releases ``since`` .. ``until`` (of a fork: around its base) and what is true of them.

    ``read`` says that the sources of one of them were read; ``released`` is the date of ``until``;
    ``cuda`` and ``min_driver`` are those of the image's bare tag. Defaults of the API server are
    those of a hybrid model: ``utilization`` (share of the card), ``prefix_cache``, ``async_drafts``
    (scheduling ahead while drafting), ``seats`` and tokens of a ``step``, on cards of 70 GiB and
    more ``seats_large`` and ``step_large``.
    """

    engine: Literal["vllm"]
    fork: str | None
    tags: str | None
    since: str
    until: str
    released: str | None
    read: bool
    cuda: str | None
    min_driver: int | None
    torch: str | None
    flashinfer: str | None
    runner: Literal["V1", "V2"] | None
    utilization: float
    prefix_cache: bool
    async_drafts: bool | None
    seats: int
    seats_large: int
    step: int
    step_large: int
    graph_memory: Literal["inside", "outside"]
    """Whether the memory of CUDA graphs comes out of the share or on top of it."""
    block_arithmetic: Literal["0.19", "0.20", "0.25"]
    """Release whose block arithmetic (``models.kv_layout``) holds."""
    drafter_window: Literal["own", "whole"]
    """Whether DFlash's sliding layers hold their window only or the whole context."""
    deep_dflash: Literal["holds", "collapses"]
    """What DFlash's speed does past 32k."""
    overlaps_drafting: bool
    """Whether the host schedules while the card drafts."""
    nvfp4: Literal["works", "broken"]
    source: str
    note: str | None

    def __post_init__(self) -> None:
        for column, text in (("since", self.since), ("until", self.until)):
            if release_of(text) is None:
                raise CellError(column, f"{text!r} is no version")
        if Version(self.since) > Version(self.until):
            raise CellError("until", f"{self.until} is before {self.since}")


@cache
def release_rows() -> tuple[ReleaseRow, ...]:
    """Return every row, upstream ones oldest first. Raises as ``reader.read_csv``."""
    return read_table("engine_releases", ReleaseRow)


@cache
def upstream_releases() -> tuple[ReleaseRow, ...]:
    """Return the rows of the engine's own project, oldest first."""
    return tuple(row for row in release_rows() if row.fork is None)


@cache
def find_release(
    version: str | None, *, fork: bool = False, image: str | None = None
) -> ReleaseRow | None:
    """Return what holds for a version, ``None`` if its text names none.

    Candidates and local builds count as their release. ``fork`` says that a third party built it:
    then ``image`` decides, not the version.
    """
    if fork:
        return _fork(image or "")
    release = release_of(version) or release_of(version_in(version or "", numbers=2))
    if release is None:
        return None
    older = [row for row in upstream_releases() if Version(row.since) <= release]
    return older[-1] if older else upstream_releases()[0]


def _fork(image: str) -> ReleaseRow:
    name = image_name(image)
    forks = [row for row in release_rows() if row.fork is not None]
    mine = [row for row in forks if row.fork == name.publisher]
    tagged = [row for row in mine if name.tag in (row.tags or "").split()]
    return (*tagged, *mine, *(row for row in forks if row.fork == ANY_FORK))[0]


def newest_release() -> ReleaseRow:
    """Return the newest release known."""
    return upstream_releases()[-1]


def when_changed(column: Literal["utilization", "prefix_cache"]) -> str:
    """Return in words up to which release a default was what, and what from when."""
    rows = upstream_releases()
    first = getattr(rows[0], column)
    later = next(index for index, row in enumerate(rows) if getattr(row, column) != first)
    before, after = _word(first), _word(getattr(rows[later], column))
    return f"{before} up to {rows[later - 1].until}, {after} from {rows[later].since}"


def _word(value: bool | float) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.2f}"
