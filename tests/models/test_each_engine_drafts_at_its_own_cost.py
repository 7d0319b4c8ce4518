"""What a draft pass costs depends on the engine, its build and the format of the weights."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from qwendeploy.evaluation.transfer import fitted_rows
from qwendeploy.evidence.transfer_rows import (
    card_features,
    features_of,
    image_family,
    transfer_fit,
)
from qwendeploy.models.kernels import draft_pass_bytes
from qwendeploy.models.posterior import derivatives
from qwendeploy.models.step import Features, StepModel
from qwendeploy.tables.decode import decode_table
from qwendeploy.tables.gpus import gpus


def _features(gpu: str, **facts: object) -> Features:
    card = gpus().find(gpu)
    assert card is not None
    return Features(**{**(card_features(card) or {}), **facts})  # type: ignore[arg-type]


def llama(gpu: str, quant: str, drafts: int, *, build: str = "b10453") -> Features:
    return _features(
        gpu,
        quant=quant,
        engine="llama.cpp",
        image_family=image_family("llama.cpp", None, build),
        spec_method="mtp" if drafts else "none",
        spec_tokens=drafts,
        context=600.0,
    )


@pytest.mark.parametrize(
    ("quant", "gigabytes"),
    [
        ("bf16", 0.85 + 2.54),
        ("int4-autoround", 0.85 + 2.54),
        ("fp8", 0.43 + 2.54),
        ("q4_k_m", (0.425 * 4.85 + 1.27 * 6.56) / 8),
        ("gguf-ud-q4_k_xl", (0.425 * 5.0 + 1.27 * 6.56) / 8),
        ("q8_0", (0.425 + 1.27) * 8.5 / 8),
    ],
)
def test_a_draft_pass_reads_its_layer_and_the_head(quant: str, gigabytes: float) -> None:
    assert draft_pass_bytes(quant) / 1e9 == pytest.approx(gigabytes)


@pytest.mark.parametrize(
    ("gpu", "quant", "drafts", "measured"),
    [
        ("RTX 5090", "q4_k_xl", 0, 76.3),
        ("RTX 5090", "q4_k_xl", 4, 171.7),
        ("RTX 5090", "q5_k_xl", 2, 129.4),
        ("RTX 4090", "q4_k_m", 0, 47.7),
        ("RTX 3090", "q4_k_m", 2, 63.5),
        ("RTX PRO 6000 Blackwell Max-Q", "q8_0", 2, 97.1),
    ],
)
def test_late_builds_of_llama_cpp_draft_cheaply(
    gpu: str, quant: str, drafts: int, measured: float
) -> None:
    answer = transfer_fit().predict(llama(gpu, quant, drafts))
    assert answer.low < measured < answer.high
    assert answer.value == pytest.approx(measured, rel=0.2)


def test_drafting_pays_less_on_an_early_build() -> None:
    late, early = (
        transfer_fit().predict(llama("RTX 5090", "q4_k_m", 2, build=build)).value
        for build in ("b10453", "b9246")
    )
    assert early < 0.8 * late


def test_builds_without_a_number_are_not_taken_for_late_ones() -> None:
    families = [image_family("llama.cpp", None, v) for v in ("b10450", "b9246", "62bf73d", None)]
    assert families == ["llama.cpp-new", "llama.cpp", "llama.cpp", "llama.cpp"]
    assert image_family("ik_llama.cpp", None) == "llama.cpp"


def test_formats_of_one_kernel_share_what_is_known_of_it() -> None:
    names = {
        _features("RTX 3090", quant=quant).effects()["kernel"]
        for quant in ("int4-autoround", "gptq-int4", "awq-int4")
    }
    assert len(names) == 1
    assert _features("RTX 3090", quant="nvfp4").effects()["kernel"] not in names


def test_cards_that_take_turns_by_layers_are_as_fast_as_one() -> None:
    rows = [
        row
        for row in decode_table("decode_community")
        if row.engine == "llama.cpp" and row.tp == 1 and row.gpu_count > 1
    ]
    assert rows
    for row in rows:
        features = features_of(row)
        assert features is not None and features.tp == 1, row.row_id


def test_4_bit_integers_are_no_slower_on_a_newer_card_of_the_same_bandwidth() -> None:
    """An RTX 3090 and an RTX 2080 Ti run them by one kernel; what is left is inside the bands."""
    answers = [
        transfer_fit().predict(
            replace(_features(gpu, quant="int4-autoround", context=600.0), bandwidth_gbps=900.0)
        )
        for gpu in ("RTX 3090", "RTX 2080 Ti")
    ]
    assert answers[0].value > 0.85 * answers[1].value


def test_derivatives_of_groups_are_those_of_single_parameters() -> None:
    points = [item.observation.features for item in fitted_rows()][::20]
    names = transfer_fit().names
    model = StepModel(points, names)
    theta = transfer_fit().theta
    one_by_one = derivatives(model.log_rate, theta)
    together = derivatives(model.log_rate, theta, list(model.groups().values()))
    assert np.array_equal(one_by_one[0], together[0])
    assert np.allclose(one_by_one[1], together[1], rtol=0, atol=1e-9)
    assert math.isfinite(float(np.abs(together[1]).max()))
