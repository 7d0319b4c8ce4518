"""The verdict's sentence names what decided, and the rate's own outcome as the rate's."""

from __future__ import annotations

import pytest

from qwendeploy.documents import Fill, Gate, Verdict
from qwendeploy.documents.run import Outcome
from qwendeploy.figures import Figure, Kind
from qwendeploy.verification.judging.verdict import Overall, overall

FILLED = Fill(tested=True, outcome="confirmed")
FAILED = (Gate(id="arithmetic", outcome="failed"),)


def figure(value: float, half: float) -> Figure:
    return Figure(
        value=value, unit="tok/s", low=value - half, high=value + half, kind=Kind.MEASURED,
        source="s", n=3,
    )  # fmt: skip


def rate(outcome: Outcome = "confirmed", *, half: float = 30, wide: bool = False) -> Verdict:
    return Verdict(
        quantity="aggregate_decode_tps", predicted=figure(406, half), measured=figure(406, 4),
        outcome=outcome, wide=wide, decisive=True, reason="across an end",
    )  # fmt: skip


def tpot(outcome: Outcome) -> Verdict:
    return Verdict(
        quantity="tpot_ms", predicted=None, measured=None, outcome=outcome, decisive=True,
        reason="not measured: one token",
    )  # fmt: skip


SAID = "predicted 406 ± 30 tok/s, measured 406 [402, 410]"


@pytest.mark.parametrize(
    ("found", "statement"),
    [
        pytest.param(
            overall([rate()], FILLED, ()), f"{SAID}: confirmed; fill confirmed", id="confirmed"
        ),
        pytest.param(
            overall([rate(half=91, wide=True)], FILLED, ()),
            "the predicted band is wider than ±20%;"
            " predicted 406 ± 91 tok/s, measured 406 [402, 410]: rate inside the band",
            id="wide",
        ),
        pytest.param(
            overall([rate()], FILLED, FAILED),
            f"failed gates: arithmetic; {SAID}: rate confirmed",
            id="gate",
        ),
        pytest.param(
            overall([rate("refuted")], FILLED, FAILED),
            f"{SAID}: refuted; failed gates: arithmetic",
            id="rate-and-gate",
        ),
        pytest.param(
            overall([rate()], Fill(tested=True, outcome="inconclusive", reason="cut short"), ()),
            f"fill inconclusive: cut short; {SAID}: rate confirmed",
            id="fill",
        ),
        pytest.param(
            overall([rate()], Fill(), ()), f"rate confirmed, fill not tested: {SAID}", id="quick"
        ),
        pytest.param(
            overall([rate()], FILLED, (), complete=False),
            f"the run is incomplete; {SAID}: rate confirmed",
            id="cut-short",
        ),
        pytest.param(
            overall([rate()], FILLED, (), differs=[("tp", "2", "1")]),
            f"the server differs from the plan: tp 1 instead of 2; {SAID}: rate confirmed",
            id="another-plan",
        ),
        pytest.param(
            overall([rate(), tpot("inconclusive")], FILLED, ()),
            f"tpot_ms: not measured: one token; {SAID}: rate confirmed",
            id="a-limit-was-not-measured",
        ),
        pytest.param(
            overall([rate("inconclusive")], FILLED, ()),
            f"{SAID}: inconclusive; across an end",
            id="rate-open",
        ),
    ],
)
def test_the_sentence_agrees_with_the_outcome(found: Overall, statement: str) -> None:
    assert found.statement == statement
    words = found.statement.split(": ")
    assert found.outcome == "confirmed" or "confirmed" not in words
