"""Pages of a server on this host: any key, bounded, and no answer instead of a crash."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from qwendeploy.running import http


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/key":
            self.answer(self.headers["Authorization"].encode("latin-1"))
        elif self.path == "/large":
            self.answer(b"x" * (http.LARGEST + 1000))
        elif self.path == "/zip":
            self.answer(b"no gzip", {"Content-Encoding": "gzip"})
        elif self.path == "/moved":
            self.answer(b"", {"Location": "/large"}, 302)
        elif self.path == "/circle":
            self.answer(b"", {"Location": "/circle"}, 302)
        elif self.path == "/nowhere":
            self.answer(b"", {"Location": "http://[::1"}, 302)
        else:
            self.answer(b"{}", status=503)

    def answer(self, text: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("key", ["abc", "kéy", "键"])
def test_any_key_arrives(url: str, key: str) -> None:
    assert http.get(f"{url}/key", api_key=key).text == f"Bearer {key}"


def test_no_more_than_the_bound_is_kept_also_after_a_redirect(url: str) -> None:
    for path in ("/large", "/moved"):
        page = http.get(url + path)
        assert (page.status, len(page.text)) == (200, http.LARGEST)


def test_a_refusal_keeps_its_status_and_text(url: str) -> None:
    page = http.get(f"{url}/other")
    assert (page.status, page.json) == (503, {})


@pytest.mark.parametrize("path", ["/zip", "/circle", "/nowhere"])
def test_what_cannot_be_read_is_no_answer(url: str, path: str) -> None:
    assert http.get(url + path).status == 0


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "http://[::1"])
def test_nobody_there_is_no_answer(address: str) -> None:
    assert http.get(address).status == 0


def test_no_proxy_is_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    assert http.get(f"{url}/other").status == 503
