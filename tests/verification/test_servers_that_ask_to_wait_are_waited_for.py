"""``Retry-After``: respected within bounds, and told; a refusal stays a failed request."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from known import known_server
from measuring import verified
from odd_proxy import Odd, odd_proxy

from qwendeploy.errors import EnvironmentProblem
from qwendeploy.reporting.verify_text import verify_text
from qwendeploy.verification.wire import backing_off
from qwendeploy.verification.wire.backing_off import BackingOff, retry_after

DATE = "Mon, 30 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        pytest.param(429, {"Retry-After": "7"}, 7, id="seconds"),
        pytest.param(503, {"Retry-After": " 0 "}, 0, id="now"),
        pytest.param(503, {"Retry-After": "1.5"}, 1.5, id="broken-seconds"),
        pytest.param(
            429,
            {"Retry-After": "Mon, 30 Nov 2026 12:00:20 GMT", "Date": DATE},
            20,
            id="date-by-the-servers-clock",
        ),
        pytest.param(
            429, {"Retry-After": "Mon, 30 Nov 2026 11:59:00 GMT", "Date": DATE}, 0, id="past"
        ),
        pytest.param(429, {"Retry-After": "soon"}, None, id="words"),
        pytest.param(429, {"Retry-After": "-3"}, None, id="negative"),
        pytest.param(429, {"Retry-After": "²"}, None, id="no-digit"),
        pytest.param(429, {}, None, id="none"),
        pytest.param(500, {"Retry-After": "7"}, None, id="no-refusal"),
        pytest.param(200, {"Retry-After": "7"}, None, id="success"),
    ],
)
def test_what_a_refusal_asks_for_is_read(
    status: int, headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(status, headers) == seconds


def test_waits_are_bounded_each_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    waits = BackingOff()
    waits.told(1e9)
    assert waits.until - now == waits.waited_s == backing_off.LONGEST_S
    waits.told(5)
    assert waits.waited_s == backing_off.LONGEST_S, "waits that overlap are one"
    for _ in range(9):
        now = waits.until
        waits.told(1e9)
    assert waits.waited_s == backing_off.IN_ALL_S
    assert waits.until == now
    assert "Retry-After 11 times" in str(waits) and "at most 1e+09 s" in str(waits)


def test_nothing_is_sent_before_the_moment_that_was_named(tmp_path: Path) -> None:
    """The second generation is refused for a second and more; the run comes through."""
    odd = Odd(refuse=lambda number: (429, {"Retry-After": "1"}) if number == 1 else None)
    with known_server(tmp_path, "--tokens", "2") as known, odd_proxy(known.url, odd) as url:
        run, report = verified(url, repeats=1)
    times = [at for path, at in odd.asked if path.endswith("completions")]
    assert times[2] - times[1] >= 0.99
    assert run.status == "complete"
    assert any("sent Retry-After once" in text for text in run.warnings)
    assert "the client waited 1.0 s" in verify_text(report)


def test_a_refused_prompt_is_counted_and_tried_again(tmp_path: Path) -> None:
    """A refusal inside the first-token test is beside its latencies, not in them."""
    first: list[int] = []

    def refuse(number: int) -> tuple[int, dict[str, str]] | None:
        if number >= 4 and not first:
            first.append(number)
            return 503, {"Retry-After": "0"}
        return None

    odd = Odd(refuse=refuse)
    with known_server(tmp_path, "--tokens", "2") as known, odd_proxy(known.url, odd) as url:
        run, _ = verified(url, repeats=6)
    failed = [step for step in run.steps if step.requests.failed]
    assert [step.requests.failures for step in failed] == [{"status 503": 1}]
    assert run.figures["ttft_cold_ms"] is not None


def test_a_server_that_only_refuses_ends_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backing_off, "LONGEST_S", 0.3)
    odd = Odd(refuse=lambda _number: (429, {"Retry-After": "3600"}))
    begun = time.monotonic()
    with (
        known_server(tmp_path) as known,
        odd_proxy(known.url, odd) as url,
        pytest.raises(EnvironmentProblem, match="429"),
    ):
        verified(url)
    assert time.monotonic() - begun < 10


def test_a_gate_that_was_put_off_did_not_run(tmp_path: Path) -> None:
    from measuring import on_client

    from qwendeploy.verification.gates import run_gates
    from qwendeploy.verification.wire.client import Client
    from qwendeploy.verification.wire.server import Surface

    refusing: list[bool] = []
    odd = Odd(refuse=lambda _number: (429, {"Retry-After": "0"}) if refusing else None)

    async def work(client: Client, surface: Surface) -> list[tuple[str, str]]:
        refusing.append(True)
        gates = await run_gates(client, surface, None, "g", lambda _text, _share: None)
        return [(gate.outcome, gate.reason) for gate in gates]

    with known_server(tmp_path, "--max-model-len", "6000") as known, odd_proxy(known.url, odd) as u:
        found = on_client(u, work)
    assert {outcome for outcome, _ in found} == {"not_run"}
    assert any("is not accepting requests" in reason for _, reason in found)
