"""An address may carry a path, and the pages beside the API lie below it or at the root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from known import free_port, known_server
from measuring import POOL, verified
from odd_proxy import Odd, odd_proxy

from qwendeploy.errors import ExitCode, UserError
from qwendeploy.verification.wire.target import parse_base_url

BELOW = "/proxy/qwen"
PAGES = ("/metrics", "/version", "/tokenize", "/health")


@pytest.mark.parametrize(
    ("odd", "end"),
    [
        pytest.param(Odd(), "/v1", id="v1-alone"),
        pytest.param(Odd(), "/v1/", id="trailing-slash"),
        pytest.param(Odd(prefix=BELOW), "/proxy/qwen/v1", id="all-below"),
        pytest.param(Odd(prefix=BELOW), "//proxy/qwen/v1//", id="doubled-slashes"),
        pytest.param(Odd(prefix=BELOW, at_root=PAGES), "/proxy/qwen/v1", id="pages-at-the-root"),
        pytest.param(Odd(prefix=BELOW), "/proxy/qwen/v1/chat/completions", id="page-copied"),
    ],
)
def test_every_page_is_found(tmp_path: Path, odd: Odd, end: str) -> None:
    with known_server(tmp_path, *POOL) as known, odd_proxy(known.url, odd) as url:
        run, _ = verified(url + end, repeats=1)
    assert run.status == "complete"
    assert run.server is not None
    assert run.server.version == "0.22.0"
    assert run.server.metrics and run.server.kv_pool_blocks == 100_000
    assert run.server.tokenize
    assert run.server.not_offered == ()
    rate = run.figures["aggregate_decode_tps"]
    assert rate is not None and rate.value == pytest.approx(200, rel=0.1)


def test_pages_of_another_server_at_the_root_are_left_alone(tmp_path: Path) -> None:
    """The root of the host shows metrics and a version, but of another model."""

    def renamed(text: str) -> str:
        return text.replace("known", "other")

    odd = Odd(prefix=BELOW, at_root=PAGES, pages={"/metrics": renamed})
    with known_server(tmp_path, *POOL) as known, odd_proxy(known.url, odd) as url:
        run, _ = verified(f"{url}{BELOW}/v1", repeats=1)
    assert run.server is not None
    assert {"/version", "/metrics", "/tokenize"} <= set(run.server.not_offered)
    assert run.server.boot_id is None and run.server.version is None
    assert run.figures["aggregate_decode_tps"] is not None


NOT_ADDRESSES = {
    "words": "not a url",
    "scheme": "gopher://h",
    "file": "file:///etc/passwd",
    "unix": "unix:///run/server.sock",
    "no-host": "http://",
    "port-too-high": "http://h:65536",
    "port-zero": "http://h:0",
    "port-negative": "http://h:-1",
    "port-a-word": "h:port",
    "empty-label": "http://a..b",
    "number-for-an-address": "http://1.2.3.999",
    "marks": "http://ho<st>",
    "star": "http://*:8000",
    "bracket": "http://[::1",
    "no-ipv6": "http://[zz]:1",
    "query": "http://h/?key=s3cr3t",
    "newline": "http://h\n.example",
    "empty": "",
}
SECRETS = {
    "plain": "http://user:s3cr3t@h:1",
    "slash": "http://user:s3cr3t/more@h",
    "at": "http://user:s3@cr3t@h",
    "hash": "http://user:s3cr3t#x@h",
    "question": "http://user:s3cr3t?x@h",
    "without-scheme": "user:s3cr3t@h:8000",
    "user-alone": "http://s3cr3t@h",
}


@pytest.mark.parametrize("name", [*NOT_ADDRESSES, *SECRETS])
def test_what_is_no_address_is_the_users_error(name: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_base_url({**NOT_ADDRESSES, **SECRETS}[name])
    assert caught.value.exit_code is ExitCode.USAGE
    told = str(caught.value)
    assert "s3cr3t" not in told and "cr3t" not in told
    assert "\n" not in told
    assert ("credentials" in told) is (name in SECRETS)


@pytest.mark.parametrize(
    "text",
    ["localhost", "http://gpu_box:8000", "http://münchen.example", "http://[fe80::1%25eth0]:8000",
     "https://a-b.example.:443/x/v1", "HTTP://H:1", "127.0.0.1", "http://xn--mnchen-3ya.example"],
)  # fmt: skip
def test_what_is_an_address_is_taken(text: str) -> None:
    assert parse_base_url(text).lower().startswith("http")


def test_credentials_come_into_no_file(tmp_path: Path) -> None:
    from test_verify_and_compare_on_the_command_line import qwendeploy

    words = ("verify", "--url", f"http://me:hunter2@127.0.0.1:{free_port()}", "-o", "run")
    done = qwendeploy(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "hunter2" not in done.stdout + done.stderr
    assert not (tmp_path / "run").exists()
    done = qwendeploy("verify", "--url", "not a url", "--json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'not a url' is not an http address" in done.stderr
    assert json.dumps(done.stderr).count("\\n") == 1
