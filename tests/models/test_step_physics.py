"""Properties of the step model that hold on every machine, fitted or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwendeploy.evidence.transfer_rows import card_features, transfer_fit
from qwendeploy.figures import Kind
from qwendeploy.models.kernels import generation, gguf_bits, kernel_for, state_bytes, weights_read
from qwendeploy.models.step import KV_BYTES_PER_TOKEN, Features, StepModel
from qwendeploy.models.step_priors import PRIORS
from qwendeploy.models.transfer import TransferFit
from qwendeploy.tables.gpus import gpus

CARDS = ("RTX 3090", "RTX 5090", "RTX PRO 6000", "GB10", "H200", "L40S", "A100 80GB SXM", "MI300X")


def card(name: str) -> dict[str, object]:
    model = gpus().find(name)
    assert model is not None, name
    facts = card_features(model)
    assert facts is not None, name
    return facts


def features(name: str, **stated: object) -> Features:
    return Features(**{**card(name), **stated})  # type: ignore[arg-type]


def rate(point: Features) -> float:
    return transfer_fit().predict(point).value


points = st.builds(
    features,
    name=st.sampled_from(CARDS),
    quant=st.sampled_from(["bf16", "fp8", "int4-autoround", "nvfp4", "q8_0"]),
    tp=st.sampled_from([1, 2, 4, 8]),
    link=st.sampled_from(["nvlink", "pcie-p2p", "pcie"]),
    spec_method=st.sampled_from(["none", "mtp", "dflash"]),
    spec_tokens=st.integers(1, 8),
    kv_cache_dtype=st.sampled_from(["bf16", "fp8"]),
    concurrency=st.integers(1, 96),
    context=st.floats(0, 262144),
    contexts=st.sampled_from(["shared", "separate"]),
    content=st.sampled_from(["prose", "mixed", "agent", "code"]),
)
stable = settings(max_examples=60, deadline=None, derandomize=True)


@stable
@given(points)
def test_the_band_holds_the_value_and_is_not_hollow(point: Features) -> None:
    estimate = transfer_fit().predict(point)
    assert 0 < estimate.low < estimate.value < estimate.high
    assert 0.05 < estimate.half_width < 3


@stable
@given(points, st.floats(1.01, 4))
def test_more_bandwidth_is_never_slower(point: Features, factor: float) -> None:
    faster = replace(point, bandwidth_gbps=point.bandwidth_gbps * factor)
    assert rate(faster) >= rate(point) * (1 - 1e-9)


@stable
@given(points, st.floats(1.01, 4))
def test_a_higher_matrix_rate_is_never_slower(point: Features, factor: float) -> None:
    faster = replace(
        point,
        bf16_tflops=point.bf16_tflops * factor,
        fp8_tflops=point.fp8_tflops and point.fp8_tflops * factor,
        fp4_tflops=point.fp4_tflops and point.fp4_tflops * factor,
    )
    assert rate(faster) >= rate(point) * (1 - 1e-9)


@stable
@given(points, st.integers(1, 64))
def test_more_streams_never_lower_the_aggregate_within_captured_graphs(
    point: Features, more: int
) -> None:
    crowded = replace(point, concurrency=point.concurrency + more)
    assert rate(crowded) >= rate(point) * (1 - 1e-9)


@stable
@given(points)
def test_separate_contexts_are_never_faster_than_a_shared_one(point: Features) -> None:
    shared, separate = (replace(point, contexts=kind) for kind in ("shared", "separate"))
    assert rate(separate) <= rate(shared) * (1 + 1e-9)


@stable
@given(points, st.floats(1, 100000))
def test_a_longer_context_is_never_faster(point: Features, more: float) -> None:
    assert rate(replace(point, context=point.context + more)) <= rate(point) * (1 + 1e-9)


@stable
@given(points)
def test_smaller_weights_are_never_slower(point: Features) -> None:
    full = replace(point, weights_bytes=50e9)
    assert rate(replace(point, weights_bytes=15e9)) >= rate(full)


@stable
@given(points)
def test_more_predictable_text_is_never_slower(point: Features) -> None:
    rates = [rate(replace(point, content=content)) for content in ("prose", "code")]
    assert rates[1] >= rates[0] * (1 - 1e-9)


def test_a_step_beyond_the_captured_graphs_is_slower_where_launches_bind() -> None:
    """Two H200 fell from 5,368 to 3,508 tok/s between 64 and 128 streams of MTP3 (own, 2026)."""
    base = features(
        "H200", quant="fp8", tp=2, link="nvlink", spec_method="mtp", spec_tokens=3,
        deep_gemm=False, content="synthetic", capture_size=256,
    )  # fmt: skip
    captured, beyond = (rate(replace(base, concurrency=c)) for c in (64, 128))
    assert beyond < 0.9 * captured
    assert beyond == pytest.approx(3508, rel=0.25)
    assert rate(replace(base, concurrency=128, capture_size=512)) > beyond


def test_eight_ranks_read_as_much_cache_a_card_as_four() -> None:
    four, eight = (
        StepModel([features("H200", quant="bf16", tp=tp, context=100000.0)], tuple(PRIORS))
        for tp in (4, 8)
    )
    assert eight.kv_ms == pytest.approx(four.kv_ms)
    assert eight.weights_ms == pytest.approx(four.weights_ms / 2)


@pytest.mark.parametrize(
    ("quant", "gpu", "kernel", "native"),
    [
        pytest.param("fp8", "RTX 3090", "marlin", False, id="no 8-bit float on Ampere"),
        pytest.param("fp8", "RTX 4090", "fp8", True, id="8-bit float from Ada on"),
        pytest.param("fp8", "RTX PRO 6000", "fp8", True, id="8-bit float on Blackwell"),
        pytest.param("nvfp4", "RTX 3090", "marlin", False, id="no 4-bit float on Ampere"),
        pytest.param("nvfp4", "H100", "marlin", False, id="no 4-bit float on Hopper"),
        pytest.param("nvfp4", "RTX 5090", "fp4", True, id="4-bit float on Blackwell"),
        pytest.param("nvfp4", "GB10", "fp4", True, id="4-bit float on GB10"),
        pytest.param("int4-autoround", "RTX PRO 6000", "marlin", False, id="int4 is weight-only"),
        pytest.param("q8_0", "RTX 5060 Ti", "gguf", False, id="llama.cpp's formats"),
        pytest.param("bf16", "A100 80GB SXM", "bf16", True, id="16 bits anywhere"),
    ],
)
def test_the_kernel_is_what_the_card_can_multiply(
    quant: str, gpu: str, kernel: str, native: bool
) -> None:
    found = features(gpu, quant=quant).kernel
    assert (found.name, found.native) == (kernel, native)


def test_fp8_without_deepgemm_costs_a_small_batch_on_hopper_what_bf16_costs() -> None:
    """BF16 without drafting and FP8 without drafting ran alike on an H200 (own, 2026)."""
    fp8 = features("H200", quant="fp8", deep_gemm=False)
    bf16 = features("H200", quant="bf16")
    assert rate(fp8) == pytest.approx(rate(bf16), rel=0.12)
    assert rate(features("H200", quant="fp8", deep_gemm=True)) > 1.3 * rate(bf16)


def test_an_unknown_kernel_is_counted_as_either() -> None:
    """Whether block FP8 runs by DeepGEMM on Hopper is not on record for every image."""
    fit = transfer_fit()
    with_it, without, unknown = (
        fit.predict(features("H200", quant="fp8", deep_gemm=known)) for known in (True, False, None)
    )
    assert without.value < unknown.value < with_it.value
    assert unknown.half_width > max(with_it.half_width, without.half_width)
    assert unknown.low < without.value
    assert unknown.high > with_it.value
    other = features("RTX PRO 6000", quant="fp8")
    assert fit.predict(replace(other, deep_gemm=None)) == fit.predict(other)


def test_weights_quantised_alone_multiply_in_sixteen_bits() -> None:
    full, alone = (features("B200", quant="nvfp4", weight_only=only) for only in (False, True))
    assert (full.kernel.name, alone.kernel.name) == ("fp4", "marlin")
    assert rate(replace(alone, concurrency=64)) < rate(replace(full, concurrency=64))


def test_what_a_four_bit_checkpoint_keeps_wide_it_multiplies_wide() -> None:
    small, large = (
        features("GB10", quant="nvfp4", weights_bytes=size).kernel.tflops for size in (16.2e9, 24e9)
    )
    assert small == pytest.approx(gpu_rate("GB10"), rel=0.02)
    assert large < 0.7 * small


def gpu_rate(name: str) -> float:
    model = gpus().find(name)
    assert model is not None and model.fp4_tflops is not None
    return model.fp4_tflops


def test_a_strange_host_matters_less_the_more_streams_it_serves() -> None:
    """A host's launches are half of a step at one stream and a tenth of it at many."""
    base = features("RTX PRO 6000", quant="fp8", tp=2, link="pcie-p2p", spec_method="mtp",
                    spec_tokens=3, content="study")  # fmt: skip
    one, many = (transfer_fit().predict(replace(base, concurrency=c)) for c in (1, 32))
    assert one.half_width > 1.1 * many.half_width


