"""Block counts, sizes and concurrency are those that servers logged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwendeploy.errors import UserError
from qwendeploy.figures import Kind
from qwendeploy.models.kv_layout import KvLayout, kv_layout
from qwendeploy.models.memory import (
    Limit,
    blocks_from_bytes,
    blocks_from_logged_gib,
    blocks_from_tokens,
    blocks_held,
    blocks_reserved,
    full_length_requests,
    largest_max_model_len,
    longest_context_for,
    pool_tokens,
    running_at,
    starts,
)
from qwendeploy.units import GIB


def layout(
    tp: int, method: str = "none", tokens: int = 0, kv: str = "bf16", caching: bool = True
) -> KvLayout:
    return kv_layout(
        tp=tp,
        spec_method=method,
        spec_tokens=tokens,
        kv_cache_dtype=kv,
        prefix_cache=caching,
        engine_version="0.20.1",
    )


@pytest.mark.parametrize(
    ("tokens", "kv", "block"),
    [
        (0, "bf16", 784),
        (1, "bf16", 800),
        (3, "bf16", 800),
        (8, "bf16", 832),
        (0, "fp8", 1568),
        (1, "fp8", 1584),
        (3, "fp8", 1600),
        (8, "fp8", 1648),
    ],
)
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_block_size_follows_draft_length_and_kv_type_not_tp(
    tp: int, tokens: int, kv: str, block: int
) -> None:
    method = "mtp" if tokens else "none"
    assert layout(tp, method, tokens, kv).block_tokens == block


POOLS = [
    pytest.param(layout(2, "mtp", 3), 2416, 262144, 1_846_472, id="fp8-mtp3-tp2-85"),
    pytest.param(layout(2, "mtp", 3), 2240, 262144, 1_711_960, id="fp8-mtp3-tp2-80"),
    pytest.param(layout(1, "mtp", 3), 813, 262144, 621_350, id="fp8-mtp3-tp1-80"),
    pytest.param(layout(2, "dflash", 8), 5474, 262144, 854_152, id="bf16-dflash8-tp2-80"),
    pytest.param(layout(2, "dflash", 8), 6078, 262144, 948_399, id="bf16-dflash8-tp2-85"),
    pytest.param(layout(2, "dflash", 8), 5942, 262144, 927_178, id="upstream-dflash8-tp2"),
    pytest.param(layout(1, "dflash", 8), 914, 131072, 134_606, id="bf16-dflash8-tp1-80"),
    pytest.param(layout(1, "dflash", 8), 1637, 253952, 255_042, id="bf16-dflash8-tp1-92"),
    pytest.param(layout(1), 1387, 262144, 1_066_257, id="h200-bf16"),
    pytest.param(layout(1, "mtp", 3), 1714, 262144, 1_309_955, id="h200-fp8-mtp3"),
    pytest.param(layout(1, "mtp", 3), 1701, 262144, 1_300_020, id="h200-capture512"),
    pytest.param(layout(1), 1396, 262144, 1_073_176, id="h200-capture32"),
    pytest.param(layout(1, "mtp", 3, "bf16", False), 1767, 32768, 1_092_472, id="h200-uncached"),
    pytest.param(layout(2, "mtp", 2), 2416, 262144, 1_862_764, id="07C-mtp2"),
    pytest.param(layout(2, "mtp", 4), 2367, 262144, 1_824_984, id="07C-mtp4"),
    pytest.param(layout(2, "mtp", 5), 2368, 262144, 1_809_787, id="07C-mtp5"),
    pytest.param(layout(2, "mtp", 6), 2368, 262144, 1_794_095, id="07C-mtp6"),
    pytest.param(layout(2, "mtp", 3), 2414, 262144, 1_844_943, id="stress-A"),
    pytest.param(layout(2, "mtp", 5), 2367, 262144, 1_809_022, id="stress-B"),
    pytest.param(layout(2, "dflash", 7), 6079, 262144, 954_235, id="stress-C"),
    pytest.param(layout(2, "dflash", 8), 6079, 262144, 948_555, id="stress-D"),
    pytest.param(layout(2, "dflash", 15), 5853, 262144, 907_886, id="stress-E"),
    pytest.param(layout(2, "dflash", 7), 7510, 262144, 1_178_863, id="stress-F"),
    pytest.param(layout(2, "dflash", 8), 7510, 262144, 1_171_846, id="stress-G"),
    pytest.param(layout(2, "dflash", 15), 7232, 262144, 1_121_790, id="stress-H"),
    pytest.param(layout(2, "mtp", 3), 2392, 262144, 1_828_129, id="04-upstream"),
    pytest.param(layout(2, "dflash", 8), 6428, 262144, 1_003_012, id="09-A"),
    pytest.param(layout(2, "mtp", 3, "fp8", False), 2866, 262144, 4_268_776, id="nvfp4-upstream"),
    pytest.param(layout(2, "mtp", 3, "fp8", False), 2856, 262144, 4_253_882, id="nvfp4-fork"),
]


@pytest.mark.parametrize(("form", "blocks", "length", "tokens"), POOLS)
def test_logged_size_is_the_block_count_and_back(
    form: KvLayout, blocks: int, length: int, tokens: int
) -> None:
    assert pool_tokens(form, blocks, length)[0] == tokens
    assert blocks_from_tokens(form, tokens, length) == blocks


def test_a_size_that_no_whole_block_count_gives_is_refused() -> None:
    assert blocks_from_tokens(layout(2, "mtp", 3, "fp8"), 1_711_960, 262144) is None


@pytest.mark.parametrize(
    ("form", "gib", "blocks"),
    [
        (layout(1), 66.41, 1387),
        (layout(1, "mtp", 3), 88.96, 1714),
        (layout(1, "mtp", 3), 88.29, 1701),
        (layout(1), 66.80, 1396),
        (layout(2, "mtp", 3), 62.64, 2414),
    ],
)
def test_logged_bytes_give_the_blocks_within_one(form: KvLayout, gib: float, blocks: int) -> None:
    estimate = blocks_from_logged_gib(form, gib)
    assert abs(estimate.value - blocks) <= 1
    assert estimate.low <= estimate.value <= estimate.high


def test_the_forks_v3_holds_the_sliding_window_of_the_drafter() -> None:
    form = kv_layout(
        tp=2,
        spec_method="dflash",
        spec_tokens=8,
        prefix_cache=True,
        sliding_drafter=True,
        max_num_batched_tokens=32768,
        fork=True,
    )
    assert blocks_reserved(form, 262144) == 4 * 316 + 43 + 10 * 10 == 1407
    assert pool_tokens(form, 6064, 262144)[0] == 1_129_808
    assert pool_tokens(form, 7506, 262144)[0] == 1_398_473


@pytest.mark.parametrize(
    ("form", "context", "crossing", "held"),
    [
        (layout(2, "mtp", 3), 1, False, 13),
        (layout(2, "mtp", 3), 801, False, 14),
        (layout(2, "mtp", 3), 801, True, 17),
        (layout(1), 1, False, 4),
        (layout(2, "dflash", 8), 1, False, 95),
        (layout(2, "dflash", 8), 833, False, 100),
        (layout(1), 32832, False, 45),
        (layout(1), 32832, True, 48),
        (layout(1, "mtp", 3, "bf16", False), 2174, False, 15),
        (layout(1, "mtp", 3, "bf16", False), 3005, False, 16),
        (layout(1, "mtp", 3, "bf16", False), 5013, False, 19),
    ],
)
def test_a_running_request_holds_what_servers_reported(
    form: KvLayout, context: int, crossing: bool, held: int
) -> None:
    assert blocks_held(form, context, crossing) == held


@pytest.mark.parametrize(
    ("form", "reserved"),
    [
        (layout(2, "mtp", 3), 343),
        (layout(2, "mtp", 3, "bf16", False), 340),
        (layout(2, "mtp", 3, "fp8"), 179),
        (layout(2, "mtp", 3, "fp8", False), 176),
        (layout(1), 341),
        (layout(2, "dflash", 8), 1680),
        (layout(8, "mtp", 3), 671),
    ],
)
def test_a_full_length_request_reserves(form: KvLayout, reserved: int) -> None:
    assert blocks_reserved(form, 262144) == reserved


def test_a_state_cache_of_16_bits_halves_the_block() -> None:
    form = kv_layout(
        tp=2, spec_method="mtp", spec_tokens=3, prefix_cache=True, state_dtype="float16"
    )
    full = layout(2, "mtp", 3)
    assert (form.block_tokens, blocks_reserved(form, 262144)) == (416, 646)
    assert form.bytes_per_block / full.bytes_per_block == pytest.approx(416 / 800)


SHOWCASE = [
    (2240, "bf16", 6, 45_600, 43_200),
    (2416, "bf16", 7, 50_400, 48_000),
    (2532, "bf16", 7, 53_600, 51_200),
    (2240, "fp8", 12, 91_200, 86_400),
    (2416, "fp8", 13, 100_800, 96_000),
    (2532, "fp8", 14, 107_200, 102_400),
]


@pytest.mark.parametrize(("blocks", "kv", "full", "off", "on"), SHOWCASE)
def test_two_cards_at_256k_and_32_requests(
    blocks: int, kv: str, full: int, off: int, on: int
) -> None:
    for caching, context in ((False, off), (True, on)):
        form = layout(2, "mtp", 3, kv, caching)
        assert full_length_requests(form, blocks, 262144) == full
        assert longest_context_for(form, blocks, 32) == context
        assert running_at(form, blocks, context) >= 32 > running_at(form, blocks, context + 1)


def test_why_a_server_does_not_start() -> None:
    dflash = layout(1, "dflash", 8)
    too_long = starts(dflash, 1632, max_model_len=262144, max_num_seqs=16)
    assert (too_long.starts, too_long.binds, too_long.needed) == (False, Limit.LENGTH, 1680)
    assert largest_max_model_len(dflash, 1632) >= 253952
    seats = starts(layout(1, caching=False), 556, max_model_len=262144, max_num_seqs=1024)
    assert (seats.starts, seats.binds) == (False, Limit.SEATS)
    eager = starts(
        layout(1, caching=False), 556, max_model_len=262144, max_num_seqs=1024, full_graphs=False
    )
    assert eager.starts
    assert starts(layout(1), 0, max_model_len=4096, max_num_seqs=1).binds is Limit.NO_ROOM
    step = starts(
        layout(1, "mtp", 3, "fp8"),
        900,
        max_model_len=65536,
        max_num_seqs=4,
        max_num_batched_tokens=1024,
    )
    assert step.binds is Limit.STEP


@pytest.mark.parametrize(
    ("version", "fork", "method", "kind"),
    [
        ("0.20.1", False, "mtp", Kind.MEASURED),
        ("0.24.0", False, "dflash", Kind.MEASURED),
        ("0.26.0", False, "mtp", Kind.EXTRAPOLATED),
        ("0.26.0", False, "dflash", Kind.ESTIMATED),
        (None, True, "dflash", Kind.MEASURED),
        (None, False, "mtp", Kind.EXTRAPOLATED),
    ],
)
def test_the_version_says_how_sure_the_arithmetic_is(
    version: str | None, fork: bool, method: str, kind: Kind
) -> None:
    form = kv_layout(
        tp=2,
        spec_method=method,
        spec_tokens=3,
        prefix_cache=False,
        engine_version=version,
        fork=fork,
    )
    assert form.kind is kind


@pytest.mark.parametrize("change", [{"tp": 3}, {"spec_method": "medusa"}, {"kv_cache_dtype": "q4"}])
def test_unknown_arithmetic_is_named(change: dict[str, object]) -> None:
    known: dict[str, object] = {"tp": 2, "spec_tokens": 3, "prefix_cache": False}
    with pytest.raises(UserError):
        kv_layout(**(known | change))  # type: ignore[arg-type]


FORMS = st.builds(
    layout,
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["none", "mtp", "dflash"]),
    st.integers(0, 15),
    st.sampled_from(["bf16", "fp8"]),
    st.booleans(),
)


@given(FORMS, st.integers(1, 300_000), st.integers(1, 300_000))
def test_a_longer_request_never_needs_fewer_blocks(form: KvLayout, a: int, b: int) -> None:
    short, long = sorted((a, b))
    assert blocks_reserved(form, short) <= blocks_reserved(form, long)
    assert blocks_held(form, short) <= blocks_held(form, long) <= blocks_held(form, long, True)


@given(FORMS, st.integers(1, 20_000), st.integers(1, 200), st.integers(1, 200))
def test_more_concurrency_never_leaves_room_for_longer_contexts(
    form: KvLayout, blocks: int, a: int, b: int
) -> None:
    few, many = sorted((a, b))
    context = longest_context_for(form, blocks, many)
    assert context <= longest_context_for(form, blocks, few)
    if context:
        assert running_at(form, blocks, context) >= many


@given(FORMS, st.integers(2, 20_000))
def test_the_largest_length_fits_and_the_next_block_does_not(form: KvLayout, blocks: int) -> None:
    length = largest_max_model_len(form, blocks)
    if length:
        assert blocks_reserved(form, length) <= blocks
    if length < 262144:
        assert blocks_reserved(form, length + form.block_tokens) > blocks


def test_bytes_of_one_more_full_request_on_one_card() -> None:
    per_request = {
        ("mtp", 3): 17.8,
        ("none", 0): 16.3,
        ("dflash", 8): 26.7,
    }
    for (method, tokens), gib in per_request.items():
        form = layout(1, method, tokens)
        size = blocks_reserved(form, 262144) * form.bytes_per_block / GIB
        assert size == pytest.approx(gib, abs=0.06)


@pytest.mark.parametrize(
    ("tp", "caching", "kv_bytes", "max_model_len", "tokens", "times"),
    [
        pytest.param(2, True, 12.52 * GIB, 262144, 705_884, 2.69, id="two-5090-fp8"),
        pytest.param(2, True, 15.52 * GIB, 262144, 875_765, 3.34, id="two-5090-nvfp4"),
        pytest.param(1, True, 72.79 * GIB, 262144, 2_054_681, 7.84, id="gb10"),
        pytest.param(2, False, 2.5e9, 122880, 122_880, 1.0, id="two-5060-ti-pinned-bytes"),
    ],
)
def test_pools_that_strangers_logged_come_out_to_the_token(
    tp: int, caching: bool, kv_bytes: float, max_model_len: int, tokens: int, times: float
) -> None:
    """8-bit KV with three MTP drafts, vLLM 0.25 to 0.27; the memory is what their logs print."""
    form = layout(tp, "mtp", 3, "fp8", caching)
    held, fitting = pool_tokens(form, blocks_from_bytes(form, kv_bytes), max_model_len)
    assert held == tokens
    assert fitting == pytest.approx(times, abs=0.006)
