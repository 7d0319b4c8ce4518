"""Servers that err, stall, die, lie or need another way in: bounded, recorded, never a success."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from known import Known, free_port, known_server
from measuring import BRIEF, POOL, on_client, small_plan, verified

from qwendeploy.errors import EnvironmentProblem, UserError
from qwendeploy.verification.verifying import verify
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.records import Record
from qwendeploy.verification.wire.server import Surface
from qwendeploy.verification.wire.target import redact, resolve_target


def fault(kind: str, **more: Any) -> str:
    return json.dumps([{"kind": kind, "at": [1], **more}])


def one_request(known: Known) -> Record:
    """Return the request after the survey's own, which is the one that faults strike."""

    async def work(client: Client, surface: Surface) -> Record:
        body = surface.body([{"role": "user", "content": "a story"}], 40)
        return await client.stream(body)

    return on_client(known.url, work, limits=BRIEF)


@pytest.mark.parametrize(
    ("faults", "failure", "words"),
    [
        pytest.param(fault("status", value=500), "status", "500", id="500"),
        pytest.param(fault("status", value=429), "status", "429", id="429"),
        pytest.param(fault("status", value=302), "status", "302", id="redirect-not-followed"),
        pytest.param(fault("stall", after=0), "timeout_first", "no token", id="stall-before"),
        pytest.param(fault("stall", after=9), "timeout_gap", "no token for 1.5", id="stall-after"),
        pytest.param(fault("reset", after=9), "cut", "", id="reset"),
        pytest.param(fault("eof", after=9), "cut", "[DONE]", id="cut-without-end-mark"),
        pytest.param(fault("no_done"), "cut", "[DONE]", id="all-but-the-end-mark"),
        pytest.param(fault("invalid", after=9), "invalid", "", id="invalid-json"),
        pytest.param(fault("huge", after=9, value=9_000_000), "invalid", "bytes", id="huge-line"),
        pytest.param(fault("error_event", after=9), "server_error", "boom", id="error-in-stream"),
        pytest.param(
            fault("wrong_usage", value=3), "usage", "more than max_tokens 40", id="usage-too-high"
        ),
        pytest.param(fault("wrong_usage", value=0.3), "usage", "chunks", id="usage-too-low"),
        pytest.param(fault("die", after=9), "cut", "", id="dies"),
    ],
)
def test_a_failed_stream_is_a_record_with_its_kind(
    tmp_path: Path, faults: str, failure: str, words: str
) -> None:
    with known_server(tmp_path, "--step-ms", "5", "--faults", faults) as known:
        begun = time.monotonic()
        record = one_request(known)
    assert record.failure == failure, record.message
    assert words in record.message
    assert not record.ok
    assert time.monotonic() - begun < 8


