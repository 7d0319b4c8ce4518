"""Conflicts between several launches of one file: shared GPUs and ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from qwendeploy.auditing.judging.findings import Finding, worst_outcome
from qwendeploy.auditing.judging.judge import Judged
from qwendeploy.auditing.reading.text import whole_number
from qwendeploy.auditing.understanding.visible_gpus import MOST_CARDS, card_names, card_order
from qwendeploy.documents import Option

MOST_SHARED = 1.0
"""The engine takes its share of the whole card and exits when less is free."""


def with_neighbours(judged: Sequence[Judged]) -> list[Judged]:
    """Return the launches, each with its conflicts with the launches before it."""
    result: list[Judged] = []
    for index, item in enumerate(judged):
        extra: list[Finding] = []
        container = item.understood.launch.container
        several = container is not None and container.replicas > 1
        earlier = [other for other in judged[:index] if _meet(other, item)]
        for other in (*earlier, *([item] if several else ())):
            shared = _shared_memory(other, item)
            port = _same_port(other, item)
            extra += [found for found in (shared, port) if found is not None]
        if extra:
            findings = (*extra, *item.findings)
            item = replace(item, findings=findings, outcome=worst_outcome(findings))
        result.append(item)
    return result


def sharing(judged: Sequence[Judged], options: Sequence[Option | None]) -> list[tuple[Judged, ...]]:
    """Return for each launch the ones that it shares its load with, itself included, in order.

    They are alike, each on cards of its own, and start together from one compose file or manifest,
    whose router or service spreads the requests over them.
    """
    groups: list[list[int]] = []
    for at, option in enumerate(options):
        found = next(
            (
                group
                for group in groups
                if option is not None
                and options[group[0]] == option
                and all(_spread(judged[other], judged[at]) for other in group)
            ),
            None,
        )
        if found is None:
            groups.append([at])
        else:
            found.append(at)
    of = {at: group for group in groups for at in group}
    return [tuple(judged[other] for other in of[at]) for at in range(len(judged))]


def _spread(first: Judged, second: Judged) -> bool:
    one, two = first.understood.launch, second.understood.launch
    if "fails_at_start" in (first.outcome, second.outcome) or not _meet(first, second):
        return False
    if one.place.file != two.place.file or one.runtime != two.runtime:
        return False
    if any(launch.container is None or launch.before or launch.service for launch in (one, two)):
        return False
    if one.runtime == "kubernetes":
        return True
    cards = [
        set(card_names(item.understood.launch) or ())
        if item.understood.llama is not None
        else _used(item)
        for item in (first, second)
    ]
    return bool(cards[0] and cards[1]) and not (cards[0] or set()) & (cards[1] or set())


def engines_of(group: Sequence[Judged]) -> int:
    """Return how many engines a group's launches start; a cluster gives every pod its own cards."""
    pods = [item.understood.launch for item in group]
    return sum(
        launch.container.replicas if launch.container and launch.runtime == "kubernetes" else 1
        for launch in pods
    )


def _meet(first: Judged, second: Judged) -> bool:
    """Say whether the first still runs when the second starts.

    The files of a directory are alternatives, units aside, and so are services without a profile
    in common; of a condition one branch is taken.
    """
    one, two = first.understood.launch, second.understood.launch
    if one.profiles and two.profiles and not one.profiles & two.profiles:
        return False
    if not one.stays or (one.source != two.source and not (one.unattended and two.unattended)):
        return False
    taken = dict(one.branch)
    return all(taken.get(condition, branch) == branch for condition, branch in two.branch)


def _used(judged: Judged) -> set[str] | None:
    """Return the cards that a launch uses: the first ones it sees, as many as its layout takes.

    A container that is given none uses none.

    ``None`` where its layout is not known, or where a cluster hands out cards: it gives none twice.
    """
    understood = judged.understood
    container = understood.launch.container
    if container is not None and container.gpus is not None and not container.gpus.passed:
        return set()
    sizes = [understood.number(name) for name in ("tp", "pp", "dp")]
    here = whole_number(understood.arguments.value("--data-parallel-size-local") or "")
    if here is not None:
        sizes[2] = here
    if understood.launch.runtime == "kubernetes" or None in sizes:
        return None
    count = min(int(prod(size for size in sizes if size is not None)), MOST_CARDS)
    seen = card_names(understood.launch)
    return set(seen[:count]) if seen is not None else {str(index) for index in range(count)}


def _shared_memory(first: Judged, second: Judged) -> Finding | None:
    if {first.understood.launch.engine, second.understood.launch.engine} != {"vllm"}:
        return None
    ours, theirs = _used(second), _used(first)
    shares = [item.understood.number("gpu_memory_utilization") for item in (first, second)]
    if not ours or not theirs or not ours & theirs or None in shares:
        return None
    total = sum(share for share in shares if share is not None)
    if total <= MOST_SHARED:
        return None
    place = second.understood.place_of("gpu_memory_utilization")
    card = min(ours & theirs, key=card_order)
    return Finding(
        "card-shared-beyond-memory",
        "error",
        "--gpu-memory-utilization",
        place,
        f"GPU {card} is also used by {_other(first, second)}: together they request {total:.2f} "
        "of its memory, so the second one to start fails",
        "give each its own GPU (device_ids, --gpus device=N), or fractions that sum below 1",
        "fails_at_start",
    )


def _same_port(first: Judged, second: Judged) -> Finding | None:
    ours, theirs = _host_ports(second), _host_ports(first)
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return None
    return Finding(
        "port-taken",
        "error",
        f"port {both[0]}",
        second.understood.launch.place,
        f"{_other(first, second)} already publishes port {both[0]}",
        "publish another host port"
        if first is not second
        else f"publish a range of ports such as {both[0]}-{int(both[0]) + 7}",
        "fails_at_start",
    )


def _host_ports(judged: Judged) -> dict[str, None]:
    understood = judged.understood
    container = understood.launch.container
    if understood.arguments.last("--headless") is not None:
        return {}
    if container is None or (container.on_host_network and understood.launch.runtime == "docker"):
        port = understood.number("port")
        return {str(int(port)): None} if port is not None else {}
    return {port.host: None for port in container.ports if port.host.isdigit()}


def _other(first: Judged, second: Judged) -> str:
    launch = first.understood.launch
    return "another replica" if first is second else launch.name or str(launch.place)
