"""Separate contexts: never faster than shared, nor than the memory bandwidth allows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwendeploy.evidence.speed_fit import series_fit
from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.separate import (
    KvRead,
    beyond_capture,
    fp8_shared_rate,
    replicas_rate,
    separate_rate,
)
from qwendeploy.tables.series import all_series

KV = 65536
"""Bytes of keys and values of a token: 16 layers, 2, 4 heads, 256, 2 bytes."""
PRO_6000 = 1792.0
ACCEPTED = 2.73


def rate(value: float, reach: float = 0.03, kind: Kind = Kind.MEASURED) -> Estimate:
    return Estimate(value, value * math.exp(-reach), value * math.exp(reach), kind, 3, "a series")


@given(
    concurrency=st.integers(1, 256),
    context=st.integers(0, 262144),
    empty=st.floats(5, 5000),
    slowdown=st.floats(1, 4),
    bandwidth=st.floats(100, 8000),
    tp=st.sampled_from([1, 2, 4]),
    reads=st.floats(0, 0.4),
    fp8=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_no_faster_than_shared_nor_than_the_bandwidth(
    concurrency: int,
    context: int,
    empty: float,
    slowdown: float,
    bandwidth: float,
    tp: int,
    reads: float,
    fp8: bool,
) -> None:
    shared, bare = rate(empty / slowdown), rate(empty)
    read = KvRead(KV / 2 if fp8 else KV, bandwidth, tp, reads, fp8)
    result = separate_rate(
        shared, bare, concurrency=concurrency, context=context,
        acceptance_length=ACCEPTED, read=read,
    )  # fmt: skip
    assert result.low <= shared.low
    assert result.value <= shared.value * (1 + 1e-12)
    assert result.high <= shared.high * (1 + 1e-12)
    bound = read.bound_seconds(concurrency, context)
    if bound > 0:
        assert result.value <= concurrency * ACCEPTED / bound * (1 + 1e-9)
    faster = KvRead(read.bytes_per_token, 2 * bandwidth, tp, reads, fp8)
    again = separate_rate(
        shared, bare, concurrency=concurrency, context=context,
        acceptance_length=ACCEPTED, read=faster,
    )  # fmt: skip
    assert again.value >= result.value * (1 - 1e-12)


@pytest.mark.parametrize(
    ("concurrency", "shared", "measured"),
    [
        pytest.param(8, 408.88, 388.92, id="8 x 32k"),
        pytest.param(16, 689.69, 633.74, id="16 x 32k"),
    ],
)
def test_the_h200_pairs_come_out_within_two_per_cent(
    concurrency: int, shared: float, measured: float
) -> None:
    """Own H200 measurement 2026: BF16 without draft, one shared and separate contexts."""
    empty = {8: 486.27, 16: 929.32}[concurrency]
    result = separate_rate(
        rate(shared), rate(empty), concurrency=concurrency, context=32832,
        acceptance_length=1.0, read=KvRead(KV, 4800),
    )  # fmt: skip
    assert result.value == pytest.approx(measured, rel=0.02)
    assert result.low <= measured <= result.high


def test_the_showcase_loses_what_its_separate_contexts_read() -> None:
    """32 × 32k on two RTX PRO 6000, FP8+MTP3: 1,573 to 1,669 shared, 1,340 to 1,390 separate."""
    judged = 0
    for series in all_series():
        key = series.key
        if (key.quant, key.spec_method, key.spec_tokens, key.tp) != ("fp8", "mtp", 3, 2):
            continue
        if not key.gpu.startswith("RTX PRO 6000") or len(series.cells) < 18 or not series.fork:
            continue
        fit = series_fit(series)
        shared, empty = fit.predict(32, 32768), fit.predict(32, 0)
        result = separate_rate(
            shared, empty, concurrency=32, context=32768, acceptance_length=ACCEPTED,
            read=KvRead(KV, PRO_6000, 2, 3 / 16),
        )  # fmt: skip
        assert 1540 <= shared.value <= 1690
        assert 1340 <= result.value <= 1390
        assert result.kind is Kind.TRANSFERRED
        judged += 1
    assert judged == 3


def test_no_context_costs_nothing() -> None:
    shared = rate(100)
    assert shared is separate_rate(
        shared, rate(100), concurrency=4, context=0, acceptance_length=1.0, read=KvRead(KV, 1000)
    )


@pytest.mark.parametrize(
    "settings_of",
    [
        pytest.param({"bytes_per_token": 0.0, "bandwidth_gbps": 1000.0}, id="no bytes"),
        pytest.param({"bytes_per_token": KV, "bandwidth_gbps": -1.0}, id="negative bandwidth"),
        pytest.param(
            {"bytes_per_token": KV, "bandwidth_gbps": 1.0, "draft_reads": -0.1}, id="negative reads"
        ),
    ],
)
def test_impossible_reads_are_refused(settings_of: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be positive|cannot be negative"):
        KvRead(**settings_of)  # type: ignore[arg-type]


def test_an_acceptance_length_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        separate_rate(
            rate(10), rate(20), concurrency=1, context=10, acceptance_length=0.0,
            read=KvRead(KV, 1000),
        )  # fmt: skip


def test_fp8_cache_never_claims_to_be_measured_and_is_wider() -> None:
    bf16, fp8 = KvRead(KV, PRO_6000, 2), KvRead(KV / 2, PRO_6000, 2, fp8=True)
    common = {"concurrency": 24, "context": 131072, "acceptance_length": ACCEPTED}
    plain = separate_rate(rate(1200), rate(2000), read=bf16, **common)
    half = separate_rate(rate(1200), rate(2000), read=fp8, **common)
    assert half.value > plain.value
    assert half.half_width > plain.half_width
    assert half.kind is Kind.ESTIMATED
    assert fp8_shared_rate(rate(1200)).kind is Kind.ESTIMATED
    assert fp8_shared_rate(rate(1200)).low < rate(1200).low


@pytest.mark.parametrize(
    ("value", "concurrency", "capture", "low", "high"),
    [
        pytest.param(5368, 64, 256, 5368, 5368, id="64 streams stay captured"),
        pytest.param(8000, 128, 256, 3400, 3900, id="two GPUs fall to the launch floor"),
        pytest.param(4464, 128, 512, 4464, 4464, id="a larger capture size keeps the rate"),
        pytest.param(3900, 128, None, 3900, 3900, id="unknown capture size changes nothing"),
        pytest.param(2000, 128, 256, 2000, 2000, id="a slow GPU hides the launches"),
    ],
)
def test_steps_beyond_the_captured_graphs_meet_the_launch_floor(
    value: float, concurrency: int, capture: int | None, low: float, high: float
) -> None:
    result = beyond_capture(
        rate(value), concurrency=concurrency, spec_tokens=3, capture_size=capture,
        acceptance_length=ACCEPTED,
    )  # fmt: skip
    assert low <= result.value <= high
    if low < value:
        assert result.low <= 3508 <= result.high
        assert result.kind is Kind.TRANSFERRED


def test_replicas_add_up_and_lose_at_most_routing() -> None:
    together = replicas_rate([rate(100), rate(110)])
    assert together.value == pytest.approx(210)
    assert together.low == pytest.approx((rate(100).low + rate(110).low) * 0.95)
    assert together.high == pytest.approx(rate(100).high + rate(110).high)
    assert together.kind is Kind.MEASURED
    assert replicas_rate([rate(7)]) == rate(7)
    with pytest.raises(ValueError, match="no replica"):
        replicas_rate([])
