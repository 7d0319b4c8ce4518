"""Series: the usable cells of one option in one session, averaged over their repetitions.

Only cells of a series may be compared directly: the study's speeds drift between sessions (image,
host state, harness) by up to a quarter at low concurrency. Scheduler limits that change the step
(batched tokens, graph capture) are part of the key; ``max_num_seqs`` and the memory fraction are
not: below the seats they change capacity, not speed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import TypeVar

from qwendeploy.tables.decode import Contexts, DecodeRow, RateBasis, Status, decode_rows

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """What the cells of a series have in common; ``None`` is *not stated*."""

    origin: str
    session: str
    image: str | None
    engine: str
    engine_version: str | None
    gpu: str
    gpu_count: int
    interconnect: str | None
    tp: int | None
    checkpoint: str | None
    quant: str
    kv_cache_dtype: str | None
    spec_method: str | None
    spec_tokens: int | None
    max_num_batched_tokens: int | None
    capture_size: int | None
    prefix_cache: bool | None
    contexts: Contexts | None
    content: str | None
    rate_basis: RateBasis | None

    @property
    def label(self) -> str:
        """Return a short unique-enough name for tables: session, option and layout."""
        draft = self.spec_method or "draft not stated"
        draft += str(self.spec_tokens) if self.spec_tokens else ""
        limits = "".join(
            f" {mark}{value}"
            for mark, value in (("b", self.max_num_batched_tokens), ("g", self.capture_size))
            if value is not None
        )
        return f"{self.session} {self.quant}+{draft} tp{self.tp}{limits}"


_SHARED = attrgetter(*(field.name for field in fields(SeriesKey)[2:]))
"""What a row and its key have under one name; the key's session may be the row's own id."""


@dataclass(frozen=True, slots=True)
class SeriesCell:
    """Mean over the repetitions of one (concurrency, context).

    ``aggregate_tps`` is the mean weighted by the repetitions behind each row; ``std`` the sample
    deviation between repetitions (ddof 1), the published one if only a mean was published, ``None``
    for a single run; ``running`` streams really decoding.
    """

    concurrency: int
    context: int
    aggregate_tps: float
    std: float | None
    n: int
    running: int
    status: Status
    accept_rate: float | None
    row_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """The usable cells of one option in one session, ordered by context and concurrency."""

    key: SeriesKey
    cells: tuple[SeriesCell, ...]
    excluded: tuple[DecodeRow, ...]
    """Rows of the same option and session that are no usable cell: their status has a reason, or
    concurrency, context or the aggregate rate is not stated."""
    synthetic_cells: tuple[SeriesCell, ...]
    """Cells measured with synthetic acceptance; their rows are in ``excluded`` too."""
    sources: tuple[str, ...]
    gpu_memory_utilization: tuple[float, ...]
    max_num_seqs: tuple[int, ...]
    max_model_len: tuple[int, ...]
    experiments: tuple[str, ...]
    dates: tuple[str, ...]
    fork: str | None

    @property
    def dummy_weights(self) -> bool:
        """Whether the cells were measured with random weights."""
        return (self.key.checkpoint or "").endswith("(dummy weights)")

    @property
    def prefix_cache(self) -> bool | None:
        """Whether prefix caching was on; ``None`` if not stated."""
        return self.key.prefix_cache

    @property
    def contexts(self) -> Contexts | None:
        """Whether the streams shared one context."""
        return self.key.contexts

    def cell(self, concurrency: int, context: int) -> SeriesCell | None:
        """Return the usable cell at exactly this point, or ``None``."""
        for cell in self.cells:
            if cell.concurrency == concurrency and cell.context == context:
                return cell
        return None


def series_key(row: DecodeRow) -> SeriesKey:
    """Return the key of the series a row belongs to."""
    return SeriesKey(row.origin, row.session or row.row_id, *_SHARED(row))


def _mean_cell(rows: Sequence[DecodeRow]) -> SeriesCell:
    rates = [row.aggregate_tps for row in rows if row.aggregate_tps is not None]
    weights = [row.n for row in rows]
    n = sum(weights)
    mean = sum(rate * weight for rate, weight in zip(rates, weights, strict=True)) / n
    if len(rows) == 1:
        std = rows[0].std_tps
    else:
        std = math.sqrt(
            sum(w * (rate - mean) ** 2 for rate, w in zip(rates, weights, strict=True)) / (n - 1)
        )
    accepted = [row.accept_rate for row in rows if row.accept_rate is not None]
    first = rows[0]
    assert first.concurrency is not None and first.context is not None
    return SeriesCell(
        concurrency=first.concurrency,
        context=first.context,
        aggregate_tps=mean,
        std=std,
        n=n,
        running=first.running or first.concurrency,
        status=rows[0].status if len({row.status for row in rows}) == 1 else "corrected",
        accept_rate=sum(accepted) / len(accepted) if accepted else None,
        row_ids=tuple(row.row_id for row in rows),
    )


def _is_point(row: DecodeRow) -> bool:
    return row.aggregate_tps is not None and row.concurrency is not None and row.context is not None


def _cells(rows: Iterable[DecodeRow]) -> tuple[SeriesCell, ...]:
    points: dict[tuple[int, int], list[DecodeRow]] = defaultdict(list)
    for row in rows:
        assert row.concurrency is not None and row.context is not None
        points[row.context, row.concurrency].append(row)
    return tuple(_mean_cell(points[point]) for point in sorted(points))


def _build(key: SeriesKey, rows: Sequence[DecodeRow]) -> Series:
    return Series(
        key=key,
        cells=_cells(row for row in rows if row.usable and _is_point(row)),
        excluded=tuple(row for row in rows if not (row.usable and _is_point(row))),
        synthetic_cells=_cells(row for row in rows if row.status == "synthetic" and _is_point(row)),
        sources=_distinct(row.source.split(" ")[0] for row in rows),
        gpu_memory_utilization=_distinct(row.gpu_memory_utilization for row in rows),
        max_num_seqs=_distinct(row.max_num_seqs for row in rows),
        max_model_len=_distinct(row.max_model_len for row in rows),
        experiments=_distinct(row.experiment for row in rows),
        dates=_distinct(row.date for row in rows),
        fork=rows[0].fork,
    )


def _distinct(values: Iterable[T | None]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(value for value in values if value is not None))


def group_series(rows: Iterable[DecodeRow]) -> tuple[Series, ...]:
    """Return the series of ``rows`` in order of appearance; every row is in exactly one."""
    groups: dict[SeriesKey, list[DecodeRow]] = {}
    for row in rows:
        groups.setdefault(series_key(row), []).append(row)
    return tuple(_build(key, members) for key, members in groups.items())


@cache
def all_series() -> tuple[Series, ...]:
    """Return every series of the decode tables, also those without a usable cell."""
    return group_series(decode_rows())
