"""Acceptance by method, length and content, against the observations it was drawn from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qwendeploy.evidence.transfer_rows import card_features, transfer_fit
from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.speculation import (
    CONTENTS,
    CURVES,
    acceptance_length,
    acceptance_rate,
    crossover,
    curve_for,
)
from qwendeploy.models.step import Features
from qwendeploy.tables.acceptance import AcceptanceRow
from qwendeploy.tables.decode import decode_rows
from qwendeploy.tables.gpus import gpus
from qwendeploy.tables.reader import read_table


def length(method: str, tokens: int, content: str | None) -> Estimate:
    found = acceptance_length(method, tokens, content)
    assert found is not None
    return found


def test_nine_in_ten_observed_lengths_lie_in_their_band() -> None:
    inside = []
    for row in read_table("acceptance", AcceptanceRow):
        if row.length is not None:
            band = length(row.method, row.spec_tokens, row.content)
            inside.append(band.low <= row.length <= band.high)
    assert len(inside) > 12
    assert sum(inside) / len(inside) >= 0.9


@pytest.mark.parametrize(
    ("method", "tokens", "ratio"),
    [pytest.param("mtp", 3, 1.28, id="MTP3"), pytest.param("dflash", 5, 1.6, id="DFlash5")],
)
def test_code_is_worth_more_than_prose_by_the_paired_runs(
    method: str, tokens: int, ratio: float
) -> None:
    gain = length(method, tokens, "code").value / length(method, tokens, "prose").value
    assert gain == pytest.approx(ratio, rel=0.02)
    pairs = [
        r
        for r in read_table("acceptance", AcceptanceRow)
        if r.measure == "code_over_prose" and r.method == method
    ]
    for row in pairs:
        assert gain == pytest.approx(row.value, rel=0.02)


def test_the_table_holds_the_means_of_the_study_rows() -> None:
    for row in read_table("acceptance", AcceptanceRow):
        if row.content != "study" or row.n < 20 or not row.image.startswith("repne"):
            continue
        sampled = [
            other.accept_rate
            for other in decode_rows()
            if other.usable
            and other.origin == "study"
            and other.fork == "repne"
            and other.accept_rate is not None
            and (other.spec_method, other.spec_tokens, other.quant)
            == (row.method, row.spec_tokens, row.quant)
        ]
        assert len(sampled) == row.n
        assert sum(sampled) / len(sampled) == pytest.approx(row.value, abs=0.002)


@pytest.mark.parametrize("method", sorted(CURVES))
@pytest.mark.parametrize("content", CONTENTS)
def test_longer_drafts_never_lose_tokens_and_never_exceed_themselves(
    method: str, content: str
) -> None:
    lengths = [length(method, tokens, content).value for tokens in range(1, 16)]
    assert lengths == sorted(lengths)
    assert all(1 < value <= 1 + tokens for tokens, value in enumerate(lengths, start=1))


@pytest.mark.parametrize("method", sorted(CURVES))
def test_content_classes_are_in_order(method: str) -> None:
    values = [length(method, 3, content).value for content in CONTENTS]
    assert values == sorted(values)


def test_unstated_content_spans_prose_to_code() -> None:
    span = length("mtp", 3, None)
    assert span.low <= length("mtp", 3, "prose").low
    assert span.high >= length("mtp", 3, "code").value
    assert span.high - span.low > length("mtp", 3, "prose").high - length("mtp", 3, "prose").low


def test_without_drafting_a_step_gains_one_token() -> None:
    for method, tokens in (("none", 0), ("mtp", 0)):
        found = length(method, tokens, "code")
        assert (found.low, found.value, found.high) == (1, 1, 1)
    assert acceptance_rate("none", 0) is None


def test_the_rate_is_what_the_length_leaves_a_draft_token() -> None:
    rate = acceptance_rate("mtp", 3, "study")
    assert rate is not None
    assert rate.value == pytest.approx((0.76 + 0.56 + 0.41) / 3, abs=0.005)


def test_a_method_without_evidence_has_no_acceptance() -> None:
    assert curve_for("ngram") is None
    assert acceptance_length("ngram", 3, "code") is None
    with pytest.raises(ValueError, match="poetry"):
        acceptance_length("mtp", 3, "poetry")


def flat(value: float, reach: float = 0.1) -> Estimate:
    return Estimate(value, value * (1 - reach), value * (1 + reach), Kind.TRANSFERRED)


@pytest.mark.parametrize(
    ("drafted", "plain", "expected"),
    [
        pytest.param((150, 400, 900), (80, 300, 1000), (8, 32, False), id="bands touch"),
        pytest.param((150, 400, 700), (80, 300, 1000), (8, 32, True), id="bands apart"),
        pytest.param((150, 400, 1900), (80, 300, 1000), (32, None, True), id="always pays"),
        pytest.param((50, 200, 700), (80, 300, 1000), (None, 1, True), id="never pays"),
        pytest.param((150, 290, 1100), (80, 300, 1000), (32, None, False), id="a dip is no end"),
    ],
)
def test_the_crossover_is_where_drafting_loses_for_good(
    drafted: tuple[float, ...],
    plain: tuple[float, ...],
    expected: tuple[int | None, int | None, bool],
) -> None:
    at = (1, 8, 32)
    found = crossover(
        dict(zip(at, map(flat, drafted), strict=True)), dict(zip(at, map(flat, plain), strict=True))
    )
    assert (found.pays_up_to, found.loses_from, found.certain) == expected


def test_two_options_without_a_common_concurrency_are_refused() -> None:
    with pytest.raises(ValueError, match="no concurrency"):
        crossover({1: flat(1)}, {2: flat(1)})


def test_drafting_gains_less_the_more_streams_run() -> None:
    """Two RTX PRO 6000, FP8: +24 to 53 % at 8 streams, +9 to 11 % at 32 (study, experiment 8)."""
    facts = card_features(
        next(card for card in gpus() if card.name.endswith("6000 Blackwell Workstation"))
    )
    assert facts is not None
    plain = Features(
        **facts,  # type: ignore[arg-type]
        quant="fp8", tp=2, link="pcie-p2p", image_family="fork", contexts="shared",
    )  # fmt: skip
    drafting = replace(plain, spec_method="mtp", spec_tokens=3, content="study")
    gains = []
    for c in (1, 8, 32, 128):
        with_drafts = transfer_fit().predict(replace(drafting, concurrency=c)).value
        gains.append(with_drafts / transfer_fit().predict(replace(plain, concurrency=c)).value - 1)
    assert gains == sorted(gains, reverse=True)
    assert 0.2 < gains[1] < 0.7
    assert -0.1 < gains[2] < 0.25