def test_keep_alive_comments_do_not_hide_a_stall() -> None:
    """Bytes arrive for ever, tokens do not: the gap limit counts tokens."""
    import asyncio

    async def chatter(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        try:
            while True:
                writer.write(b": still here\n\n")
                await writer.drain()
                await asyncio.sleep(0.05)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def main() -> Record:
        port = free_port()
        server = await asyncio.start_server(chatter, "127.0.0.1", port)
        try:
            async with Client(resolve_target(f"http://127.0.0.1:{port}"), BRIEF) as client:
                return await client.stream({"model": "x", "max_tokens": 4})
        finally:
            server.close()

    record = asyncio.run(main())
    assert record.failure == "timeout_first"


def test_a_connection_closed_after_it_was_promised_is_not_a_failure(tmp_path: Path) -> None:
    with known_server(tmp_path, "--step-ms", "5", "--tokens", "2", "--drop-kept") as known:
        run, _ = verified(known.url, repeats=6, contexts="separate")
    latency = next(step for step in run.steps if step.shape == "prompt")
    assert latency.requests.succeeded == latency.requests.sent == 6


def test_failures_are_beside_the_latencies_never_in_them(tmp_path: Path) -> None:
    faults = json.dumps([{"kind": "status", "value": 500, "at": [3]}])
    with known_server(tmp_path, *POOL, "--faults", faults) as known:
        run, report = verified(known.url, small_plan())
    latency = next(step for step in run.steps if step.shape == "prompt")
    assert latency.requests.failures == {"status 500": 1}
    spread = next(s for s in latency.distributions if s.name == "ttft_cold")
    assert spread.n == latency.requests.succeeded == 1
    assert report.verdicts[0].quantity == "aggregate_decode_tps"


def test_a_server_that_dies_under_load_ends_the_run(tmp_path: Path) -> None:
    faults = json.dumps([{"kind": "die", "at": [5], "after": 30}])
    with known_server(tmp_path, *POOL, "--faults", faults) as known:
        begun = time.monotonic()
        run, report = verified(known.url, small_plan(), fill=True)
    assert time.monotonic() - begun < 30
    step = next(step for step in run.steps if step.shape == "decode")
    assert step.requests.failed >= 4
    assert run.figures["aggregate_decode_tps"] is None
    assert "too many requests failed" in run.reasons["aggregate_decode_tps"]
    assert report.outcome == "inconclusive"
    assert report.exit_code == 4
    assert "stopped responding" in report.statement
    assert not run.fill.tested


def test_a_server_that_restarts_decides_nothing(tmp_path: Path) -> None:
    faults = json.dumps([{"kind": "reboot", "at": [5], "after": 30}])
    with known_server(tmp_path, *POOL, "--faults", faults) as known:
        run, report = verified(known.url, small_plan(), repeats=2, rate_only=True)
    assert any("restarted" in text for text in run.warnings)
    assert report.outcome == "inconclusive", report.statement
    assert "restarted during" in report.verdicts[0].reason
    assert report.causes[0].id == "restarted"


def test_without_a_plan_a_rate_in_doubt_is_said_to_be(tmp_path: Path) -> None:
    faults = json.dumps([{"kind": "reboot", "at": [5], "after": 30}])
    with known_server(tmp_path, *POOL, "--faults", faults) as known:
        _, report = verified(known.url, repeats=2, concurrency=3)
    assert "not reliable: the server restarted" in report.statement


def test_a_server_that_dies_on_its_first_request_is_an_environment_problem(tmp_path: Path) -> None:
    faults = json.dumps([{"kind": "die", "at": [0], "after": 0}])
    with (
        known_server(tmp_path, "--faults", faults) as known,
        pytest.raises(EnvironmentProblem, match="trial request fails"),
    ):
        verified(known.url)


def test_a_usage_that_counts_too_much_decides_nothing(tmp_path: Path) -> None:
    """Twice the tokens, below every limit: only the server's own counter shows it."""
    faults = json.dumps([{"kind": "wrong_usage", "value": 2, "at": list(range(1, 40))}])
    settings = ("--tokens", "1", "--max-model-len", "8000", "--faults", faults)
    with known_server(tmp_path, *settings) as known:
        run, report = verified(known.url, small_plan(300))
    assert report.outcome == "inconclusive"
    assert "usage-too-high" in [cause.id for cause in report.causes], run.steps[-1].server


def test_wrong_model_and_wrong_key_are_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with known_server(tmp_path, "--api-key", "secret-key-1") as known:
        with pytest.raises(UserError, match="rejects the API key"):
            verified(known.url)
        monkeypatch.setenv("QWENDEPLOY_API_KEY", "secret-key-1")
        target = resolve_target(known.url, model="other")
        from measuring import brief_settings

        with pytest.raises(UserError, match=r"the server serves known, not 'other'"):
            verify(None, target, brief_settings())
        run, report = verified(known.url, directory=tmp_path / "run")
    assert report.exit_code == 0
    stored = (tmp_path / "run" / "run.json").read_text()
    assert "secret-key-1" not in stored + report.model_dump_json() + run.model_dump_json()


def test_nothing_listening_is_an_environment_problem() -> None:
    with pytest.raises(EnvironmentProblem, match="not ready"):
        verified(f"http://127.0.0.1:{free_port()}", wait_s=0.2)


def test_a_server_that_boots_is_waited_for() -> None:
    import threading

    port = free_port()
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        import sys

        from known import SERVER

        started.append(
            subprocess.Popen(
                [sys.executable, str(SERVER), "--port", str(port), "--step-ms", "10"],
                stdout=subprocess.DEVNULL,
            )
        )

    timer = threading.Timer(1.0, start)
    timer.start()
    try:
        run, _ = verified(f"http://127.0.0.1:{port}", wait_s=15)
    finally:
        timer.join()
        for process in started:
            process.kill()
            process.wait()
    assert run.status == "complete"


def test_no_metrics_no_version_no_tokenizer_is_said_not_zero(tmp_path: Path) -> None:
    absent = "/metrics,/version,/tokenize"
    with known_server(tmp_path, "--absent", absent, "--tokens", "2") as known:
        run, _ = verified(known.url)
    assert run.server is not None
    assert {"/version", "/metrics", "/tokenize"} <= set(run.server.not_offered)
    assert run.server.drafting is None
    assert run.figures["kv_usage"] is None
    assert run.reasons["kv_usage"] == "not reported by the server"
    assert run.figures["aggregate_decode_tps"] is not None
    step = run.steps[-1]
    assert set(step.server.values()) == {None}


def test_tls_is_checked_unless_told_otherwise(tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    done = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key.pem",
         "-out", tmp_path / "cert.pem"],
        capture_output=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("openssl cannot make a certificate here")
    cert = tmp_path / "cert.pem"
    pem.write_text((tmp_path / "key.pem").read_text() + cert.read_text())
    from measuring import brief_settings

    with known_server(tmp_path, "--certificate", str(pem), "--step-ms", "10") as known:
        with pytest.raises(EnvironmentProblem, match="TLS"):
            verified(known.url)
        run, _ = verify(None, resolve_target(known.url, ca_file=cert), brief_settings())
        assert run.status == "complete"
        run, _ = verify(None, resolve_target(known.url, insecure=True), brief_settings())
        assert run.status == "complete"
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    with pytest.raises(EnvironmentProblem, match="certificate file"):
        verify(None, resolve_target("https://127.0.0.1:1", ca_file=bad), brief_settings())
    assert ssl.OPENSSL_VERSION


def test_proxies_of_the_environment_are_left_alone_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = f"http://user:hunter2@127.0.0.1:{free_port()}"
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, dead)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with known_server(tmp_path, "--step-ms", "10") as known:
        run, _ = verified(known.url)
    assert run.status == "complete"
    assert run.client is not None and run.client.proxy is False
    assert resolve_target("http://server.example:8000").proxy == dead
    assert resolve_target("http://server.example:8000", use_proxy=False).proxy is None
    assert resolve_target("http://127.0.0.1:8000", use_proxy=True).proxy == dead
    assert "hunter2" not in repr(resolve_target("http://server.example:8000"))