@pytest.mark.parametrize(
    ("quant", "bits"),
    [
        pytest.param("q8_0", 8.5, id="by the format"),
        pytest.param("gguf-q8_0", 8.5, id="with the container's name"),
        pytest.param("gguf-iqk-5.076bpw", 5.076, id="stated in the name"),
        pytest.param("gguf-ud-q4_k_xl", 5.0, id="a publisher's prefix"),
        pytest.param("gguf-i1-iq4_xs", 4.6, id="by its digit"),
        pytest.param("gguf-bf16", 16.0, id="16 bits in the container"),
        pytest.param("bf16", None, id="no container"),
        pytest.param("fp8", None, id="not of llama.cpp"),
        pytest.param("nvfp4", None, id="another format with a digit"),
    ],
)
def test_bits_of_a_format_are_in_its_name(quant: str, bits: float | None) -> None:
    assert gguf_bits(quant) == bits


@pytest.mark.parametrize(
    ("quant", "gib"),
    [
        pytest.param("gguf-q4_k_l", 15.94, id="q4_k_l"),
        pytest.param("gguf-q3_k_m", 12.86, id="q3_k_m"),
        pytest.param("gguf-iq5_ks", 17.57, id="iq5_ks"),
    ],
)
def test_bytes_read_are_near_the_published_loaded_size(quant: str, gib: float) -> None:
    assert weights_read(quant) / 2**30 == pytest.approx(gib, rel=0.12)


