"""The user's own runs as evidence: what this very machine did outranks every table.

A run of this machine (equal digest of GPUs and driver) stands for its option at its point and
moves the predictions around it. Runs of other machines with the same card count as another
session: they move the value, they do not narrow the band. What servers told of their KV pools
here replaces the estimate of the memory beside weights and cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pydantic import ValidationError

from qwendeploy.documents import Option
from qwendeploy.documents.identity import machine_id
from qwendeploy.evidence.box import Box
from qwendeploy.evidence.transfer_rows import CONTENT
from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.recalibration import (
    Z90,
    OwnObservation,
    boot_half_width,
    recalibrated,
)
from qwendeploy.tables import own
from qwendeploy.tables.decode import DecodeRow
from qwendeploy.tables.own_place import own_directory
from qwendeploy.tables.own_pools import boot_of, own_pools, with_boot
from qwendeploy.tables.pools import PoolRow

LEAST_CHANGE = 0.02
"""Change of a figure (2 %) below which a run is not named as a source of it."""
MOSTLY = 0.5
"""Share of a band's variance that own runs must explain before a figure counts as theirs."""


@dataclass(frozen=True, slots=True)
class OwnPlace:
    """Where one server was measured: its requests, their context, how they share it, what of."""

    concurrency: float
    context: int
    contexts: str
    content: str


@dataclass(frozen=True, slots=True)
class OwnPoint:
    """One measured load of one server start, per server of the layout."""

    option: Option
    place: OwnPlace
    rate: float
    """Output tokens/s of one server."""
    spread: float
    """Relative half-width at 0.90 between the windows of the run."""
    servers: int
    label: str
    """Import and server start, as figures name their source."""
    boot: str
    here: bool


@dataclass(frozen=True, slots=True)
class OwnStart:
    """A pool that a server of this machine told, with the settings it was started with."""

    label: str
    settings: Mapping[str, object]
    blocks: int
    weights_gib: float | None = None


