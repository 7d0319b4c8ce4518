"""Untimed pages: odd hosts, keys, proxies and connections end in a page or in one line."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qwendeploy.engines.metrics import Metrics
from qwendeploy.errors import EnvironmentProblem, UserError
from qwendeploy.verification.wire.client import Client, Page
from qwendeploy.verification.wire.replicas import replicas_seen
from qwendeploy.verification.wire.target import Target, resolve_target

Connection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def pages_of(serve: Connection, times: int, **asked: Any) -> list[Page]:
    """Return a page asked for several times from a server that treats connections so."""
    ended: list[asyncio.Future[None]] = []

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(asyncio.get_running_loop().create_future())
        place = ended[-1]
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            await writer.wait_closed()
            place.set_result(None)

    server = await asyncio.start_server(serve_and_close, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        async with Client(resolve_target(address)) as client:
            pages = [await client.page("/tokenize", timeout=10, **asked) for _ in range(times)]
        await asyncio.gather(*ended)
    return pages


def test_a_connection_closed_after_it_was_promised_loses_no_page() -> None:
    connections = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.read(1)  # closes on the second request, not before

    pages = asyncio.run(pages_of(once, 3))
    assert [page.text for page in pages] == ["ok"] * 3
    assert len(connections) == 3


def test_a_connection_is_kept_between_pages() -> None:
    connections = []

    async def kept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(OK)

    assert len(asyncio.run(pages_of(kept, 5))) == 5
    assert len(connections) == 1


def test_half_characters_of_a_model_are_asked_about() -> None:
    bodies = []

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        bodies.append(json.loads(await reader.readexactly(length)))
        writer.write(OK)

    asyncio.run(pages_of(heard, 1, body={"prompt": "a\ud83d"}))
    assert bodies == [{"prompt": "a\ud83d"}]


@pytest.mark.parametrize("url", ["http://vllm_ü:8000", "http://xn--ü:8000"])
def test_a_host_that_no_resolver_takes_is_out_of_reach(url: str) -> None:
    async def main() -> None:
        async with Client(resolve_target(url)) as client:
            await client.page("/v1/models")

    with pytest.raises(OSError, match="IDNA"):
        asyncio.run(main())


def test_nobody_listening_is_told_as_the_system_tells_it() -> None:
    async def main() -> None:
        async with Client(Target("http://127.0.0.1:9")) as client:
            await client.page("/v1/models")

    with pytest.raises(OSError, match="Connect call failed"):
        asyncio.run(main())


def test_replicas_are_not_looked_for_beyond_the_last_port() -> None:
    async def main() -> tuple[int, int]:
        async with Client(Target("http://127.0.0.1:65535")) as client:
            return await replicas_seen(client, Metrics({"running": 0.0}), 2)

    assert asyncio.run(main()) == (2, 1)


@pytest.mark.parametrize("key", ["ab+cd/ef==\n", "ab\rcd", "ab\udcffcd"])
def test_a_key_that_no_header_carries_is_refused_unseen(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QWENDEPLOY_API_KEY", key)
    with pytest.raises(UserError, match="the key holds") as caught:
        resolve_target("http://127.0.0.1:8000")
    assert "ab" not in str(caught.value)


@pytest.mark.parametrize(
    "proxy", ["socks5://u:hunter2@proxy:1", "ftp://u:hunter2@proxy", "http://u:hunter2@proxy:99999"]
)
def test_a_proxy_of_another_kind_is_refused_in_one_line(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, proxy)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EnvironmentProblem, match="--no-proxy") as caught:
        resolve_target("http://server.example:8000")
    assert "hunter2" not in str(caught.value)
    assert resolve_target("http://server.example:8000", use_proxy=False).proxy is None
