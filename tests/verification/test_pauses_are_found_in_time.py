"""The longest pause that a prompt causes is the one that looking at every pair of gaps finds."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from qwendeploy.verification.loads.pauses import longest_pauses

Prompt = tuple[float, float]


def by_every_pair(prompts: list[Prompt], chunks: list[list[float]]) -> list[float | None]:
    found = []
    for sent, first in prompts:
        gaps = [b - a for times in chunks for a, b in pairwise(times) if a < first and b > sent]
        found.append(max(gaps, default=None))
    return found


moments = some.integers(0, 60).map(float)
stretches = some.tuples(moments, some.integers(0, 9).map(float))
streams = some.lists(some.lists(moments, max_size=8, unique=True).map(sorted), max_size=5)


@given(some.lists(stretches, max_size=6), streams)
def test_pauses_are_those_of_every_pair(
    starts: list[tuple[float, float]], chunks: list[list[float]]
) -> None:
    prompts = [(sent, sent + length) for sent, length in starts]
    assert longest_pauses(prompts, chunks) == by_every_pair(prompts, chunks)


@pytest.mark.parametrize("sent", [0.0, 5.0, 9.9])
def test_a_prompt_is_not_its_own_pause(sent: float) -> None:
    own = [10.0, 30.0]
    assert longest_pauses([(sent, 10.0)], [own]) == [None]


def test_long_runs_of_many_streams_take_no_minutes() -> None:
    """256 streams for five minutes: 15,000 requests, each of 100 chunks."""
    chooser = random.Random(1)
    prompts, chunks = [], []
    for _ in range(256):
        now = chooser.random()
        for _ in range(60):
            first = now + 0.5 + chooser.random()
            prompts.append((now, first))
            chunks.append([first + 0.035 * number for number in range(100)])
            now = first + 3.5
    begun = time.process_time()
    found = longest_pauses(prompts, chunks)
    assert time.process_time() - begun < 20
    assert max(pause for pause in found if pause is not None) == pytest.approx(0.035)
