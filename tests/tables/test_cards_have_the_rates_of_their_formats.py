"""The catalogue holds what a speed needs for every card that can hold the weights."""

from __future__ import annotations

import pytest

from qwendeploy.tables.gpus import GpuModel, gpus

NVIDIA = [card for card in gpus() if card.vendor == "NVIDIA" and card.segment != "too-old"]
FP8 = {"Ada", "Hopper", "Blackwell"}
FP16_ONLY = {"Volta", "Turing"}
HALF_KNOWN = {"L40G", "PG503 V100", "CMP 100-210", "Jetson Xavier"}
"""Cards of 16 GB and more of which nobody published a matrix rate or a bandwidth."""
HOLDS_WEIGHTS_GB = 16


@pytest.mark.parametrize("card", NVIDIA, ids=[card.name for card in NVIDIA])
def test_a_rate_exists_only_where_the_cores_know_the_format(card: GpuModel) -> None:
    rates = (card.bf16_tflops, card.fp16_tflops, card.fp8_tflops, card.fp4_tflops)
    assert all(rate is None or rate > 0 for rate in rates)
    if card.architecture in FP16_ONLY:
        assert card.bf16_tflops is None
    if card.architecture not in FP8:
        assert card.fp8_tflops is None
    if card.architecture != "Blackwell":
        assert card.fp4_tflops is None
    if card.bf16_tflops and card.architecture in FP8:
        assert card.fp8_tflops is not None
        assert 1.9 <= card.fp8_tflops / card.bf16_tflops <= 2.1


@pytest.mark.parametrize(
    "card",
    [card for card in NVIDIA if (card.memory_gb_nominal or 0) >= HOLDS_WEIGHTS_GB],
    ids=lambda card: card.name,
)
def test_a_card_that_holds_the_weights_has_bandwidth_and_matrix_rate(card: GpuModel) -> None:
    known = bool(card.bandwidth_gbps and (card.bf16_tflops or card.fp16_tflops))
    assert known == (card.name not in HALF_KNOWN)
