"""A refused plan says which option came nearest, by how much it missed and what would help."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conftest import Ran

from qwendeploy.documents import TraceEntry
from qwendeploy.planning.near_miss import nearest_miss


def entry(rule: str, missed_by: str | None, option: str = "x") -> TraceEntry:
    return TraceEntry(
        option=option, rule=rule, effect="rejected", reason="because", missed_by=missed_by
    )


@pytest.mark.parametrize(
    ("entries", "nearest"),
    [
        pytest.param(
            [
                entry("memory-weights", "9.1 GiB per GPU"),
                entry("memory-weights", "0.4 GiB per GPU"),
            ],
            1,
            id="smaller shortfall",
        ),
        pytest.param(
            [entry("memory-weights", "0.1 GiB per GPU"), entry("memory-length", "120 blocks")],
            1,
            id="further on the way",
        ),
        pytest.param(
            [entry("memory-length", "1,200 blocks"), entry("memory-length", "300 blocks")],
            1,
            id="thousands",
        ),
        pytest.param(
            [entry("memory-length", None), entry("memory-length", "300 blocks")],
            1,
            id="stated before unstated",
        ),
        pytest.param(
            [entry("quality-class", None), entry("memory-weights", "3 GiB")], 1, id="not quality"
        ),
        pytest.param([entry("quality-class", None)], None, id="nothing fell short"),
    ],
)
def test_nearest_is_the_last_hurdle_then_the_least_shortfall(
    entries: list[TraceEntry], nearest: int | None
) -> None:
    assert nearest_miss(entries) is (None if nearest is None else entries[nearest])


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        pytest.param(
            ("--gpu", "RTX 3090", "--quality", "near"),
            ("leave no KV cache", "short by", "--quality relaxed"),
            id="a looser class would do",
        ),
        pytest.param(
            ("--gpu", "RTX 3080", "--vram", "10", "--engine", "vllm"),
            ("int4-autoround", "16.6 GiB per GPU", "short by"),
            id="smallest weights are nearest",
        ),
        pytest.param(
            ("--gpu", "H100 SXM", "--c", "64", "--tpot", "5"),
            ("ms predicted, the limit is 5 ms", "fewer requests"),
            id="latency limit",
        ),
        pytest.param(
            (
                "--gpu",
                "RTX 3090",
                "--ctx",
                "256k",
                "--quality",
                "relaxed",
                "--kv-cache-dtype",
                "bf16",
            ),
            ("one request of 262,144 tokens needs", "--ctx"),
            id="length",
        ),
    ],
)
def test_refusal_says_what_would_help(
    asked: tuple[str, ...], parts: tuple[str, ...], run: Callable[..., Ran]
) -> None:
    ran = run("recommend", *asked)
    assert ran.code == 1
    assert "the nearest: " in ran.err
    for part in parts:
        assert part in ran.err
    assert "No feasible option" in ran.out
