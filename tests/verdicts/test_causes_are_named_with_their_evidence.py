"""Each likely cause, provoked on the simulated server, is named with evidence that shows it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from known import Known, known_server
from measuring import POOL, small_plan, verified

from qwendeploy.documents import Cause, Plan
from qwendeploy.verification import session
from qwendeploy.verification.judging import causes
from qwendeploy.verification.loads import watch
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.target import resolve_target

Changed = Callable[[Plan], Plan]


def with_option(**changes: Any) -> Changed:
    return lambda plan: plan.model_copy(update={"option": plan.option.model_copy(update=changes)})


def with_machine(**changes: Any) -> Changed:
    return lambda plan: plan.model_copy(update={"machine": plan.machine.model_copy(update=changes)})


def unchanged(plan: Plan) -> Plan:
    return plan


def shared(plan: Plan) -> Plan:
    point = plan.operating_point.model_copy(update={"contexts": "shared", "prefix_cache": True})
    return with_option(prefix_cache=True)(plan.model_copy(update={"operating_point": point}))


def fault(kind: str, **more: Any) -> tuple[str, str]:
    """Return the settings of a fault in the second stream of the decode load."""
    return "--faults", json.dumps([{"kind": kind, "at": [4], **more}])


CASES: dict[str, tuple[tuple[str, ...], Changed, str]] = {
    "other-checkpoint": (("--root", "Qwen/Qwen3.6-27B"), with_option(checkpoint="a/b"), "qwen3.6"),
    "applied-differs": (("--gpu-memory-utilization", "0.7"), unchanged, "planned 0.85, actual 0.7"),
    "other-engine-version": (("--version", "0.32.0"), unchanged, "0.22.0, server 0.32.0"),
    "fewer-streams": (("--max-num-seqs", "2"), unchanged, "max-num-seqs is the limit"),
    "preemptions": (("--blocks", "54", "--block-tokens", "80"), unchanged, "preemptions"),
    "not-drafting": (("--draftless",), unchanged, "did not change"),
    "low-acceptance": (("--tokens", "1"), unchanged, "1.00 tokens per step"),
    "high-acceptance": (("--tokens", "4"), unchanged, "4.00 tokens per step"),
    "failed-requests": (fault("reset", after=60), unchanged, "1 x cut of 4 requests"),
    "wrong-usage": (fault("wrong_usage", value=0.3), unchanged, "output tokens in"),
    "prefix-cache-cold": (("--prefix-cache", "--forgetful"), shared, "0% of the prompt"),
    "slow-path": (("--path-ms", "80"), unchanged, "in the server's histogram"),
    "smaller-pool": (("--blocks", "5000"), unchanged, "5000 blocks, predicted 95000"),
    "falling-rate": (("--drift-per-minute", "4"), unchanged, "per minute"),
    "capture-exceeded": ((), with_option(capture_size=8), "3 requests x 4 tokens = 12"),
    "no-peer-access": ((), with_machine(p2p="no"), "peer access is off"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_cause_is_named(tmp_path: Path, name: str) -> None:
    settings, changed, evidence = CASES[name]
    with known_server(tmp_path, *POOL, *settings) as known:
        _, report = verified(
            known.url, changed(small_plan()), windows=6, window_s=0.5, repeats=1, settle_s=2
        )
    cause = named(report.causes, name)
    assert evidence in cause.evidence
    assert cause.text and cause.fix


@pytest.mark.parametrize(
    ("settings", "evidence"),
    [
        pytest.param(
            ("--max-num-seqs", "2"),
            "the KV pool had room: max-num-seqs",
            id="max-num-seqs is the limit",
        ),
        pytest.param(("--blocks", "32"), "without room for another request", id="pool"),
        pytest.param(
            ("--max-num-seqs", "2", "--absent", "/metrics"),
            "the server shows no queue",
            id="silent",
        ),
    ],
)
def test_streams_that_wait_are_told_for_what(
    tmp_path: Path, settings: tuple[str, ...], evidence: str
) -> None:
    """Each request holds 13 blocks: two of three fill a pool of 32 to 84 %, and that is full."""
    with known_server(tmp_path, *POOL, *settings) as known:
        _, report = verified(known.url, small_plan(), repeats=1)
    cause = named(report.causes, "fewer-streams")
    assert cause.text == "only 2 of 3 requests ran at once"
    assert evidence in cause.evidence


def named(found: tuple[Cause, ...], name: str) -> Cause:
    ids = [cause.id for cause in found]
    assert name in ids
    return found[ids.index(name)]


def test_a_server_as_planned_has_no_cause_of_its_own(tmp_path: Path) -> None:
    """Acceptance apart: the known server takes fewer drafts than the study's mean."""
    with known_server(tmp_path, *POOL, "--tokens", "3") as known:
        _, report = verified(known.url, small_plan(450), repeats=1)
    assert {cause.id for cause in report.causes} <= {"host-busy"}


