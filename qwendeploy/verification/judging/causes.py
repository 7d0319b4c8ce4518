"""Likely causes when a run is not what the plan predicted, each with the evidence that names it.

Every cause is one function from the evidence of a run to a cause or nothing. They are ranked by
how directly the evidence explains a deviation: what makes the run itself unusable first, then what
runs otherwise than asked, then what the load met, then what the machine did, last what is merely
so: a proxy, another release, a pool that nobody filled.
"""

from __future__ import annotations

from qwendeploy.documents import Cause, Plan, RunDocument, Step
from qwendeploy.verification.expected import applied_differences
from qwendeploy.verification.judging.causes_of_machine import (
    capture_exceeded,
    falling_rate,
    hosts_busy,
    other_gpu_user,
    peer_access_off,
    smaller_pool,
    throttled,
)
from qwendeploy.verification.judging.doubts import COUNT_DIFFERENCE, other_prompts
from qwendeploy.verification.judging.evidence import (
    RESTARTED,
    CauseCheck,
    Evidence,
    beside_others,
    ended_early,
    warned,
)


def client_bound(evidence: Evidence) -> Cause | None:
    client = evidence.run.client
    if client is None or not client.limited:
        return None
    return Cause(
        id="client-bound",
        text="the client was the bottleneck, not the server",
        evidence=client.limited_reason,
        fix="run verify on an idle machine near the server; `verify --self-test` shows its limit",
    )


def restarted(evidence: Evidence) -> Cause | None:
    told = warned(evidence.run, RESTARTED)
    if not told:
        return None
    return Cause(
        id="restarted",
        text="the server restarted during the run",
        evidence=told,
        fix="see the server log before the restart (`qwendeploy logs`)",
    )


def proxied(evidence: Evidence) -> Cause | None:
    client = evidence.run.client
    if client is None or not client.proxy:
        return None
    return Cause(
        id="proxy",
        text="the requests went through a proxy, which may delay streamed tokens",
        evidence="the environment sets a proxy",
        fix="use --no-proxy, or measure on the server's machine",
    )


PATH_MS, PATH_SHARE = 20.0, 0.1
"""Time that network and client may add to the server's time to first token."""


def slow_path(evidence: Evidence) -> Cause | None:
    steps = [step for step in evidence.run.steps if step.shape == "prompt"]
    server = steps[0].server.get("ttft_cold_mean_ms") if steps else None
    cold = [s for s in steps[0].distributions if s.name == "ttft_cold"] if steps else []
    if server is None or not cold:
        return None
    client = cold[0].mean
    if client <= server * (1 + PATH_SHARE) + PATH_MS:
        return None
    return Cause(
        id="slow-path",
        text="the network adds much to the time to first token",
        evidence=f"{client:.0f} ms at the client, {server:.0f} ms in the server's histogram",
        fix="measure on the server's machine; check network, TLS and proxies",
    )


def usage_contradicts(evidence: Evidence) -> Cause | None:
    bad = [s for s in evidence.run.steps if "usage" in s.requests.failures]
    if not bad:
        return None
    return Cause(
        id="wrong-usage",
        text="the server's token counts contradict its stream",
        evidence="; ".join(bad[0].requests.examples),
        fix="cannot measure with wrong token counts; see the known issues of this server version",
    )


def other_traffic(evidence: Evidence) -> Cause | None:
    step = evidence.decode
    if step is None:
        return None
    ratio = step.server.get("tokens_over_client")
    if ratio is not None and ratio > 1 + COUNT_DIFFERENCE:
        told = f"{ratio - 1:.0%} more tokens than this client received"
    elif beside_others(step):
        ran = max(w.server_running_high or 0.0 for w in step.windows if not w.turnover)
        told = f"{ran:g} requests ran, {step.concurrency} of them from this client"
        if ran <= step.concurrency:
            told = "requests of other clients finished"
    else:
        return None
    return Cause(
        id="other-traffic",
        text="the server handled other clients' requests during the measurement",
        evidence=told,
        fix="repeat while nobody else uses the server",
    )


def count_too_high(evidence: Evidence) -> Cause | None:
    step = evidence.decode
    ratio = step.server.get("tokens_over_client") if step else None
    if ratio is None or ratio >= 1 - COUNT_DIFFERENCE:
        return None
    return Cause(
        id="usage-too-high",
        text="the usage in the stream reports more tokens than the server's counter",
        evidence=f"the counter grew by {ratio:.0%} of the reported usage",
        fix="cannot measure with wrong token counts; see the known issues of this server version",
    )


