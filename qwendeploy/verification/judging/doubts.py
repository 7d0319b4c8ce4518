"""Why a run, or one load of it, decides nothing: what was wrong with the measurement itself.

A run is judged at its operating point, so a fault of another rung of a ladder is that rung's alone;
what is wrong with the client, the server's process or its token counts is wrong with all of it.
"""

from __future__ import annotations

from qwendeploy.documents import RequestCounts, RunDocument, Step
from qwendeploy.verification.judging.evidence import (
    RESTARTED,
    beside_others,
    ended_early,
    points_of,
    warned,
)

MOST_FAILED = 0.02
"""Share of failed requests above which the rate of the rest stands for nothing: a server that
refuses or drops work is not the one that was predicted."""
COUNT_DIFFERENCE = 0.03
"""Relative difference of token counts from which it is not the edges of the scrapes."""
FAR, FAR_TOKENS = 0.25, 64
"""Distance of prompts from their wanted length, relative and in tokens, beyond which another load
was measured; a chat template alone has some dozens of tokens."""


def undecidable(run: RunDocument) -> str:
    """Return why a run decides nothing at its operating point, empty if it may decide."""
    doubts = (doubt_of(step) for step in points_of(run))
    return doubt_of_all(run) or next((doubt for doubt in doubts if doubt), "")


def doubt_of_all(run: RunDocument) -> str:
    """Return what is wrong with every load of a run, empty if nothing is."""
    if run.client is not None and run.client.limited:
        return f"the client was the bottleneck: {run.client.limited_reason}"
    if restarted := warned(run, RESTARTED):
        return restarted
    if any("usage" in step.requests.failures for step in run.steps):
        return "the server's token counts contradict its stream"
    return ""


def doubt_of(step: Step) -> str:
    """Return why a load decides nothing, empty if it may decide."""
    if step.client_limit:
        return f"the client was the bottleneck: {step.client_limit}"
    if step.steady is False:
        return "the rate was not steady"
    if step.status == "incomplete":
        return f"the measurement stopped after {len(step.windows)} windows"
    if beside_others(step):
        return "the server handled other clients' requests in every window"
    if ended_early(step):
        return "a request ended in every window"
    if failing := _failing(step.requests):
        return failing
    ratio = step.server.get("tokens_over_client")
    if ratio is not None and abs(ratio - 1) > COUNT_DIFFERENCE:
        return "the server's token counter disagrees with the stream"
    return other_prompts(step)


def _failing(requests: RequestCounts) -> str:
    """Return that too many requests failed, but for those that waited in vain for a seat."""
    failures = {kind: n for kind, n in requests.failures.items() if kind != "timeout_first"}
    failed = sum(failures.values())
    if failed <= MOST_FAILED * requests.sent:
        return ""
    refused = all(kind.startswith("status") for kind in failures)
    did = "refused" if refused else "failed"
    return f"the server {did} {failed} of {requests.sent} requests while the rate was measured"


def other_prompts(step: Step) -> str:
    """Return that prompts were not as long as asked for by the server's count, if so."""
    counted, asked = step.prompt_tokens, step.prompt_asked
    if counted is None or asked is None or abs(counted - asked) <= max(FAR_TOKENS, FAR * asked):
        return ""
    return f"the server counts {counted:,.0f} tokens per prompt instead of {asked:,.0f}"
