"""Seats of an option at the load that it is judged at.

A seat takes memory from the pool whether or not it is used. Requests shorter than the load's may
fill more seats than its own can, so seats are kept unless they cost requests that would run.
"""

from __future__ import annotations

from dataclasses import replace

from qwendeploy.evidence.memory_view import Load, Pool
from qwendeploy.planning.candidate import Candidate
from qwendeploy.planning.resolve import last_of, resolve, size_memory
from qwendeploy.planning.scene import Scene, SceneCache

GIVEN_UP = 0.05
"""Share of the requests that could run at the load's context up to which more seats for shorter
ones are kept: less than the pool before start is known to (5 %, DESIGN §5)."""


def seated(candidate: Candidate, load: Load, scenes: SceneCache) -> Candidate:
    """Return the candidate without the seats that keep its pool from holding more of the load."""
    option = candidate.option
    seats = option.max_num_seqs or 1
    held = candidate.servers.running(load)
    few = max(1, held // option.replicas)
    if scenes.scene.pins.max_num_seqs or held >= min(load.concurrency, seats * option.replicas):
        return candidate
    if not isinstance(candidate.memory, Pool):
        return candidate
    if not _may_gain(candidate, few, held, load, scenes.scene):
        return candidate
    scene = scenes.scene_for(option)
    found: dict[int, Candidate] = {seats: candidate}

    def of(number: int) -> Candidate:
        if number not in found:
            result = resolve(option, scene, most_seats=number)
            found[number] = result if isinstance(result, Candidate) else candidate
        return found[number]

    if not _gains(of(few).servers.fitting(load), held):
        return candidate

    def filled(number: int) -> bool:
        return of(number).servers.fitting(load) >= number * option.replicas

    full = last_of(few, seats, filled)
    most = of(full).servers.running(load)
    if not _gains(most, held):
        return candidate

    def enough(number: int) -> bool:
        return not _gains(most, of(number).servers.running(load))

    return of(last_of(full, seats, enough))


def _may_gain(candidate: Candidate, few: int, held: int, load: Load, scene: Scene) -> bool:
    """Say whether memory alone lets fewer seats gain at least half of what they have to.

    It is a fraction of the work of resolving the option anew, which rules may still change.
    """
    option = candidate.option.model_copy(
        update={"max_num_seqs": few, "capture_size": scene.pins.capture_size}
    )
    fewer = replace(candidate, option=option, memory=size_memory(option, scene))
    return held < (1 - GIVEN_UP / 2) * fewer.servers.fitting(load)


def _gains(count: int, held: int) -> bool:
    """Say whether a count of requests is more than another by what is not given up for seats."""
    return held < (1 - GIVEN_UP) * count
