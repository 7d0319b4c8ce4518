"""What several launches of one file do to each other: cards and ports that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qwendeploy.auditing.findings import Finding, worst_outcome
from qwendeploy.auditing.judge import Judged

MOST_SHARED = 1.0
"""The engine takes its share of the whole card and refuses when that much is not free."""
MOST_CARDS = 64
"""Cards of a box that are told apart; ``--gpus`` takes as many."""


def with_neighbours(judged: Sequence[Judged]) -> list[Judged]:
    """Return the launches with what each meets from those in front of it."""
    result: list[Judged] = []
    for index, item in enumerate(judged):
        extra: list[Finding] = []
        for other in judged[:index]:
            shared = _shared_memory(other, item)
            port = _same_port(other, item)
            extra += [found for found in (shared, port) if found is not None]
        if extra:
            findings = (*extra, *item.findings)
            item = replace(item, findings=findings, outcome=worst_outcome(findings))
        result.append(item)
    return result


def _cards(judged: Judged) -> set[str] | None:
    """Return the cards a launch sees by name, ``None`` for all of them."""
    launch = judged.understood.launch
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        word = launch.env.get(name)
        if word is not None and word.text.replace(",", "").isdigit():
            return set(word.text.split(","))
    gpus = launch.container.gpus if launch.container is not None else None
    return set(gpus.devices) if gpus is not None and gpus.devices else None


def _used(judged: Judged) -> set[str] | None:
    """Return the cards that a launch uses: the first ones it sees, as many as its layout takes."""
    tp, dp = judged.understood.number("tp"), judged.understood.number("dp")
    seen = _cards(judged)
    if tp is None:
        return None
    count = int(tp * (dp or 1))
    if seen is None:
        return {str(index) for index in range(min(count, MOST_CARDS))}
    return set(sorted(seen)[:count])


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
    card = min(ours & theirs)
    return Finding(
        "card-shared-beyond-memory",
        "error",
        "--gpu-memory-utilization",
        place,
        f"card {card} serves {_name(first)} too: together they ask for {total:.2f} of its memory, "
        "and the one that starts second finds less free than it asks for",
        "give each its own card (device_ids, --gpus device=N), or shares that sum below 1",
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
        f"{_name(first)} publishes port {both[0]} already",
        "publish another host port",
        "fails_at_start",
    )


def _host_ports(judged: Judged) -> dict[str, None]:
    container = judged.understood.launch.container
    if container is None:
        port = judged.understood.number("port")
        return {str(int(port)): None} if port is not None else {}
    return {port.host: None for port in container.ports if port.host.isdigit()}


def _name(judged: Judged) -> str:
    launch = judged.understood.launch
    return launch.name or str(launch.place)
