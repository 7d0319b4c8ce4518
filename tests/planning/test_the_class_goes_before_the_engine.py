"""A quality class is left only where no engine holds the load in it; both engines are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from conftest import Ran

from qwendeploy.documents import Plan, Workload
from qwendeploy.documents.request import Pins, Request
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.planning.recommend import recommend
from qwendeploy.tables.gpus import gpus


def plan(
    gpu: str,
    *,
    system: Literal["linux", "wsl2"] = "linux",
    pins: dict[str, Any] | None = None,
    count: int = 1,
    **workload: Any,
) -> Plan:
    machine = stated_machine(gpu, count, catalogue=gpus(), system=system)
    return recommend(machine, Workload(**workload), Request(pins=Pins(**(pins or {}))))


@pytest.mark.parametrize(
    ("concurrency", "context", "engine", "quant"),
    [
        (1, 16384, "llama.cpp", "gguf-q8_0"),
        (1, 32768, "llama.cpp", "gguf-q8_0"),
        (4, 32768, "vllm", "int4-autoround"),
        (1, 131072, "vllm", "int4-autoround"),
    ],
)
def test_eight_bits_go_first_where_they_hold_every_request(
    concurrency: int, context: int, engine: str, quant: str
) -> None:
    option = plan("RTX 5090", concurrency=concurrency, max_context=context).option

    assert (option.engine, option.quant) == (engine, quant)


def test_the_faster_class_is_named_beside_the_stricter(run: Callable[..., Ran]) -> None:
    ran = run("recommend", "--gpu", "RTX 5090", "--ctx", "32k")
    flat = " ".join(ran.out.split())

    assert "No vLLM option in quality class near fits on this machine" in flat
    assert "--quality relaxed selects int4-autoround with vLLM: 1" in flat
    assert "quality class relaxed, the plan has near; --quality relaxed selects it" in flat


def test_too_few_slots_are_named_beside_the_coarser_class(run: Callable[..., Ran]) -> None:
    ran = run("recommend", "--gpu", "RTX 5090", "--ctx", "32k", "--c", "4")
    flat = " ".join(ran.out.split())

    assert "is gguf-q8_0 with llama.cpp, which runs 3 of 4 requests at once" in flat
    assert "the plan uses quality class relaxed" in flat
    assert "quality class near, the plan has relaxed; runs 3 of 4 requests at once" in flat


def test_what_is_named_is_what_the_class_takes() -> None:
    strict = plan("RTX 5090", max_context=32768)
    (beside,) = (other for other in strict.alternatives if other.option.engine == "vllm")
    relaxed = plan("RTX 5090", max_context=32768, quality="relaxed", quality_explicit=True)

    assert relaxed.option.checkpoint == beside.option.checkpoint
    assert relaxed.option.engine == "vllm"


@pytest.mark.parametrize("pins", [{"engine": "vllm"}, {"spec_method": "mtp"}], ids=str)
def test_vllm_is_left_only_where_it_may_be(pins: dict[str, Any]) -> None:
    assert plan("RTX 5090", max_context=32768, pins=pins).option.engine == "vllm"


def test_few_slots_stand_where_vllm_has_nothing() -> None:
    made = plan("V100 SXM2 32GB", concurrency=4, max_context=32768)

    assert (made.option.engine, made.option.quant) == ("llama.cpp", "gguf-q8_0")
    assert made.option.max_num_seqs is not None
    assert made.option.max_num_seqs < 4


def test_a_latency_limit_is_what_the_class_fell_short_of(run: Callable[..., Ran]) -> None:
    ran = run("recommend", "--gpu", "GB10", "--c", "1", "--ctx", "128k", "--tpot", "50")
    first = " ".join(ran.out.split("\n\n")[0].split())

    assert "runs on this machine with vLLM or llama.cpp (closest: fp8 · mtp3 · tp1: " in first
    assert "ms predicted, the limit is 50 ms): the plan uses quality class relaxed" in first


def test_both_engines_are_named_once(run: Callable[..., Ran]) -> None:
    text = run("recommend", "--gpu", "RTX 5070 Ti", "--ctx", "16k").out

    assert "with vLLM or llama.cpp: the plan uses quality class any" in " ".join(text.split())


def test_the_image_projector_takes_its_room() -> None:
    blind = plan("RTX 5090", max_context=32768, pins={"engine": "llama.cpp"})
    seeing = plan("RTX 5090", max_context=32768, vision=True, pins={"engine": "llama.cpp"})

    assert "26.6 GiB weights" in blind.capacity[0]
    assert "27.5 GiB weights" in seeing.capacity[0]
    assert not any(flag.name == "--no-mmproj" for flag in seeing.flags)


# --- WSL2 ---


def test_windows_keeps_its_share_from_llama_cpp_too() -> None:
    linux = plan("RTX 5090", max_context=32768)
    windows = plan("RTX 5090", system="wsl2", max_context=32768)

    assert linux.option.kv_cache_dtype == "bf16"
    assert windows.option.kv_cache_dtype == "fp8"
    assert any("29.5 GiB may be used" in entry.reason for entry in windows.trace)


def test_what_windows_changes_is_on_the_screen(run: Callable[..., Ran]) -> None:
    ran = run(
        *("recommend", "--gpu", "RTX 5090", "--os", "wsl2", "--ctx", "32k"),
        *("--quality", "relaxed"),
    )
    flat = " ".join(ran.out.split())

    assert ran.code == 0, ran.err
    assert "gpu-memory-utilization 0.85" in flat
    assert "[memory-fraction-wsl2] the Windows desktop uses 1 to 2 GiB" in flat
    assert "[wsl2-graph-capture-blackwell]" in flat


def test_a_system_describes_a_stated_machine(run: Callable[..., Ran]) -> None:
    ran = run("recommend", "--os", "wsl2")

    assert ran.code == 2
    assert "--os" in ran.err