@pytest.mark.parametrize(
    ("text", "url"),
    [
        pytest.param("127.0.0.1:8000", "http://127.0.0.1:8000", id="scheme-added"),
        pytest.param("http://h:1/v1/", "http://h:1", id="v1-cut"),
        pytest.param("https://h/base/v1", "https://h/base", id="path-kept"),
        pytest.param("http://[::1]:8000", "http://[::1]:8000", id="ipv6"),
        pytest.param("http://h:1/v1/chat/completions", "http://h:1", id="page-copied"),
        pytest.param("https://h/base/v1/models/", "https://h/base", id="page-below-a-path"),
        pytest.param(" http://h:1 ", "http://h:1", id="blanks"),
    ],
)
def test_addresses_are_read_as_people_write_them(text: str, url: str) -> None:
    assert resolve_target(text).base_url == url


@pytest.mark.parametrize(
    "text",
    ["ftp://h", "http://", "http://u:p@h:1", "http://h:port", "http://h/?a=b", "http://h:99999"],
)
def test_bad_addresses_are_refused_without_repeating_secrets(text: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve_target(text)
    assert "u:p" not in str(caught.value)


def test_keys_in_messages_are_hidden() -> None:
    text = "Bearer abc.def-123 at http://me:pw@host/ with sk-abcdefgh and hf_abcdefgh"
    hidden = redact(text)
    for secret in ("abc.def", "me:pw", "sk-abcdefgh", "hf_abcdefgh"):
        assert secret not in hidden


@pytest.mark.parametrize(
    ("content", "key"),
    [
        pytest.param("k-123\n", "k-123", id="alone"),
        pytest.param("VLLM_API_KEY=k-123\nHF_TOKEN=x\n", "k-123", id="env-file"),
        pytest.param("VLLM_API_KEY='k-123'", "k-123", id="quoted"),
    ],
)
def test_key_files_are_read(tmp_path: Path, content: str, key: str) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    assert resolve_target("http://h", api_key_file=file).api_key == key


def test_key_files_without_key_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("two words\n")
    with pytest.raises(UserError, match="no API key in the key file"):
        resolve_target("http://h", api_key_file=file)
    with pytest.raises(UserError, match="cannot read the key file"):
        resolve_target("http://h", api_key_file=tmp_path / "none")