def not_as_asked(evidence: Evidence) -> Cause | None:
    run, plan = evidence.run, evidence.plan
    if plan is None or run.server is None:
        return None
    wrong = [
        difference
        for difference in applied_differences(plan, run.server)
        if difference[0] not in ("engine_version", "checkpoint")
    ]
    if not wrong:
        return None
    told = "; ".join(f"{what}: planned {plan}, actual {seen}" for what, plan, seen in wrong)
    return Cause(
        id="applied-differs",
        text="the server's settings differ from the plan",
        evidence=told,
        fix="start it from the plan (`qwendeploy up` or the generated files) and verify again",
    )


def _one_difference(evidence: Evidence, what: str) -> tuple[str, str] | None:
    if evidence.plan is None or evidence.run.server is None:
        return None
    for name, asked, applied in applied_differences(evidence.plan, evidence.run.server):
        if name == what:
            return asked, applied
    return None


def other_version(evidence: Evidence) -> Cause | None:
    found = _one_difference(evidence, "engine_version")
    if found is None:
        return None
    return Cause(
        id="other-engine-version",
        text="the server's engine version differs from the plan",
        evidence=f"plan {found[0]}, server {found[1]}",
        fix="use the plan's image by digest, or make a new plan for this version",
    )


def other_checkpoint(evidence: Evidence) -> Cause | None:
    found = _one_difference(evidence, "checkpoint")
    if found is None:
        return None
    return Cause(
        id="other-checkpoint",
        text="the server's checkpoint differs from the plan",
        evidence=f"plan {found[0]}, server {found[1]}",
        fix="serve the plan's checkpoint",
    )


def early_ends(evidence: Evidence) -> Cause | None:
    step, server = evidence.decode, evidence.run.server
    if step is None or server is None or not ended_early(step):
        return None
    fields = [name for name in ("ignore_eos", "min_tokens") if name in server.accepted_fields]
    taken = f"{' and '.join(fields)} had no effect" if fields else "ignore_eos is rejected"
    return Cause(
        id="early-ends",
        text="responses end before the windows do, so the rate includes prompt processing",
        evidence=f"{step.requests.succeeded} responses ended early; {taken}",
        fix="connect to the engine directly if a proxy limits output; or use `--shape mixed`",
    )


def other_lengths(evidence: Evidence) -> Cause | None:
    step = evidence.decode
    told = other_prompts(step) if step is not None else ""
    if not told:
        return None
    return Cause(
        id="other-prompts",
        text="the engine receives prompts of another length than sent",
        evidence=told,
        fix="check if a proxy or the server truncates prompts; connect to the engine directly",
    )


def _expected_running(plan: Plan | None, step: Step) -> float:
    """Return how many requests of a load run at once by the plan; without a plan, all."""
    running = plan.predictions.max_running_requests if plan else None
    if plan is None or running is None or step.context != plan.operating_point.context:
        return step.concurrency
    return min(float(step.concurrency), running.low)


def fewer_streams(evidence: Evidence) -> Cause | None:
    step = evidence.decode
    # a window in which a stream ended by itself had its seat, and is not what was judged
    windows = [w for w in step.windows if not w.turnover] if step is not None else []
    if step is None or not windows:
        return None
    lows = [w.server_running_low for w in windows if w.server_running_low is not None]
    ran = min([float(w.running_low) for w in windows] + lows)
    if ran >= _expected_running(evidence.plan, step):
        return None
    waited = max(w.waiting_high or 0.0 for w in windows)
    usage = max(w.kv_usage or 0.0 for w in windows)
    option = evidence.plan.option if evidence.plan else None
    seats = option.max_num_seqs * option.replicas if option and option.max_num_seqs else None
    if usage * (ran + 1) > max(ran, 1.0) and (seats is None or ran < seats):
        why = f"the KV pool was {usage:.0%} full, without room for another request"
        fix = "use a shorter context, fp8 KV cache or fewer concurrent requests"
    elif waited or (seats is not None and seats <= ran):
        why = "the KV pool had room: max-num-seqs is the limit"
        fix = f"set --max-num-seqs to at least {step.concurrency}"
    else:
        why, fix = "the server shows no queue", "check for a router or proxy that queues requests"
    return Cause(
        id="fewer-streams",
        text=f"only {ran:g} of {step.concurrency} requests ran at once",
        evidence=f"{waited:g} waited; {why}",
        fix=fix,
    )


