"""The server's own counters, read from ``/metrics``; a name that is absent is ``None``, never 0.

Names differ between engines and versions (``engines.registry``); the newest that is there counts.
Values of several label sets (engines, models) are summed, gauges of one pool averaged.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from qwendeploy.documents.run import boot_name
from qwendeploy.engines.registry import COUNTERS, GAUGES
from qwendeploy.engines.vllm.metrics import CONFIG, LIVE, PER_POSITION

STARTED = "process_start_time_seconds"
AVERAGED = {"kv_usage"}
_WANTED = {name for names in (COUNTERS | GAUGES).values() for name in names} | {
    PER_POSITION,
    CONFIG,
    STARTED,
}
Samples = dict[str, list[tuple[dict[str, str], float]]]


@dataclass(frozen=True)
class Metrics:
    """One scrape: quantities by our names, only those that the server offers."""

    values: dict[str, float] = field(default_factory=dict)
    accepted_by_position: tuple[float, ...] = ()
    cache_config: dict[str, str] = field(default_factory=dict)
    live: bool = False
    """Generated tokens are counted as they come."""
    started: tuple[float, ...] = ()
    """Start times of the processes, in order: what tells one server from another."""
    models: frozenset[str] = frozenset()
    """Names of the models that the page counts for."""
    engines: int = 1
    """Label sets of the running gauge: data-parallel engines behind one server."""

    def get(self, name: str) -> float | None:
        """Return a quantity, ``None`` if not offered."""
        return self.values.get(name)

    def since(self, before: Metrics, name: str) -> float | None:
        """Return how much a counter grew; ``None`` if not offered or of another process.

        A server that restarted, or another replica that answered, counts from its own start.
        """
        now, then = self.values.get(name), before.values.get(name)
        if now is None or then is None or now < then or self.started != before.started:
            return None
        return now - then

    def restarted_since(self, before: Metrics) -> bool:
        """Whether another process counts: it started at another time, or a counter fell."""
        if self.started and before.started and self.started != before.started:
            return True
        return any(
            now < then
            for name in COUNTERS
            if (now := self.values.get(name)) is not None
            and (then := before.values.get(name)) is not None
        )

    @property
    def boot_id(self) -> str | None:
        """Start times as the name of a boot."""
        return boot_name(self.started)

    def acceptance_length(self, before: Metrics) -> float | None:
        """Return 1 + accepted/drafts over the stretch, ``None`` without drafting or drafts."""
        drafts = self.since(before, "drafts")
        accepted = self.since(before, "accepted_tokens")
        if not drafts or accepted is None:
            return None
        return 1 + accepted / drafts

    def acceptance_rate(self, before: Metrics) -> float | None:
        """Return accepted/drafted tokens over the stretch."""
        drafted = self.since(before, "draft_tokens")
        accepted = self.since(before, "accepted_tokens")
        if not drafted or accepted is None:
            return None
        return accepted / drafted

    def blocks(self) -> int | None:
        """Return the number of KV blocks that the server reports."""
        text = self.cache_config.get("num_gpu_blocks", "")
        return int(text) if text.isdigit() else None


def parse_metrics(text: str, ours: Sequence[str] = ()) -> Metrics:
    """Return the quantities of a Prometheus or OpenMetrics page, those that are numbers.

    Where the page counts for several models, those of ``ours`` count, the first of them that is
    there; where it counts for none of them, none of its quantities is offered.
    """
    samples = _samples(text)
    names = _models(samples)
    if len(names) > 1:
        kept = next(({name} for name in ours if name in names), set())
        samples = {
            name: left
            for name, found in samples.items()
            if (left := [s for s in found if s[0].get("model_name", "") in kept | {""}])
        }
    values: dict[str, float] = {}
    for name, candidates in (COUNTERS | GAUGES).items():
        found = _first(samples, candidates)
        if found is not None:
            total = sum(value for _, value in found)
            values[name] = total / len(found) if name in AVERAGED else total
    positions: dict[int, float] = {}
    for labels, value in samples.get(PER_POSITION, ()):
        place = labels.get("position", "0")
        if place.isdigit():
            positions[int(place)] = positions.get(int(place), 0.0) + value
    config = samples.get(CONFIG)
    return Metrics(
        values=values,
        accepted_by_position=tuple(positions[key] for key in sorted(positions)),
        cache_config=dict(config[0][0]) if config else {},
        live=LIVE in samples,
        started=tuple(sorted(value for _, value in samples.get(STARTED, ()))),
        models=_models(samples),
        engines=len(_first(samples, GAUGES["running"]) or ()) or 1,
    )


def _samples(text: str) -> Samples:
    """Return the finite samples of the names that are wanted; unreadable lines are left out.

    Other lines are dropped first: the whole page of an engine takes the parser several
    milliseconds, which a running measurement would see as jitter.
    """
    lines = [line.partition(" # {")[0] for line in text.splitlines() if _name(line) in _WANTED]
    try:
        return _parsed(lines)
    except ValueError:
        samples: Samples = {}
        for line in lines:
            with contextlib.suppress(ValueError):
                for name, found in _parsed([line]).items():
                    samples.setdefault(name, []).extend(found)
        return samples


def _name(line: str) -> str:
    """Return the name with which a line of a page begins."""
    return line.partition("{")[0].partition(" ")[0].partition("\t")[0]


def _parsed(lines: Sequence[str]) -> Samples:
    """Return the finite samples of lines without exemplars; raises ValueError if one is none."""
    from prometheus_client.parser import text_string_to_metric_families

    samples: Samples = {}
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            if math.isfinite(sample.value):
                samples.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return samples


def _models(samples: Samples) -> frozenset[str]:
    """Return the models that samples are labelled with."""
    return frozenset(
        name
        for found in samples.values()
        for labels, _ in found
        if (name := labels.get("model_name"))
    )


def together(pages: Sequence[Metrics]) -> Metrics:
    """Return the metrics of several replicas as those of one server of as many engines.

    A quantity is offered only if all offer it.
    """
    names = set.intersection(*(set(page.values) for page in pages))
    values = {name: sum(page.values[name] for page in pages) for name in names}
    values.update({name: values[name] / len(pages) for name in AVERAGED & names})
    positions = {len(page.accepted_by_position) for page in pages}
    return Metrics(
        values=values,
        accepted_by_position=tuple(
            sum(found) for found in zip(*(p.accepted_by_position for p in pages), strict=True)
        )
        if len(positions) == 1
        else (),
        cache_config=pages[0].cache_config,
        live=all(page.live for page in pages),
        started=tuple(sorted(start for page in pages for start in page.started)),
        models=frozenset(name for page in pages for name in page.models),
        engines=sum(page.engines for page in pages),
    )


def _first(samples: Samples, names: Iterable[str]) -> list[tuple[dict[str, str], float]] | None:
    return next((samples[name] for name in names if name in samples), None)
