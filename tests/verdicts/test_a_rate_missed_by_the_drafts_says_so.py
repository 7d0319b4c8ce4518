"""A rate that misses its band by the drafts of the run alone is refuted, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from known import known_server
from measuring import POOL, small_plan, verified

from qwendeploy.documents import Content, Plan
from qwendeploy.reporting.verify_text import verify_text

from plan_samples import figure  # isort: skip


@pytest.mark.parametrize(
    ("tokens", "rate", "outcome", "words"),
    [
        # 50 steps a second: 3 streams x 2 tokens; the plan assumes 2.4 to 3.4 tokens a step
        pytest.param("3,1,2", 440, "refuted", "by draft acceptance alone", id="text-takes-fewer"),
        pytest.param("3,1,2", 800, "refuted", "tokens per step the band is", id="steps-slower"),
        pytest.param("4", 400, "refuted", "by draft acceptance alone", id="text-takes-more"),
        pytest.param("1", 440, "refuted", "almost no drafts", id="drafts-do-not-work"),
        pytest.param("3", 700, "refuted", "below the predicted band", id="as-assumed"),
    ],
)
def test_a_rate_is_judged_with_the_drafts_of_the_run(
    tmp_path: Path, tokens: str, rate: float, outcome: str, words: str
) -> None:
    with known_server(tmp_path, *POOL, "--tokens", tokens) as known:
        run, report = verified(known.url, small_plan(rate, 0.1), rate_only=True, calm=True)
    assert report.outcome == outcome, report.statement
    if words == "by draft acceptance alone":
        assert report.causes[0].id in ("low-acceptance", "high-acceptance")
    verdict = report.verdicts[0]
    assert words in verdict.reason
    step = next(step for step in run.steps if step.shape == "decode")
    assert step.texts == {"prose": 2, "code": 1}
    assert "the plan assumes 2." in verify_text(report)


def over_content(plan: Plan) -> Plan:
    return plan.model_copy(
        update={
            "predictions": plan.predictions.model_copy(
                update={"aggregate_decode_tps_over_content": figure(450, "tok/s", 0.2)}
            )
        }
    )


@pytest.mark.parametrize("content", [Content.MIXED, Content.CODE])
def test_a_run_of_other_text_is_judged_by_the_range_over_text(
    tmp_path: Path, content: Content
) -> None:
    with known_server(tmp_path, *POOL, "--tokens", "3") as known:
        _, report = verified(
            known.url, over_content(small_plan(450)), content=content, rate_only=True, calm=True
        )
    verdicts = {verdict.quantity: verdict for verdict in report.verdicts}
    assert verdicts["aggregate_decode_tps_over_content"].outcome == "confirmed"
    rate = verdicts["aggregate_decode_tps"]
    assert rate.outcome == ("confirmed" if content is Content.MIXED else "inconclusive")
    assert content is Content.MIXED or "mixed content, this run used code" in rate.reason