@contextmanager
def another_user(known: Known, tokens: int = 6000, prompt: str = "mine") -> Iterator[None]:
    """Keep two more streams running on the server, of requests of so many tokens."""
    stop = threading.Event()

    async def main() -> None:
        async with Client(resolve_target(known.url)) as client:
            body = {"model": "known", "max_tokens": tokens, "ignore_eos": True, "stream": True,
                    "messages": [{"role": "user", "content": prompt}]}  # fmt: skip

            async def stream() -> None:
                while not stop.is_set():
                    await client.stream(dict(body))
                    await asyncio.sleep(0.3)

            tasks = [asyncio.create_task(stream()) for _ in range(2)]
            while not stop.is_set():
                await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_other_traffic_is_named_and_decides_nothing(tmp_path: Path) -> None:
    with known_server(tmp_path, *POOL) as known, another_user(known):
        _, report = verified(known.url, small_plan(), repeats=1)
    assert "more tokens than this client" in named(report.causes, "other-traffic").evidence
    assert report.outcome == "inconclusive"


def test_short_requests_of_others_are_seen_by_their_ends(tmp_path: Path) -> None:
    """Gone before any look at how many run; the server's own counter would count them as ours."""
    settings = (*POOL, "--usage", "final")
    with known_server(tmp_path, *settings) as known, another_user(known, tokens=8):
        _, report = verified(known.url, small_plan(), repeats=1, window_s=1.2)
    assert report.outcome == "inconclusive", report.statement
    assert "other clients' requests in every window" in report.verdicts[0].reason
    assert named(report.causes, "other-traffic").evidence


def test_probes_of_others_that_cost_nothing_spoil_nothing(tmp_path: Path) -> None:
    with known_server(tmp_path, *POOL) as known, another_user(known, tokens=1):
        run, report = verified(known.url, small_plan(), repeats=1, window_s=1.2, calm=True)
    step = next(step for step in run.steps if step.shape == "decode")
    assert any(
        "other clients" in window.note or "this client" in window.note for window in step.windows
    )
    assert not any(window.others for window in step.windows)
    assert report.verdicts[0].outcome == "confirmed", report.statement


def test_long_prompts_of_others_are_not_nothing(tmp_path: Path) -> None:
    with known_server(tmp_path, *POOL) as known, another_user(known, 1, "word " * 3000):
        run, report = verified(known.url, small_plan(), repeats=1, window_s=1.2)
    step = next(step for step in run.steps if step.shape == "decode")
    assert all(window.others for window in step.windows)
    assert report.verdicts[0].outcome == "inconclusive"


def test_others_are_seen_where_tokens_are_not_counted(tmp_path: Path) -> None:
    settings = (*POOL, "--usage", "final", "--metrics-as", "sglang")
    with known_server(tmp_path, *settings) as known, another_user(known):
        _, report = verified(known.url, small_plan(), repeats=1)
    assert "5 requests ran, 3 of them" in named(report.causes, "other-traffic").evidence
    assert report.outcome == "inconclusive"
    assert "other clients' requests in every window" in report.verdicts[0].reason


def test_a_slow_client_is_named_and_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "CPU_LIMIT", 1e-4)
    with known_server(tmp_path, *POOL) as known:
        _, report = verified(known.url, small_plan(), repeats=1)
    assert "of a core" in named(report.causes, "client-bound").evidence
    assert report.outcome == "inconclusive"
    assert "client was the bottleneck" in report.verdicts[0].reason


def test_a_client_that_wakes_late_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LAG_LIMIT_MS", 1e-3)
    with known_server(tmp_path, *POOL) as known:
        _, report = verified(known.url, small_plan(), repeats=1)
    assert "late (p99)" in named(report.causes, "client-bound").evidence
    assert report.outcome == "inconclusive"


class HotCards:
    """Stands in for NVML: one card that is throttled and shared."""

    offered = True
    names = ("NVIDIA H200",)

    def __init__(self, **_: Any) -> None:
        pass

    def read(self) -> tuple[dict[str, float | str | None], ...]:
        return ({"index": 0.0, "temperature_c": 91.0, "power_w": 300.0, "processes": 2.0,
                 "throttle": "hardware thermal slowdown"},)  # fmt: skip

    def close(self) -> None:
        pass


def test_throttling_and_other_gpu_users_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "Gpus", HotCards)
    with known_server(tmp_path, *POOL) as known:
        run, report = verified(known.url, small_plan(), repeats=1)
    assert "91 °C" in named(report.causes, "throttled").evidence
    assert "2 processes" in named(report.causes, "other-gpu-user").evidence
    assert run.timeline[0].gpu[0]["power_w"] == 300


def test_a_proxy_and_a_busy_host_are_named(tmp_path: Path) -> None:
    with known_server(tmp_path, *POOL) as known:
        run, _ = verified(known.url, repeats=1)
    assert run.client is not None
    client = run.client.model_copy(update={"proxy": True, "load_average": 1e4})
    found = causes.likely_causes(run.model_copy(update={"client": client}), None)
    assert {cause.id for cause in found} == {"proxy", "host-busy"}
    assert len({check.__name__ for check in causes.CAUSE_CHECKS}) == len(causes.CAUSE_CHECKS)
