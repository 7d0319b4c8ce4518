"""Servers that speak OpenAI's API each in their own way: measured right, or said to be unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from known import known_server
from measuring import POOL, small_plan, verified

from qwendeploy.errors import EnvironmentProblem

BARE = ("--absent", "/metrics,/version,/tokenize,/health")

DIALECTS = {
    "sglang": ("--usage", "final", "--metrics-as", "sglang", "--null-keys"),
    "usage-on-the-first-chunk": ("--usage", "first", *BARE),
    "usage-of-zeros": ("--usage", "zeros", *BARE),
    "crlf": ("--crlf", "--comments"),
    "gzip": ("--gzip",),
    "gzip-and-cut": ("--gzip", "--split"),
    "null-keys-and-held-text": ("--null-keys", "--hold-every", "3", "--usage", "final"),
    "openai-proxy": ("--usage", "final", "--reject-fields", "ignore_eos,min_tokens", *BARE),
    "tgi": ("--usage", "final", "--reject-fields", "stream_options", *BARE),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_rate_and_pace_are_right_in_every_dialect(tmp_path: Path, dialect: str) -> None:
    """Two streams of 50 steps a second, two tokens a step."""
    settings = ("--tokens", "2", "--step-ms", "20", *DIALECTS[dialect])
    known_tokens = dialect != "tgi"
    with known_server(tmp_path, *settings) as known:
        run, _ = verified(known.url, calm=True, repeats=1)
    assert run.status == "complete"
    assert not any(step.requests.failed for step in run.steps)
    rate, tpot = run.figures["aggregate_decode_tps"], run.figures["tpot_ms"]
    if not known_tokens:
        assert rate is None
        assert "no token counts" in run.reasons["aggregate_decode_tps"]
        return
    assert rate is not None and tpot is not None
    assert rate.value == pytest.approx(200, rel=0.03)
    assert tpot.value == pytest.approx(10, rel=0.03)


def test_streams_that_end_early_decide_nothing(tmp_path: Path) -> None:
    """A server that caps answers: every window has pauses of new prompts in it."""
    settings = (*POOL, "--cap-tokens", "40", "--ttft-ms", "150")
    with known_server(tmp_path, *settings) as known:
        run, report = verified(known.url, small_plan(300), rate_only=True)
    step = next(step for step in run.steps if step.shape == "decode")
    assert all(window.turnover for window in step.windows)
    assert report.outcome == "inconclusive", report.statement
    assert "ended in every window" in report.verdicts[0].reason
    assert "early-ends" in [cause.id for cause in report.causes]


def test_an_answer_that_is_no_stream_is_said(tmp_path: Path) -> None:
    with (
        known_server(tmp_path, "--whole", "--step-ms", "1") as known,
        pytest.raises(EnvironmentProblem, match="application/json instead of an event stream"),
    ):
        verified(known.url)


def test_a_redirect_is_said_and_not_followed(tmp_path: Path) -> None:
    with (
        known_server(tmp_path, "--redirect", "https://user:pw@elsewhere.example") as known,
        pytest.raises(EnvironmentProblem, match="redirects to") as caught,
    ):
        verified(known.url)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("factor", [0.0, 0.4, 1.4])
def test_wrong_usage_without_counters_is_found_in_the_stream(tmp_path: Path, factor: float) -> None:
    """Chunks of one token each: usage below them, or above what finished requests may have."""
    faults = json.dumps([{"kind": "wrong_usage", "value": factor, "every": 1}])
    settings = ("--usage", "final", "--faults", faults, *BARE)
    with known_server(tmp_path, *settings) as known, pytest.raises(EnvironmentProblem) as caught:
        verified(known.url)
    assert "usage" in str(caught.value)