def failed_requests(evidence: Evidence) -> Cause | None:
    step = evidence.decode
    failures = {} if step is None else dict(step.requests.failures)
    for told_otherwise in ("usage", "timeout_first"):
        failures.pop(told_otherwise, None)
    if step is None or not failures:
        return None
    kinds = ", ".join(f"{count} x {kind}" for kind, count in failures.items())
    example = next(iter(step.requests.examples), "")
    return Cause(
        id="failed-requests",
        text="requests failed while the rate was measured",
        evidence=f"{kinds} of {step.requests.sent} requests; {example}",
        fix="see the server log of that time (`qwendeploy logs`)",
    )


def preempted(evidence: Evidence) -> Cause | None:
    total = sum(step.server.get("preemptions") or 0.0 for step in evidence.run.steps)
    if not total:
        return None
    return Cause(
        id="preemptions",
        text="requests were preempted and recomputed: the KV pool is too small for the load",
        evidence=f"{total:g} preemptions during the run",
        fix="use a shorter context, fewer concurrent requests, fp8 KV cache or a larger memory"
        " fraction",
    )


def low_acceptance(evidence: Evidence) -> Cause | None:
    step, accepted = evidence.decode, evidence.accepted
    if step is None or accepted is None or accepted.measured.high >= accepted.low:
        return None
    texts = ", ".join(f"{count} of {kind}" for kind, count in step.texts.items())
    return Cause(
        id="low-acceptance",
        text="fewer draft tokens were accepted than predicted",
        evidence=f"{accepted}; requests by content: {texts}" if texts else str(accepted),
        fix="check that the draft head is loaded and matches the checkpoint; acceptance also"
        " depends on --content",
    )


def high_acceptance(evidence: Evidence) -> Cause | None:
    accepted = evidence.accepted
    if accepted is None or accepted.measured.low <= accepted.high:
        return None
    return Cause(
        id="high-acceptance",
        text="more draft tokens were accepted than predicted",
        evidence=str(accepted),
        fix="check for repetitive output; acceptance also depends on --content",
    )


def not_drafting(evidence: Evidence) -> Cause | None:
    step, plan = evidence.decode, evidence.plan
    if step is None or plan is None or plan.option.spec_method == "none":
        return None
    if step.server.get("drafts") != 0 or not step.server.get("generation_tokens"):
        return None
    return Cause(
        id="not-drafting",
        text="speculative decoding is off: the server drafted no tokens",
        evidence="the draft counter did not change",
        fix="see the server log for the reason",
    )


def cold_cache(evidence: Evidence) -> Cause | None:
    step, plan = evidence.decode, evidence.plan
    if step is None or plan is None or step.contexts != "shared":
        return None
    hits, queries = step.server.get("prefix_hits"), step.server.get("prefix_queries")
    if hits is None or queries is None or (queries and hits / queries > 0.5):
        return None
    share = hits / queries if queries else 0.0
    return Cause(
        id="prefix-cache-cold",
        text="the shared context did not come from the prefix cache",
        evidence=f"{share:.0%} of the prompt tokens were cache hits",
        fix="start with --enable-prefix-caching, or plan with --separate-contexts",
    )


CAUSE_CHECKS: tuple[CauseCheck, ...] = (
    # the measurement is invalid
    client_bound,
    restarted,
    usage_contradicts,
    count_too_high,
    other_traffic,
    # the server is not the plan's
    other_checkpoint,
    not_as_asked,
    # the load was not as intended
    other_lengths,
    failed_requests,
    early_ends,
    fewer_streams,
    preempted,
    not_drafting,
    low_acceptance,
    high_acceptance,
    cold_cache,
    # the machine changed during the run
    throttled,
    other_gpu_user,
    falling_rate,
    # conditions that may or may not matter
    other_version,
    capture_exceeded,
    peer_access_off,
    smaller_pool,
    slow_path,
    proxied,
    hosts_busy,
)
"""Most direct first."""


def likely_causes(run: RunDocument, plan: Plan | None) -> tuple[Cause, ...]:
    """Return every cause for which the run shows evidence, most direct first."""
    evidence = Evidence(run, plan)
    found = (check(evidence) for check in CAUSE_CHECKS)
    return tuple(cause for cause in found if cause is not None)
