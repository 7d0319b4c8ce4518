"""Where a run shows several causes, the one that its evidence ties to the deviation is first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from known import known_server
from measuring import POOL, small_plan, verified

from qwendeploy.documents import Plan, RunDocument, Step
from qwendeploy.figures import Kind, exact
from qwendeploy.verification.judging.causes import likely_causes
from qwendeploy.verification.verifying import report_on

Change = Callable[[RunDocument], RunDocument]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> RunDocument:
    """A run on a server that is as planned, and drafts as assumed."""
    with known_server(tmp_path_factory.mktemp("server"), *POOL, "--tokens", "3") as known:
        run, _ = verified(known.url, small_plan(450), repeats=1, calm=True)
    assert run.client is not None
    calm = run.client.model_copy(update={"load_average": 0.1})
    return run.model_copy(update={"client": calm})


def on_decode(change: Callable[[Step], Step]) -> Change:
    def changed(run: RunDocument) -> RunDocument:
        steps = tuple(change(one) if one.shape == "decode" else one for one in run.steps)
        return run.model_copy(update={"steps": steps})

    return changed


def windows(**values: object) -> Change:
    return on_decode(
        lambda step: step.model_copy(
            update={"windows": tuple(w.model_copy(update=values) for w in step.windows)}
        )
    )


def counters(**values: float) -> Change:
    return on_decode(lambda s: s.model_copy(update={"server": {**s.server, **values}}))


def accepted(length: float) -> Change:
    figure = exact(length, "tokens per step", kind=Kind.MEASURED_HERE, source="run", n=3)
    return on_decode(
        lambda s: s.model_copy(update={"figures": {**s.figures, "acceptance_length": figure}})
    )


def client(**values: object) -> Change:
    def changed(run: RunDocument) -> RunDocument:
        assert run.client is not None
        return run.model_copy(update={"client": run.client.model_copy(update=values)})

    return changed


def server(**values: object) -> Change:
    def changed(run: RunDocument) -> RunDocument:
        assert run.server is not None
        return run.model_copy(update={"server": run.server.model_copy(update=values)})

    return changed


def cards(**values: float | str) -> Change:
    def changed(run: RunDocument) -> RunDocument:
        points = tuple(p.model_copy(update={"gpu": (values,)}) for p in run.timeline)
        return run.model_copy(update={"timeline": points})

    return changed


LIMITED = client(limited=True, limited_reason="the client used 97% of a core")
SEATS = windows(server_running_low=2.0, waiting_high=1.0, clean=False)
HOT = cards(throttle="hardware thermal slowdown", temperature_c=91.0)
TWO_USERS = cards(processes=2.0)
PROXY = client(proxy=True)
BUSY = client(load_average=1e4)
VERSION = server(version="0.32.0")
CHECKPOINT = server(root="somebody/else")
SMALL_POOL = server(kv_pool_blocks=90_000)
FEW_DRAFTS = accepted(1.1)
DRAFTLESS = counters(drafts=0.0, generation_tokens=900.0)
OTHERS = counters(tokens_over_client=1.4)
OVERCOUNTED = counters(tokens_over_client=0.5)
PREEMPTED = counters(preemptions=7.0)
FALLING = on_decode(lambda step: step.model_copy(update={"drift_per_minute": -0.1}))

PAIRS = {
    "client-bound": ((LIMITED, SEATS), (LIMITED, HOT), (LIMITED, CHECKPOINT)),
    "other-traffic": ((OTHERS, SEATS), (OTHERS, PREEMPTED), (OTHERS, HOT)),
    "usage-too-high": ((OVERCOUNTED, FEW_DRAFTS), (OVERCOUNTED, SEATS)),
    "other-checkpoint": ((CHECKPOINT, FEW_DRAFTS), (CHECKPOINT, VERSION)),
    "fewer-streams": ((SEATS, PROXY), (SEATS, SMALL_POOL), (SEATS, HOT), (SEATS, PREEMPTED)),
    "preemptions": ((PREEMPTED, SMALL_POOL), (PREEMPTED, TWO_USERS), (PREEMPTED, VERSION)),
    "not-drafting": ((DRAFTLESS, VERSION), (DRAFTLESS, HOT)),
    "low-acceptance": ((FEW_DRAFTS, PROXY), (FEW_DRAFTS, HOT), (FEW_DRAFTS, VERSION)),
    "throttled": ((HOT, FALLING), (HOT, SMALL_POOL), (HOT, VERSION), (HOT, PROXY)),
    "other-gpu-user": ((TWO_USERS, SMALL_POOL), (TWO_USERS, FALLING)),
    "falling-rate": ((FALLING, PROXY), (FALLING, BUSY)),
    "other-engine-version": ((VERSION, SMALL_POOL), (VERSION, PROXY)),
    "smaller-pool": ((SMALL_POOL, PROXY), (SMALL_POOL, BUSY)),
    "proxy": ((PROXY, BUSY),),
}


@pytest.mark.parametrize(
    ("first", "both"), [(first, both) for first, pairs in PAIRS.items() for both in pairs]
)
def test_the_direct_cause_is_first(
    measured: RunDocument, first: str, both: tuple[Change, Change]
) -> None:
    run = both[1](both[0](measured))
    found = [cause.id for cause in likely_causes(run, small_plan(450))]
    assert len(found) >= 2
    assert found[0] == first


def test_nothing_is_found_where_nothing_is(measured: RunDocument) -> None:
    assert likely_causes(measured, small_plan(450)) == ()


@pytest.mark.parametrize(
    ("cap", "usual", "named"),
    [
        pytest.param(600.0, 600.0, False, id="at-the-limit-it-is-sold-with"),
        pytest.param(400.0, 600.0, True, id="capped-below"),
    ],
)
def test_a_power_cap_is_a_cause_below_the_usual_one(
    measured: RunDocument, cap: float, usual: float, named: bool
) -> None:
    change = cards(throttle="software power cap", power_cap_w=cap, power_default_w=usual)
    found = [cause.id for cause in likely_causes(change(measured), small_plan(450))]
    assert ("throttled" in found) is named


def test_streams_that_the_plan_lets_wait_are_no_cause(measured: RunDocument) -> None:
    plan = small_plan(450)
    two = exact(2, "requests", kind=Kind.ESTIMATED, source="block arithmetic", n=1)
    predictions = plan.predictions.model_copy(update={"max_running_requests": two})
    found = likely_causes(SEATS(measured), plan.model_copy(update={"predictions": predictions}))
    assert found == ()


def slow(plan: Plan) -> Plan:
    rate = plan.predictions.aggregate_decode_tps
    assert rate is not None
    more = rate.model_copy(update={"value": 900.0, "low": 850.0, "high": 950.0})
    predictions = plan.predictions.model_copy(update={"aggregate_decode_tps": more})
    return plan.model_copy(update={"predictions": predictions})


def test_a_refuted_rate_carries_its_causes_in_order(measured: RunDocument) -> None:
    run = PROXY(HOT(SEATS(measured)))
    report = report_on(run, slow(small_plan(450)))
    assert report.outcome == "refuted", report.statement
    ids = [cause.id for cause in report.verdicts[0].causes]
    assert ids == ["fewer-streams", "throttled", "proxy"]