@dataclass(frozen=True)
class OwnRuns:
    """Own measurements of one card by option; empty where nothing was imported."""

    points: Mapping[tuple[object, ...], tuple[OwnPoint, ...]] = field(default_factory=dict)
    rows: tuple[DecodeRow, ...] = ()
    starts: tuple[OwnStart, ...] = ()
    images: tuple[str, ...] = ()
    """Images that this machine ran."""

    def __bool__(self) -> bool:
        return bool(self.points or self.starts)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the runs of this machine."""
        found = [point.label for point in self.all_points if point.here]
        return tuple(dict.fromkeys(found))

    @cached_property
    def all_points(self) -> tuple[OwnPoint, ...]:
        """Every measured load, of any option."""
        return tuple(point for group in self.points.values() for point in group)

    @cached_property
    def drafts(self) -> set[tuple[str, int]]:
        """Draft methods and lengths that this machine ran."""
        return {
            (str(key[5]), int(str(key[6])))
            for key, group in self.points.items()
            if any(point.here for point in group) and key[5] != "none"
        }

    def of(self, option: Option) -> tuple[OwnPoint, ...]:
        """Return what was measured of an option, in any layout of equal servers."""
        return self.points.get(option_key(option), ())

    def measured_here(self, option: Option) -> bool:
        """Say whether this machine ran the option."""
        return any(point.here for point in self.of(option))

    def exact(self, option: Option, place: OwnPlace) -> tuple[Estimate, int] | None:
        """Return this machine's own rate of one server at a place, and the servers that ran.

        Several starts are averaged; runs of one start count as one. The band holds what each of
        them measured: where they disagree it is as wide as that.
        """
        found = [point for point in self.of(option) if point.here and point.place == place]
        same = [point for point in found if point.servers == option.replicas]
        found = same or found
        if not found:
            return None
        starts: dict[str, list[float]] = {}
        for point in found:
            starts.setdefault(point.boot, []).append(point.rate)
        means = [math.fsum(rates) / len(rates) for rates in starts.values()]
        value = math.fsum(means) / len(means)
        half = boot_half_width(means, max(point.spread for point in found))
        rates = [point.rate for point in found]
        low, high = value * (1 - half), value * (1 + half)
        labels = dict.fromkeys(point.label for point in found)
        told = f"own {'run' if len(labels) == 1 else 'runs'} {', '.join(labels)}"
        if min(rates) < low or max(rates) > high:
            told += f", which disagree ({min(rates):,.0f} to {max(rates):,.0f} tok/s per server)"
        estimate = Estimate(
            value,
            max(0.0, min(low, *rates)),
            max(high, *rates),
            Kind.MEASURED_HERE,
            len(means),
            told,
        )
        return estimate, found[0].servers

    def moved(
        self,
        base: Estimate,
        option: Option,
        place: OwnPlace,
        seen: Sequence[tuple[OwnPoint, Estimate]],
        drift: float,
    ) -> Estimate:
        """Return a prediction moved by own measurements, each beside the prediction of its place.

        Every run of this machine tells of its host; runs of other machines tell of their own
        option alone, ``drift`` being the half-width that another machine adds. The kind becomes
        ``interpolated`` or ``extrapolated`` where runs of the option here explain most of the band.
        """
        key = option_key(option)
        heard = [(p, e) for p, e in seen if p.here or option_key(p.option) == key]
        apart = _apart([point for point, _ in heard if point.here])
        observations = [
            OwnObservation(
                point.place.concurrency,
                point.place.context,
                point.rate,
                predicted,
                math.hypot(
                    boot_half_width([point.rate], point.spread) / Z90,
                    apart.get((option_key(point.option), point.place), 0.0)
                    if point.here
                    else drift / Z90,
                ),
                point.here,
                option_key(point.option),
            )
            for point, predicted in heard
        ]
        result = recalibrated(base, place.concurrency, place.context, observations, key)
        if abs(result.factor - 1) < LEAST_CHANGE and result.explained < MOSTLY:
            return replace(result.estimate, n=base.n)
        labels = dict.fromkeys(point.label for point, _ in heard)
        kind = base.kind
        same = [point for point in self.of(option) if point.here]
        if result.explained >= MOSTLY and same:
            kind = _kind_between(place, same)
        return replace(
            result.estimate,
            kind=kind,
            basis=f"{base.basis}; scaled by {result.factor:.3f} from own {', '.join(labels)}",
        )


def _apart(points: Sequence[OwnPoint]) -> dict[tuple[object, OwnPlace], float]:
    """Return by option and place half of what its runs differ by, log units."""
    rates: dict[tuple[object, OwnPlace], list[float]] = {}
    for point in points:
        rates.setdefault((option_key(point.option), point.place), []).append(point.rate)
    return {key: math.log(max(found) / min(found)) / 2 for key, found in rates.items()}


def _kind_between(place: OwnPlace, points: Sequence[OwnPoint]) -> Kind:
    low_c = min(point.place.concurrency for point in points)
    high_c = max(point.place.concurrency for point in points)
    low_x = min(point.place.context for point in points)
    high_x = max(point.place.context for point in points)
    inside = low_c <= place.concurrency <= high_c and low_x <= place.context <= high_x
    return Kind.INTERPOLATED if inside else Kind.EXTRAPOLATED


def option_key(option: Option) -> tuple[object, ...]:
    """Return what two options share that differ in seats, memory fraction or replicas only."""
    return (
        option.engine,
        option.image,
        option.checkpoint,
        option.quant,
        option.kv_cache_dtype,
        option.spec_method,
        option.spec_tokens,
        option.tp,
    )


def _option_of(row: DecodeRow) -> Option | None:
    """Return the option of one server that a row measured, ``None`` if it does not say enough."""
    try:
        return Option.model_validate(
            {
                "engine": row.engine,
                "image": row.image,
                "engine_version": row.engine_version,
                "fork": row.fork is not None,
                "checkpoint": row.checkpoint,
                "quant": row.quant,
                "kv_cache_dtype": row.kv_cache_dtype or "bf16",
                "spec_method": row.spec_method,
                "spec_tokens": row.spec_tokens or 0,
                "tp": row.tp,
                "prefix_cache": bool(row.prefix_cache),
                "max_num_seqs": row.max_num_seqs,
                "max_num_batched_tokens": row.max_num_batched_tokens,
                "capture_size": row.capture_size,
            }
        )
    except ValidationError:
        return None


def load_own_runs(box: Box) -> OwnRuns:
    """Return the own runs that speak for a machine.

    Raises:
        DataError: the user's own table or its record is damaged.
    """
    directory = own_directory()
    rows = tuple(row for row in own.own_rows(directory) if row.gpu == box.name)
    known = {record.id: record for record in own.records(directory)}
    mine = machine_id(box.machine)
    points: dict[tuple[object, ...], list[OwnPoint]] = {}
    images: dict[str, None] = {}
    for row in rows:
        record = known.get(row.source.split(" ", 1)[0])
        here = record is not None and record.machine_id == mine
        point = _point(row, record, here=here)
        if point is not None:
            points.setdefault(option_key(point.option), []).append(point)
            if here and row.image:
                images[row.image] = None
    starts = [
        OwnStart(with_boot(record.id, record.boot_id), record.settings, record.pool_blocks)
        for record in known.values()
        if record.machine_id == mine and record.pool_blocks
    ]
    starts += _pool_starts(own_pools(directory), box)
    return OwnRuns(
        {key: tuple(group) for key, group in points.items()}, rows, tuple(starts), tuple(images)
    )


def _point(row: DecodeRow, record: own.ImportRecord | None, *, here: bool) -> OwnPoint | None:
    """Return a row as a point of one server, ``None`` if it is no steady cell of a known layout."""
    option = _option_of(row)
    if not row.usable or row.rate_basis != "steady" or option is None:
        return None
    if row.aggregate_tps is None or row.concurrency is None or row.context is None or not row.tp:
        return None
    servers, over = divmod(row.gpu_count, row.tp)
    if over or servers < 1:
        return None
    spread = Z90 * (row.std_tps or 0.0) / row.aggregate_tps
    busy = min(servers, row.concurrency)
    place = OwnPlace(
        row.concurrency / busy,
        row.context,
        row.contexts or "separate",
        CONTENT.get(row.content or "", "mixed"),
    )
    name = row.source.split(" ", 1)[0]
    label = with_boot(name, record.boot_id if record else None)
    boot = record.boot_id if record and record.boot_id else name
    return OwnPoint(option, place, row.aggregate_tps / busy, spread, servers, label, boot, here)


def _pool_starts(pools: Iterable[PoolRow], box: Box) -> list[OwnStart]:
    """Return the pools that servers started here told at start.

    The table names card and memory, not the machine: a pool follows from those alone.
    """
    found = []
    for row in pools:
        if row.gpu != box.name or row.num_blocks is None or row.memory_mib != box.vram_mib:
            continue
        names = (
            *("engine_version", "tp", "checkpoint", "quant", "kv_cache_dtype", "spec_method"),
            *("spec_tokens", "gpu_memory_utilization", "max_model_len", "max_num_seqs"),
            *("max_num_batched_tokens", "capture_size", "prefix_cache", "vision", "image"),
        )
        settings = {name: getattr(row, name) for name in names}
        label = with_boot(row.row_id, boot_of(row))
        found.append(OwnStart(label, settings, row.num_blocks, row.weights_gib_per_gpu))
    return found