def test_an_unknown_quant_is_read_as_sixteen_bits() -> None:
    assert weights_read("some-new-format") == weights_read("bf16")
    assert kernel_for("some-new-format", 8.6, 71.0, None, None).native is False


def test_the_state_of_a_sequence_is_the_published_shape() -> None:
    """48 layers of 3 MiB recurrent state and 20 KiB a convolution column, over all ranks."""
    assert state_bytes(0) == 48 * (3 * 2**20 + 3 * 20 * 2**10)
    assert state_bytes(3) - state_bytes(0) == 48 * 3 * 20 * 2**10


@pytest.mark.parametrize("name", ["RTX 5060 Ti 16GB", "RTX 5080", "RTX 4060 Ti 16GB", "L4", "H200"])
@pytest.mark.parametrize("quant", ["bf16", "fp8", "int4-autoround"])
def test_no_rate_is_above_what_memory_allows(name: str, quant: str) -> None:
    bandwidth = features(name, quant=quant).bandwidth_gbps * 1e9
    for concurrency in (1, 4, 16):
        for context in (0.0, 65536.0):
            point = features(name, quant=quant, concurrency=concurrency, context=context)
            answer = transfer_fit().predict(point)
            read = weights_read(quant) + concurrency * context * KV_BYTES_PER_TOKEN
            assert answer.value <= answer.high <= concurrency * bandwidth / read * 1.001


