"""A series that stops at four requests says little at thirty-two: the joint fit carries it on."""

from __future__ import annotations

import json
from typing import Any

import pytest

PAIR = ("--gpu", "RTX PRO 6000", "--gpus", "2")


def rate_of(run: Any, *settings: str) -> dict[str, Any]:
    ran = run("recommend", *PAIR, "--ctx", "256k", "--json", *settings)
    assert ran.code == 0, ran.err
    rate: dict[str, Any] = json.loads(ran.out)["predictions"]["aggregate_decode_tps"]
    return rate


UPSTREAM = ("--upstream-only", "--quant", "fp8", "--tp", "2", "--spec", "mtp", "--spec-tokens", "3")


def test_far_outside_its_cells_the_joint_fit_is_heard(run: Any) -> None:
    far = rate_of(run, *UPSTREAM, "--c", "32")

    assert "beyond its cells with the step physics" in far["source"]
    assert (far["high"] - far["low"]) / 2 / far["value"] < 0.3


@pytest.mark.parametrize("concurrency", ["1", "4"])
def test_at_its_cells_the_series_answers(run: Any, concurrency: str) -> None:
    source = rate_of(run, *UPSTREAM, "--c", concurrency)["source"]
    assert "v0.20.1" in source
    assert "beyond its cells" not in source


def test_a_longer_draft_is_never_surer_than_the_measured_one(run: Any) -> None:
    # both from one fit here, so that neither wins by the width of another's band
    three = rate_of(run, *UPSTREAM, "--c", "32")
    five = rate_of(run, *UPSTREAM[:-1], "5", "--c", "32")

    assert three["low"] > five["low"]
