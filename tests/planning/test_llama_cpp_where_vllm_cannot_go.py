"""Cards that no vLLM option fits get a GGUF under llama.cpp, or a refusal that says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran

from qwendeploy.documents import Plan, Quality, Workload
from qwendeploy.documents.request import Pins, Request
from qwendeploy.errors import NoPlan
from qwendeploy.figures import Kind
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.planning.recommend import recommend
from qwendeploy.tables.gpus import gpus


def plan(
    gpu: str, vram: float | None = None, count: int = 1, *, ctx: int = 16384, **pins: Any
) -> Plan:
    machine = stated_machine(gpu, count, catalogue=gpus(), vram_gib=vram)
    workload = Workload(concurrency=4 if count > 1 else 1, max_context=ctx)
    return recommend(machine, workload, Request(pins=Pins(**pins)))


def flag(made: Plan, name: str) -> str | None:
    return next(setting.value for setting in made.flags if setting.name == name)


@pytest.mark.parametrize(
    ("gpu", "vram"),
    [
        pytest.param("RTX 5060 Ti", 16, id="5060 Ti"),
        pytest.param("RTX 4060 Ti", 16, id="4060 Ti"),
        pytest.param("RTX 4080", None, id="4080"),
        pytest.param("V100 SXM2 32GB", None, id="too old for vLLM"),
    ],
)
def test_card_that_vllm_cannot_serve_gets_a_gguf(gpu: str, vram: float | None) -> None:
    made = plan(gpu, vram)
    option = made.option
    assert option.engine == "llama.cpp"
    assert option.quant.startswith("gguf-")
    assert option.image == "ghcr.io/ggml-org/llama.cpp:server-cuda-b9246"
    assert "No vLLM option fits" in made.headlines[0]
    assert int(flag(made, "--ctx-size") or 0) == 16384 * int(flag(made, "--parallel") or 0)
    assert flag(made, "--n-gpu-layers") == "99"
    rate = made.predictions.aggregate_decode_tps
    assert rate is not None and rate.kind in (Kind.TRANSFERRED, Kind.ESTIMATED)
    assert made.predictions.kv_pool_blocks is None
    assert "not blocks" in made.predictions.reasons["kv_pool_blocks"]


@pytest.mark.parametrize(
    ("gpu", "vram"),
    [
        pytest.param("RTX 3080", 10, id="10 GB"),
        pytest.param("RTX 3080", 12, id="12 GB"),
        pytest.param("RTX 4060", None, id="8 GB"),
    ],
)
def test_card_that_no_gguf_fits_is_refused_with_the_shortfall(gpu: str, vram: float | None) -> None:
    with pytest.raises(NoPlan) as caught:
        plan(gpu, vram)
    refusal = caught.value
    assert "GGUF" in str(refusal)
    assert "short by" in str(refusal)
    assert any("vllm" in entry.option for entry in refusal.trace)
    assert any("llama.cpp" in entry.option for entry in refusal.trace)


@pytest.mark.parametrize(
    ("gpu", "nearest"),
    [("V100 SXM2 32GB", "--ctx 262144 or less"), ("RTX 5090", "--ctx 28")],
)
def test_a_slot_is_no_longer_than_the_model(gpu: str, nearest: str) -> None:
    with pytest.raises(NoPlan) as caught:
        plan(gpu, ctx=300_000)
    assert nearest in str(caught.value)
    cut = [entry for entry in caught.value.trace if entry.rule == "context-above-native"]
    assert cut
    assert all("llama.cpp" in entry.option for entry in cut)


def test_vllm_is_taken_wherever_it_fits() -> None:
    made = plan("RTX 3090")
    assert made.option.engine == "vllm"
    assert made.option.quant == "int4-autoround"
    gguf = [entry for entry in made.trace if "gguf" in entry.option]
    assert all(entry.effect == "rejected" for entry in gguf)


def test_more_bits_are_taken_where_they_fit() -> None:
    small, large = plan("RTX 5060 Ti", 16), plan("RTX 3090", engine="llama.cpp")
    assert (small.option.quant, large.option.quant) == ("gguf-iq4_xs-pure", "gguf-q4_k_l")
    assert any(entry.rule == "gguf-bits" for entry in large.trace)


def test_eight_bit_gguf_is_near_and_meets_an_explicit_class() -> None:
    machine = stated_machine("RTX 5090", 1, catalogue=gpus())
    workload = Workload(max_context=16384, quality=Quality.NEAR, quality_explicit=True)
    made = recommend(machine, workload, Request())
    assert (made.option.engine, made.option.quant) == ("llama.cpp", "gguf-q8_0")
    assert flag(made, "--hf-repo") == "unsloth/Qwen3.6-27B-GGUF:Q8_0"


def test_several_small_cards_share_one_gguf_by_tensors() -> None:
    made = plan("RTX 3080", 10, count=2, ctx=32768)
    assert (made.option.engine, made.option.tp) == ("llama.cpp", 2)
    assert flag(made, "--split-mode") == "tensor"


def test_several_slots_are_estimated() -> None:
    made = plan("RTX 5060 Ti", 16, count=4, engine="llama.cpp")
    rate = made.predictions.aggregate_decode_tps
    assert made.option.max_num_seqs == 4
    assert rate is not None and rate.kind is Kind.ESTIMATED


@pytest.mark.parametrize(
    "pins",
    [{"engine": "vllm"}, {"spec_method": "mtp", "spec_tokens": 3}, {"quant": "int4-autoround"}],
    ids=str,
)
def test_llama_cpp_is_not_taken_against_what_is_stated(pins: dict[str, Any]) -> None:
    with pytest.raises(NoPlan) as caught:
        plan("RTX 5060 Ti", 16, **pins)
    assert not any("gguf" in entry.option for entry in caught.value.trace)


@pytest.mark.parametrize("kind", ["llama-server", "docker", "compose"])
def test_plan_becomes_artefacts(kind: str, run: Callable[..., Ran], tmp_path: Path) -> None:
    saved, out = tmp_path / "plan.yaml", tmp_path / "out"
    card = ("--gpu", "RTX 3060 12GB", "--gpus", "2", "--engine", "llama.cpp", "--quality", "any")
    assert run("recommend", *card, "-o", saved).code == 0
    ran = run("generate", saved, "-f", kind, "-o", out)
    assert ran.code == 0, ran.err
    text = "".join(file.read_text() for file in out.iterdir() if file.name != "plan.yaml")
    assert "bartowski/Qwen3.6-27B-GGUF:Q4_K_L" in text
    assert "--hf-repo" in text and "--model" not in text


def test_predict_takes_a_gguf(run: Callable[..., Ran]) -> None:
    ran = run(
        *("predict", "--gpu", "RTX 3090", "--quant", "gguf-q4_k_l"),
        *("--c", "1,2", "--ctx", "8k", "--json"),
    )
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["option"]["engine"] == "llama.cpp"
    assert [cell["figures"]["max_running_requests"]["value"] for cell in document["cells"]] == [
        2,
        2,
    ]