def test_evidence_decides_the_kind_and_the_width() -> None:
    fit = transfer_fit()
    measured = features("RTX PRO 6000", quant="fp8", tp=2, link="pcie-p2p")
    here = fit.predict(measured)
    # as fast, so that the host's part, which nobody knows of either, weighs the same
    unmeasured = features("RTX PRO 4500 Blackwell", quant="fp8", tp=2, link="pcie-p2p")
    sister = fit.predict(replace(unmeasured, bandwidth_gbps=measured.bandwidth_gbps))
    nobody = fit.predict(features("A100 80GB SXM", quant="bf16", tp=2, link="nvlink"))
    assert (here.kind, sister.kind) == (Kind.TRANSFERRED, Kind.TRANSFERRED)
    assert nobody.kind is Kind.ESTIMATED
    # downwards: upwards memory bounds what a slow card may be said to reach
    reaches = [estimate.value / estimate.low for estimate in (here, sister, nobody)]
    assert reaches == sorted(reaches)
    assert reaches[0] < reaches[2]


def test_sisters_are_cards_of_one_generation() -> None:
    assert generation(8.0) != generation(8.6)
    assert generation(12.0) != generation(12.1) != generation(10.0)
    assert generation(10.0) == generation(10.3)
    assert generation(None) is None


def test_a_fit_survives_being_stored() -> None:
    fit = transfer_fit()
    again = TransferFit.from_mapping(fit.to_mapping())
    point = features("RTX 5090", quant="fp8", spec_method="mtp", spec_tokens=3, concurrency=8)
    assert again.predict(point).value == pytest.approx(fit.predict(point).value, rel=1e-4)
    assert again.predict(point).high == pytest.approx(fit.predict(point).high, rel=1e-2)


def test_many_points_are_predicted_like_each_alone() -> None:
    grid = [
        features("RTX 3090", quant="int4-autoround", tp=tp, concurrency=c, context=float(x))
        for tp in (1, 2)
        for c in (1, 8, 64)
        for x in (0, 65536)
    ]
    together = transfer_fit().predict_many(grid)
    assert [e.value for e in together] == pytest.approx([rate(p) for p in grid])


def test_the_parts_of_a_step_add_up_to_it() -> None:
    point = features(
        "RTX PRO 6000", quant="fp8", tp=2, link="pcie-p2p", spec_method="mtp", spec_tokens=3,
        concurrency=32, context=32768.0, content="study",
    )  # fmt: skip
    parts = transfer_fit().step_terms(point)
    step_ms = sum(parts.values())
    names = {"matrix", "attention", "state", "drafter", "draft", "host", "reduce"}
    assert set(parts) == names
    gained = transfer_fit().predict(point).value * step_ms / 1000 / 32
    assert gained == pytest.approx(point.accepted, rel=0.12)


@pytest.mark.parametrize(
    "wrong",
    [{"bandwidth_gbps": 0.0}, {"tp": 0}, {"concurrency": 0}, {"context": -1.0}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_impossible_points_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        features("H200", quant="bf16", **wrong)


def test_a_draft_method_without_evidence_has_no_rate() -> None:
    with pytest.raises(ValueError, match="ngram"):
        features("H200", quant="bf16", spec_method="ngram", spec_tokens=3)
    stated = {"spec_method": "ngram", "spec_tokens": 3, "acceptance_length": 2.0}
    assert rate(features("H200", quant="bf16", **stated)) > 0


def test_predictions_are_finite_at_the_corners() -> None:
    corner = features("B200", quant="nvfp4", tp=8, link="nvlink", concurrency=4096, context=1e6)
    estimate = transfer_fit().predict(corner)
    assert np.isfinite([estimate.low, estimate.value, estimate.high]).all()
