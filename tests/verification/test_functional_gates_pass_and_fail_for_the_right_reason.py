"""Every gate against a server that answers rightly, and against one that gets just it wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from known import known_server
from measuring import on_client
from odd_proxy import Chunk, Odd, odd_proxy

from qwendeploy.documents import Gate
from qwendeploy.verification import gates
from qwendeploy.verification.gates import GATES, run_gates
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.server import Surface

FAST = ("--step-ms", "1", "--ttft-ms", "1", "--tokens", "16", "--max-model-len", "6000",
        "--prefix-cache", "--block-tokens", "200")  # fmt: skip


def gates_of(url: str, seed: str = "gates", count: int = len(GATES)) -> dict[str, Gate]:
    async def work(client: Client, surface: Surface) -> tuple[Gate, ...]:
        return await run_gates(client, surface, None, seed, lambda _text, _share: None)

    found = on_client(url, work)
    assert len(found) == count
    return {gate.id: gate for gate in found}


@pytest.mark.parametrize("version", ["0.20.1", "0.32.0"])
def test_a_right_server_passes_every_gate(tmp_path: Path, version: str) -> None:
    with known_server(tmp_path, *FAST, "--version", version) as known:
        found = gates_of(known.url)
    assert {gate.id: (gate.outcome, gate.reason) for gate in found.values() if
            gate.outcome != "passed"} == {}  # fmt: skip
    assert "cached tokens" in found["prefix-cache"].reason
    assert "maximum context length" in found["over-length"].reason
    assert all(gate.transcript for gate in found.values() if gate.id != "cancel")


ANSWERED = [name for name in GATES if name not in ("cancel", "over-length")]


def test_each_wrong_answer_fails_its_gate_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ANSWERED:
        monkeypatch.setenv("KNOWN_WRONG", name)
        with known_server(tmp_path, *FAST) as known:
            found = gates_of(known.url)
        failed = {gate.id for gate in found.values() if gate.outcome == "failed"}
        also = {"prefix-cache"} if name == "tool-call" else set()  # its dialogue uses the tool
        assert failed == {name} | also
        assert found[name].reason and found[name].transcript


def only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this gate alone run."""
    monkeypatch.setattr(gates, "GATES", {name: GATES[name]})


def test_a_server_that_works_on_for_nobody_fails_the_cancel_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands before the engine does not tell it that the clients have left."""
    only("cancel", monkeypatch)
    odd = Odd(deaf=True)
    with known_server(tmp_path, "--max-model-len", "6000") as known, odd_proxy(known.url, odd) as u:
        found = gates_of(u, count=1)["cancel"]
    assert found.outcome == "failed"
    assert "4 requests still run 10 s after their clients disconnected" in found.reason


def shortened(body: Chunk) -> Chunk:
    body["messages"][-1]["content"] = body["messages"][-1]["content"][-4000:]
    return body


def failing_from(first: int) -> Odd:
    return Odd(refuse=lambda number: (500, {}) if number >= first else None)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        pytest.param(Odd(prompt=shortened), "tokens was accepted", id="cuts-the-prompt"),
        pytest.param(failing_from(2), "rejected with status 500", id="fails-inside"),
        pytest.param(failing_from(3), "the next request fails", id="fails-afterwards"),
    ],
)
def test_a_server_that_takes_what_is_too_long_fails_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: Odd, why: str
) -> None:
    only("over-length", monkeypatch)
    with known_server(tmp_path, *FAST) as known, odd_proxy(known.url, odd) as url:
        found = gates_of(url, count=1)["over-length"]
    assert (found.outcome, why in found.reason) == ("failed", True), found.reason


def test_gates_that_cannot_run_say_why(tmp_path: Path) -> None:
    settings = ("--step-ms", "1", "--ttft-ms", "1", "--tokens", "16", "--max-model-len", "6000")
    with known_server(tmp_path, *settings, "--absent", "/metrics") as known:
        found = gates_of(known.url)
    assert found["cancel"].outcome == "not_run"
    assert "/metrics" in found["cancel"].reason
    with known_server(tmp_path, *settings) as known:
        found = gates_of(known.url)
    assert found["prefix-cache"].outcome == "not_run"
    assert "off" in found["prefix-cache"].reason


def test_fields_that_a_server_refuses_are_left_out(tmp_path: Path) -> None:
    """A server without chat_template_kwargs is asked without it, one without tools fails there."""
    refused = "chat_template_kwargs,response_format,tools"
    with known_server(tmp_path, *FAST, "--reject-fields", refused) as known:
        found = gates_of(known.url)
    assert found["arithmetic"].outcome == "passed"
    assert found["json-mode"].outcome == "not_run"
    assert found["tool-call"].outcome == "failed"
    assert "rejects" in found["tool-call"].reason
    assert found["prefix-cache"].outcome == "passed"


def test_a_server_that_went_away_fails_no_gate(tmp_path: Path) -> None:
    def gone_at(number: int) -> dict[str, Gate]:
        faults = json.dumps([{"kind": "die", "at": [number], "after": 0}])
        with known_server(tmp_path, *FAST, "--die", "exit", "--faults", faults) as known:
            return gates_of(known.url)

    found = next(gates for gates in map(gone_at, range(2, 8)) if gates["arithmetic"].reason)
    outcomes = [gate.outcome for gate in found.values()]
    assert "failed" not in outcomes and outcomes.count("not_run") >= len(GATES) - 2
    assert "stopped responding" in found["needle"].reason
