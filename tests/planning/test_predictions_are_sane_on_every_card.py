"""Rates and times on cards of every kind keep to what physics and arithmetic allow."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import pytest

from qwendeploy.documents import Option, Workload
from qwendeploy.documents.request import Request
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.kernels import weights_read
from qwendeploy.models.step import KV_BYTES_PER_TOKEN
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.recommend import make_scene
from qwendeploy.tables.gpus import find_gpu, gpus

WORKSTATION = "RTX PRO 6000 Blackwell Workstation"
CARDS = (
    *("RTX 3090", "RTX 4090", "RTX 5060 Ti 16GB", "RTX 5080", "RTX 5090", "GB10", "L4", "L40S"),
    *("A100 80GB SXM", "H100 PCIe", "H100 SXM", "H200", "B200", WORKSTATION),
    *("RTX PRO 6000 Blackwell Max-Q", "RTX PRO 6000 Blackwell Server"),
)


def cards_times(*sizes: int) -> list[tuple[str, int]]:
    """Return every card in these numbers; a GB10 is alone in its machine."""
    return [(card, tp) for card in CARDS for tp in sizes if tp == 1 or card != "GB10"]


WEIGHTS = {
    "bf16": "Qwen/Qwen3.6-27B",
    "fp8": "Qwen/Qwen3.6-27B-FP8",
    "int4-autoround": "Lorbus/Qwen3.6-27B-int4-AutoRound",
}
DRAFTS = (("none", 0), ("mtp", 3), ("dflash", 8))
CONCURRENCY = (1, 4, 16, 64)
CONTEXTS = (8192, 65536, 262144)
MOST_PER_STEP = 0.9
"""Acceptance of a draft token that no text exceeds on average."""
Place = tuple[str, str, int, int, int]


@cache
def grid(card: str, tp: int) -> dict[Place, Estimate]:
    """Return the rates of every option and point on ``tp`` cards."""
    machine = stated_machine(card, tp, catalogue=gpus())
    rates = Rates(make_scene(machine, Workload(concurrency=64, max_context=262144), Request()))
    places = [
        (quant, method, tokens, concurrency, context)
        for quant in WEIGHTS
        for method, tokens in DRAFTS
        for context in CONTEXTS
        for concurrency in CONCURRENCY
    ]
    asked = [(_option(tp, *place[:3]), place[3], place[4], "separate") for place in places]
    answers = rates.aggregate_many(asked)
    assert all(answer is not None for answer in answers)
    return {place: answer for place, answer in zip(places, answers, strict=True) if answer}


def _option(tp: int, quant: str, method: str, tokens: int) -> Option:
    return Option(
        engine="vllm",
        image="vllm/vllm-openai:v0.26.0",
        engine_version="0.26.0",
        fork=False,
        checkpoint=WEIGHTS[quant],
        quant=quant,
        kv_cache_dtype="bf16",
        spec_method=method,
        spec_tokens=tokens,
        tp=tp,
        replicas=1,
        prefix_cache=False,
        max_num_seqs=64,
        capture_size=1024,
    )


@pytest.mark.parametrize(("card", "tp"), cards_times(1, 2, 4, 8))
def test_no_rate_beats_memory_and_no_band_is_broken(card: str, tp: int) -> None:
    model = find_gpu(card)
    assert model is not None
    assert model.bandwidth_gbps is not None
    for (quant, _, tokens, c, x), rate in grid(card, tp).items():
        assert 0 < rate.low <= rate.value <= rate.high < math.inf
        read = weights_read(quant) / tp + c * x * KV_BYTES_PER_TOKEN / min(tp, 4)
        most = c * (1 + MOST_PER_STEP * tokens) * model.bandwidth_gbps * 1e9 / read
        # files differ by what they leave in 16 bits
        assert rate.value <= most * 1.03, (quant, tokens, c, x)


@pytest.mark.parametrize(("card", "tp"), cards_times(1, 2))
def test_more_streams_and_shorter_contexts_give_more(card: str, tp: int) -> None:
    found = grid(card, tp)
    for (quant, method, tokens, c, x), rate in found.items():
        if (quant, method, tokens, 4 * c, x) in found:
            more = found[quant, method, tokens, 4 * c, x].value
            assert 0.97 * rate.value < more < 4.2 * rate.value, (quant, method, c, x)
        if (longer := {8192: 65536, 65536: 262144}.get(x)) is not None:
            assert found[quant, method, tokens, c, longer].value < 1.02 * rate.value


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ("L4", "L40S"),
        ("L40S", "H100 PCIe"),
        ("H100 PCIe", "H100 SXM"),
        ("A100 80GB SXM", "H100 SXM"),
        ("H100 SXM", "H200"),
        ("H200", "B200"),
        ("RTX 3090", "RTX 5090"),
        ("RTX 4090", "RTX 5090"),
        ("RTX 5060 Ti 16GB", "RTX 5080"),
        ("RTX 5080", "RTX 5090"),
        ("GB10", "RTX 5090"),
        ("RTX PRO 6000 Blackwell Max-Q", WORKSTATION),
        ("RTX PRO 6000 Blackwell Server", WORKSTATION),
    ],
)
def test_a_stronger_card_is_no_slower(weaker: str, stronger: str) -> None:
    small, large = grid(weaker, 1), grid(stronger, 1)
    for place, rate in small.items():
        assert large[place].value > 0.9 * rate.value, place


MACHINES = [
    ("--gpu", "RTX PRO 6000", "--gpus", "2", "--quant", "fp8", "--tp", "2"),
    ("--gpu", "RTX 4090", "--gpus", "2", "--quant", "int4-autoround", "--tp", "1"),
    ("--gpu", "H100 SXM", "--gpus", "4", "--quant", "fp8", "--tp", "2", "--replicas", "2"),
    ("--gpu", "L40S", "--gpus", "2", "--quant", "fp8", "--tp", "2"),
]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m[3]}x {m[1]}")
def test_figures_of_one_cell_agree_with_each_other(run: Any, machine: tuple[str, ...]) -> None:
    ran = run("predict", *machine, "--c", "1,4,16", "--ctx", "4k,16k", "--json")
    assert ran.code == 0, ran.err
    cells = json.loads(ran.out)["cells"]
    times: dict[int, list[float]] = {}
    for cell in cells:
        figures = cell["figures"]
        rate, user, pace = (
            figures[name]["value"]
            for name in ("aggregate_decode_tps", "per_user_decode_tps", "tpot_ms")
        )
        running = min(cell["concurrency"], figures["max_running_requests"]["value"])
        assert user * running == pytest.approx(rate, rel=1e-6)
        assert pace == pytest.approx(1000 / user, rel=1e-6)
        for name, figure in figures.items():
            if isinstance(figure, dict) and "unit" in figure:
                assert 0 <= figure["low"] <= figure["value"] <= figure["high"], name
                assert math.isfinite(figure["high"]), name
        assert figures["output_tps_end_to_end"]["value"] <= rate * 1.001
        times.setdefault(cell["concurrency"], []).append(figures["ttft_cold_ms"]["value"])
    assert all(ttfts == sorted(ttfts) and ttfts[0] < ttfts[-1] for ttfts in times.values())


@pytest.mark.parametrize(
    ("card", "whose"),
    [
        ("RTX PRO 6000", "the study's prompts"),
        ("RTX PRO 6000 Max-Q", "the study's prompts"),
        ("RTX 5090", "public benchmarks"),
    ],
)
def test_the_plan_says_whose_text_its_rates_are_of(run: Any, card: str, whose: str) -> None:
    ran = run("recommend", "--gpu", card, "--c", "4", "--ctx", "32k", "--spec", "mtp")
    assert ran.code == 0, ran.err
    assert f"mixed content as in {whose}" in " ".join(ran.out.split())
