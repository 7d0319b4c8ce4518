"""Cold and warm times to the first token, stalls, and throughput with the prompts counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwendeploy.evaluation.latency import latency_accuracy, prefill_errors
from qwendeploy.evidence.prefill_rows import (
    all_prefills,
    cold_start,
    loop_rows,
    prefill_fit,
    prefill_points,
    warm_cells,
    warm_fit,
)
from qwendeploy.evidence.transfer_rows import card_features, link_of
from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.latency import (
    closed_loop,
    cold_ttft_ms,
    fit_warm,
    stall_ms,
    tpot_ms,
    warm_ttft_ms,
)
from qwendeploy.models.prefill import PrefillFit, PrefillPoint
from qwendeploy.models.step import Features
from qwendeploy.tables.decode import decode_rows
from qwendeploy.tables.gpus import gpus
from qwendeploy.tables.prefill import prefill_rows

stable = settings(max_examples=60, deadline=None, derandomize=True)


def features(name: str, quant: str, tp: int = 1, **stated: object) -> Features:
    card = gpus().find(name)
    assert card is not None
    facts = card_features(card)
    assert facts is not None
    link = link_of(card, None)
    return Features(**facts, quant=quant, tp=tp, link=link, **stated)  # type: ignore[arg-type]


def prefill(name: str, quant: str, tokens: int, tp: int = 1, batched: int = 32768) -> Estimate:
    return prefill_fit().predict(PrefillPoint(features(name, quant, tp), tokens, batched))


def flat(value: float, reach: float = 0.1, kind: Kind = Kind.MEASURED) -> Estimate:
    return Estimate(value, value * (1 - reach), value * (1 + reach), kind, n=3)


@pytest.mark.parametrize(
    ("tp", "quant", "tokens", "ttft_s"),
    [
        pytest.param(2, "bf16", 32292, 4.29, id="two cards BF16 32k"),
        pytest.param(2, "fp8", 8193, 0.86, id="two cards FP8 8k"),
        pytest.param(2, "fp8", 128703, 19.3, id="two cards FP8 128k"),
        pytest.param(1, "fp8", 32298, 5.17, id="one card FP8 32k"),
        pytest.param(1, "bf16", 128683, 33.3, id="one card BF16 128k"),
    ],
)
def test_cold_prefills_of_the_study_come_out(
    tp: int, quant: str, tokens: int, ttft_s: float
) -> None:
    found = prefill("RTX PRO 6000", quant, tokens, tp)
    assert found.kind is Kind.INTERPOLATED
    assert found.value / 1000 == pytest.approx(ttft_s, rel=0.08)
    assert found.low < ttft_s * 1000 < found.high


def test_between_and_beyond_the_measured_lengths_the_kind_says_so() -> None:
    inside, beyond = (prefill("RTX PRO 6000", "fp8", n, 2) for n in (48000, 240000))
    assert (inside.kind, beyond.kind) == (Kind.INTERPOLATED, Kind.EXTRAPOLATED)
    assert beyond.half_width > inside.half_width
    assert beyond.value > 240000 / 128703 * prefill("RTX PRO 6000", "fp8", 128703, 2).value


@pytest.mark.parametrize(
    ("name", "quant", "tp", "tokens", "low_ms", "high_ms"),
    [
        # launches of one uncaptured chunk: what own H200 runs of 1,030 and 3,335 tokens waited for
        pytest.param("H200", "fp8", 1, 1030, 160, 210, id="short prompt on a fast card"),
        pytest.param("H200", "fp8", 1, 3335, 190, 250, id="3k on a fast card"),
        pytest.param("H100 SXM", "fp8", 1, 256, 90, 220, id="no prompt is free"),
        # 8 GB from card to card at 20 to 27 GB/s beside 0.1 to 0.3 s of arithmetic
        pytest.param("RTX PRO 6000", "fp8", 4, 4096, 300, 1100, id="four by peer access"),
        pytest.param("RTX PRO 6000", "fp8", 8, 4096, 300, 1100, id="eight of them"),
        pytest.param("H100 SXM", "fp8", 8, 32768, 600, 1600, id="eight on NVLink"),
        # every rank's traffic through the host, as four RTX 3090 show
        pytest.param("RTX 3090", "int4-autoround", 4, 10000, 5500, 10000, id="four by host"),
    ],
)
def test_times_to_the_first_token_are_those_of_the_machine(
    name: str, quant: str, tp: int, tokens: int, low_ms: float, high_ms: float
) -> None:
    point = PrefillPoint(features(name, quant, tp, deep_gemm=None), tokens, 8192)
    assert low_ms < prefill_fit().predict(point).value < high_ms


def test_cards_that_reach_each_other_prefill_no_slower_together() -> None:
    for name in ("RTX PRO 6000", "L40S", "H100 SXM", "A100 80GB PCIe"):
        times = [prefill(name, "fp8", 32768, tp, 8192).value for tp in (1, 2, 4)]
        assert times == sorted(times, reverse=True), name


def test_a_card_with_sisters_is_transferred_and_one_without_estimated() -> None:
    sister, alone = prefill("RTX PRO 4500 Blackwell", "fp8", 8192), prefill("L40S", "fp8", 8192)
    assert sister.kind is Kind.TRANSFERRED
    assert alone.kind is Kind.ESTIMATED
    assert alone.half_width > sister.half_width


def test_first_tokens_beside_decode_rows_are_prefills_too() -> None:
    """One request at a time with a stated prompt and no cache waits for its own prefill."""
    beside = [cold_start(row) for row in decode_rows()]
    found = {(p.features.gpu, p.features.tp, int(p.tokens)): ms for p, ms in filter(None, beside)}
    assert found["GB10", 1, 8192] == 3640
    alone = prefill("GB10", "nvfp4", 8192)
    assert alone.low < 3640 < alone.high
    assert all(p.features.rig for p, _ in filter(None, beside))


def test_a_closed_loops_decode_part_is_faster_than_the_loop() -> None:
    parts = loop_rows(decode_rows())
    assert parts
    for part in parts:
        assert part.derived
        assert part.observation.doubt > 0.1
        assert part.observation.rate > (part.row.aggregate_tps or 0)


@stable
@given(
    st.sampled_from(["RTX 3090", "RTX PRO 6000", "H200", "GB10", "L40S"]),
    st.sampled_from(["bf16", "fp8", "int4-autoround"]),
    st.sampled_from([1, 2, 4]),
    st.integers(16, 200000),
    st.integers(1, 60000),
)
def test_longer_prompts_take_longer_and_bands_hold(
    name: str, quant: str, tp: int, tokens: int, more: int
) -> None:
    fit = prefill_fit()
    physics = PrefillFit(fit.names, fit.theta, fit.covariance, {}, fit.measured, fit.scale)
    point = PrefillPoint(features(name, quant, tp), tokens, 8192)
    short, long = physics.predict(point), physics.predict(replace(point, tokens=tokens + more))
    assert 0 < short.low < short.value < short.high
    assert long.value > short.value


def test_a_prompt_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="0"):
        prefill("H200", "bf16", 0)


def test_held_out_prefills_and_loops_stay_under_their_ceilings() -> None:
    lines = {(line.quantity, line.way): line for line in latency_accuracy()}
    assert lines["cold prefill", "machine"].median <= 0.12
    assert lines["cold prefill", "layout"].median <= 0.16
    assert lines["cold prefill", "session"].median <= 0.06
    assert all(line.coverage >= 0.85 for key, line in lines.items() if key[0] == "cold prefill")
    assert lines["closed-loop throughput", "machine"].median <= 0.25


def test_every_held_out_prefill_was_predicted_without_its_machine() -> None:
    assert all(j.estimate.kind is not Kind.INTERPOLATED for j in prefill_errors("machine"))
    assert len(prefill_errors("machine")) == len(all_prefills())
    assert len(all_prefills()) > len(prefill_points(prefill_rows()))


def test_a_stored_prefill_fit_predicts_the_same() -> None:
    again = PrefillFit.from_mapping(prefill_fit().to_mapping())
    point = PrefillPoint(features("RTX PRO 6000", "fp8", 2), 20000, 32768)
    assert again.predict(point).value == pytest.approx(prefill_fit().predict(point).value, rel=1e-3)


def test_one_large_chunk_stalls_a_small_card_for_half_a_minute() -> None:
    """GB10 with 32,768 batched tokens: p99 gap 28 s (community compose file)."""
    long = stall_ms(lambda n: prefill("GB10", "nvfp4", n), 65536, 32768)
    small = stall_ms(lambda n: prefill("GB10", "nvfp4", n, batched=2048), 65536, 2048)
    assert long.low < 28000 < long.high
    assert small.value < 0.1 * long.value


def test_a_prompt_within_one_chunk_stalls_as_long_as_it_prefills() -> None:
    whole = prefill("H200", "bf16", 4000)
    assert stall_ms(lambda n: prefill("H200", "bf16", n), 4000, 8192) == whole


@pytest.mark.parametrize(
    ("concurrency", "cached", "measured_ms"),
    [
        pytest.param(1, 131072, 770, id="one stream, 128k"),
        pytest.param(8, 32768, 890, id="eight streams, 32k"),
        pytest.param(32, 32768, 3579, id="32 streams, 32k"),
        pytest.param(16, 0, 188, id="16 streams, nothing cached"),
        pytest.param(128, 0, 1214, id="128 streams, nothing cached"),
    ],
)
def test_warm_cells_of_the_study_lie_in_their_band(
    concurrency: int, cached: int, measured_ms: float
) -> None:
    found = warm_ttft_ms(warm_fit(), concurrency, cached, same_card=True)
    assert found.low < measured_ms < found.high
    assert warm_ttft_ms(warm_fit(), concurrency, cached, same_card=False).high > found.high


def test_warm_is_faster_than_cold_at_depth() -> None:
    warm = warm_ttft_ms(warm_fit(), 1, 131072, same_card=True)
    assert warm.high < prefill("RTX PRO 6000", "fp8", 131072, 2).low / 5


def test_nine_in_ten_warm_cells_are_covered() -> None:
    inside = [
        found.low <= ttft <= found.high
        for c, x, ttft in warm_cells(decode_rows())
        for found in (warm_ttft_ms(warm_fit(), c, x, same_card=True),)
    ]
    assert 0.85 <= np.mean(inside) <= 0.95


def test_the_warm_fit_recovers_what_made_the_cells() -> None:
    cells = [
        (float(c), float(x), 60 + (c + 1) / 2 * (12 + 0.006 * x))
        for c in (1, 2, 4, 8, 32)
        for x in (0, 16384, 131072)
    ]
    fit = fit_warm(cells)
    assert fit.base_ms == pytest.approx(60, rel=0.03)
    assert fit.request_ms == pytest.approx(12, rel=0.03)
    assert fit.token_ms == pytest.approx(0.006, rel=0.01)
    with pytest.raises(ValueError, match="four"):
        fit_warm(cells[:3])


def test_prompts_that_arrive_together_wait_in_turn() -> None:
    one = flat(1000.0)
    four = cold_ttft_ms(one, 4)
    assert (four.value, four.low, four.high) == (2500.0, one.low, 4 * one.high)
    assert cold_ttft_ms(one) == one
    with pytest.raises(ValueError, match="one request"):
        cold_ttft_ms(one, 0)


def test_tpot_is_streams_over_aggregate_with_the_ends_swapped() -> None:
    found = tpot_ms(Estimate(2000.0, 1800.0, 2200.0, Kind.MEASURED), 32)
    assert found.value == pytest.approx(16.0)
    assert found.low == pytest.approx(32000 / 2200)
    assert found.high == pytest.approx(32000 / 1800)


def test_with_free_prompts_the_loop_is_the_decode_rate() -> None:
    loop = closed_loop(flat(1300.0), flat(0.001), concurrency=32, output_tokens=512)
    assert loop.output_tps.value == pytest.approx(1300, rel=0.001)
    assert loop.prefill_share < 0.001
    assert loop.tpot_ms == pytest.approx(1000 * 32 / 1300, rel=0.001)


def test_with_long_prompts_the_engine_mostly_prefills() -> None:
    loop = closed_loop(flat(1300.0), flat(5000.0), concurrency=32, output_tokens=64)
    assert loop.prefill_share > 0.9
    assert loop.output_tps.value < 64 / 5.0
    assert loop.ttft_ms > 5 * 5000


def test_one_user_prefills_then_decodes() -> None:
    loop = closed_loop(flat(50.0), flat(2000.0), concurrency=1, output_tokens=500)
    assert loop.output_tps.value == pytest.approx(500 / (2 + 10))
    assert loop.tpot_ms == pytest.approx(20)
    assert loop.ttft_ms == pytest.approx(2000)


@stable
@given(
    st.floats(1, 20000),
    st.floats(1.05, 4),
    st.integers(1, 128),
    st.integers(16, 4096),
    st.floats(1, 16),
)
def test_longer_prompts_never_raise_throughput(
    milliseconds: float, factor: float, users: int, answer: int, per_stream: float
) -> None:
    rate = flat(per_stream * users)
    short, long = (
        closed_loop(rate, flat(ms), concurrency=users, output_tokens=answer)
        for ms in (milliseconds, milliseconds * factor)
    )
    assert long.output_tps.value < short.output_tps.value
    for loop in (short, long):
        assert loop.output_tps.low < loop.output_tps.value < loop.output_tps.high
        assert loop.output_tps.value <= rate.value
        assert 0 <= loop.prefill_share <= 1
        assert 0 <= loop.decoding <= users


def test_a_wide_part_counts_by_its_share_of_the_engine() -> None:
    vague = Estimate(1000.0, 400.0, 2500.0, Kind.TRANSFERRED)
    mostly_decode, mostly_prefill = (
        closed_loop(flat(100.0), vague, concurrency=1, output_tokens=answer)
        for answer in (5000, 20)
    )
    assert mostly_decode.output_tps.half_width < mostly_prefill.output_tps.half_width


def test_the_loop_is_no_better_evidence_than_its_parts() -> None:
    guess = flat(100.0, kind=Kind.ESTIMATED)
    loop = closed_loop(flat(900.0), guess, concurrency=8, output_tokens=512)
    assert loop.output_tps.kind is Kind.ESTIMATED
    loop = closed_loop(flat(900.0), flat(100.0), concurrency=8, output_tokens=512)
    assert loop.output_tps.kind is Kind.INTERPOLATED


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"output_tokens": 0}], ids=str)
def test_impossible_loops_are_refused(wrong: dict[str, int]) -> None:
    stated = {"concurrency": 1, "output_tokens": 1, **wrong}
    with pytest.raises(ValueError, match="positive"):
        closed_loop(flat(100.0), flat(1.0), **stated)
