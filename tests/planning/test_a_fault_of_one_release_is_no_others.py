"""A series that shows its release's fault says nothing of another release."""

from __future__ import annotations

import pytest

from qwendeploy.documents import Option, Workload
from qwendeploy.documents.request import Request
from qwendeploy.evidence.series_choice import best_series
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.recommend import make_scene
from qwendeploy.tables.gpus import gpus


def rates() -> Rates:
    machine = stated_machine("RTX PRO 6000", 2, catalogue=gpus())
    return Rates(make_scene(machine, Workload(concurrency=4, max_context=131072), Request()))


def dflash(image: str, version: str, tokens: int, *, fork: bool) -> Option:
    return Option(
        engine="vllm",
        image=image,
        engine_version=version,
        fork=fork,
        checkpoint="Qwen/Qwen3.6-27B",
        quant="bf16",
        kv_cache_dtype="bf16",
        spec_method="dflash",
        spec_tokens=tokens,
        tp=2,
        replicas=1,
        prefix_cache=True,
        max_num_seqs=16,
    )


V17 = ("repne/vllm:v17", "0.1.dev17236")
V2 = ("repne/vllm:v2", "0.1.dev16530")
V020, V026 = ("vllm/vllm-openai:v0.20.1", "0.20.1"), ("vllm/vllm-openai:v0.26.0", "0.26.0")


@pytest.mark.parametrize(
    ("image", "fork", "tokens", "speaks"),
    [
        pytest.param(V2, True, 4, True, id="dead draft of its own image"),
        pytest.param(V17, True, 4, False, id="dead draft of another image"),
        pytest.param(V17, True, 16, False, id="more drafts than the block holds"),
        pytest.param(V17, True, 7, True, id="working draft of another image"),
        pytest.param(V020, False, 8, True, id="collapse of its own release"),
        pytest.param(V026, False, 8, False, id="collapse of another release"),
    ],
)
def test_a_faulty_series_speaks_for_its_own_image_alone(
    image: tuple[str, str], fork: bool, tokens: int, speaks: bool
) -> None:
    match = best_series(rates().series, dflash(*image, tokens, fork=fork))
    assert (match is not None) is speaks


def test_a_draft_between_working_ones_is_as_fast_as_they_are() -> None:
    known = rates()
    speeds = []
    for tokens in (3, 4, 5):
        answer = known.aggregate(dflash(*V17, tokens, fork=True), 1, 8192, "separate")
        assert answer is not None
        speeds.append(answer.value)
    assert speeds == sorted(speeds)
    assert speeds[2] < 1.3 * speeds[0]
