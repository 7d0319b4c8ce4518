"""A draft length nobody measured stands at the level of those measured beside it."""

from __future__ import annotations

import math
from functools import cache

import pytest

from qwendeploy.documents import KvDtype, Option, Workload
from qwendeploy.documents.request import Request
from qwendeploy.evidence.anchors import SIBLING_SHARE, moved_beside
from qwendeploy.figures import Kind
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.models.estimate import Estimate
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.recommend import make_scene
from qwendeploy.tables.gpus import gpus

PHYSICS = Estimate(100.0, 80.0, 125.0, Kind.TRANSFERRED, basis="physics")


def _option(drafts: int) -> Option:
    return Option(
        engine="vllm",
        image="vllm/vllm-openai:v0.27.1",
        engine_version="0.27.1",
        checkpoint="Qwen/Qwen3.6-27B-FP8",
        quant="fp8",
        kv_cache_dtype="bf16",
        spec_method="mtp",
        spec_tokens=drafts,
        tp=2,
        replicas=1,
    )


def test_the_nearer_length_weighs_more_and_half_of_the_level_is_kept() -> None:
    near, far = (_option(3), math.log(1.2)), (_option(6), math.log(0.9))
    moved = moved_beside(PHYSICS, _option(4), [near, far])
    above = (math.log(1.2) + math.log(0.9) / 2) / 1.5
    assert moved.value == pytest.approx(100 * math.exp(SIBLING_SHARE * above))
    assert moved.low / moved.value == pytest.approx(0.8)
    assert "mtp3 and mtp6" in moved.basis
    assert moved_beside(PHYSICS, _option(4), []) == PHYSICS


@cache
def rate(drafts: int, concurrency: int, kv: KvDtype = "bf16") -> Estimate:
    """Return the rate on the study's two cards, 32k of context each."""
    machine = stated_machine("RTX PRO 6000", 2, catalogue=gpus())
    scene = make_scene(machine, Workload(concurrency=64, max_context=262144), Request())
    option = _option(drafts).model_copy(
        update={"kv_cache_dtype": kv, "image": "repne/vllm:v17", "fork": True}
    )
    (found,) = Rates(scene).aggregate_many([(option, concurrency, 32768, "separate")])
    assert found is not None
    return found


@pytest.mark.parametrize("concurrency", [1, 4, 16, 32])
def test_lengths_between_measured_ones_do_not_fall_below_both(concurrency: int) -> None:
    """3 and 5 drafts have series on this card, 2 and 4 have none for the image."""
    two, three, four, five = (rate(drafts, concurrency) for drafts in (2, 3, 4, 5))
    assert "level of mtp3 and mtp5" in four.basis and "level of mtp3" in two.basis
    assert "level" not in three.basis and "level" not in five.basis
    assert two.value < three.value
    assert four.value > 0.95 * min(three.value, five.value)


def test_a_level_of_16_bit_keys_is_not_carried_to_8_bits() -> None:
    assert "level" not in rate(4, 16, "fp8").basis
