"""Figures of one load agree: rate, first token and pace; more streams or tokens never cost less."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from qwendeploy.cli import cli
from qwendeploy.models.isotonic import between, rising


def figures(*args: str) -> list[dict[str, Any]]:
    """Return the figures of every cell that ``predict`` prints."""
    done = CliRunner().invoke(cli, ["predict", *args, "--json"])
    assert done.exit_code == 0, done.output
    return [cell["figures"] for cell in json.loads(done.stdout)["cells"]]


def values(found: list[dict[str, Any]], name: str) -> list[float]:
    return [float(each[name]["value"]) for each in found]


LOADS = (1, 2, 3, 5, 7, 8, 13)


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 8])
def test_throughput_is_that_of_first_token_and_pace(replicas: int) -> None:
    found = figures(
        *("--gpu", "H100 PCIe", "--gpus", "8", "--quant", "fp8", "--spec", "mtp"),
        *("--spec-tokens", "3", "--tp", "1", "--replicas", str(replicas), "--ctx", "4k"),
        *("--c", ",".join(map(str, LOADS)), "--max-num-seqs", "16", "--separate-contexts"),
    )
    for count, each in zip(LOADS, found, strict=True):
        first, pace = (each[f"{name}_end_to_end_ms"]["value"] / 1000 for name in ("ttft", "tpot"))
        expected = count * 512 / (first + pace * 512)
        assert each["output_tps_end_to_end"]["value"] == pytest.approx(expected, rel=1e-3)
        assert pace * 1000 >= each["tpot_ms"]["value"] * (1 - 1e-9)


@pytest.mark.parametrize("context", ["4k", "8k", "64k"])
def test_no_server_gains_more_than_the_streams_that_are_added(context: str) -> None:
    found = figures(
        *("--gpu", "RTX PRO 6000", "--gpus", "2", "--quant", "fp8", "--spec", "mtp"),
        *("--spec-tokens", "3", "--image", "vllm/vllm-openai:v0.27.1", "--ctx", context),
        *("--c", "1,2,3,4,5,6,8,12,16", "--separate-contexts"),
    )
    pace = values(found, "tpot_ms")
    assert all(before <= after * (1 + 1e-9) for before, after in pairwise(pace))


@pytest.mark.parametrize("step", ["2048", "8192", "32768"])
def test_no_prompt_is_faster_than_a_shorter_one(step: str) -> None:
    found = figures(
        *("--gpu", "H200", "--quant", "fp8", "--spec", "none", "--c", "1"),
        *("--ctx", "512,1k,1500,2k,2500,3k,4k,8k,9k,32k,64k", "--max-num-seqs", "128"),
        *("--max-num-batched-tokens", step),
    )
    times = values(found, "ttft_cold_ms")
    assert all(before <= after * (1 + 1e-9) for before, after in pairwise(times))


def test_an_option_that_may_not_start_gives_way_to_one_that_surely_runs() -> None:
    args = ["recommend", "--gpu", "RTX 2080 Ti", "--gpus", "2", "--ctx", "8k", "--c", "2", "--json"]
    plan = json.loads(CliRunner().invoke(cli, args).stdout)
    assert plan["option"]["engine"] == "llama.cpp"
    assert "may refuse to start" in plan["headlines"][0]
    stated = json.loads(CliRunner().invoke(cli, [*args, "--engine", "vllm"]).stdout)
    assert stated["option"]["engine"] == "vllm"
    assert any(w["rule"] == "kv-too-small-for-max-model-len" for w in stated["warnings"])


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12))
@settings(deadline=None, derandomize=True)
def test_pooled_values_rise_and_keep_their_mean(values: list[float]) -> None:
    curve = rising(values)
    assert all(before <= after for before, after in pairwise(curve))
    assert np.mean(curve) == pytest.approx(np.mean(values), abs=1e-9)
    places = np.arange(len(values), dtype=np.float64)
    held = between(curve, places, 0.5, 9.0)
    assert held == (9.0 if len(values) == 1 else curve[1])
