"""Streams over HTTP/1.0, after interim answers, without a type, byte by byte; and no HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from measuring import BRIEF

from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.records import Record
from qwendeploy.verification.wire.target import resolve_target

Send = Callable[[bytes], Awaitable[None]]


def event(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}\n\n'
STREAM = b"".join([event("né"), event("→🙂"), event("c", "length"), USAGE, b"data: [DONE]\n\n"])
TYPED = b"Content-Type: text/event-stream\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\n" + TYPED + b"Transfer-Encoding: chunked\r\n\r\n"


async def in_chunks(send: Send, size: int) -> None:
    for start in range(0, len(STREAM), size):
        piece = STREAM[start : start + size]
        await send(b"%x\r\n%b\r\n" % (len(piece), piece))
    await send(b"0\r\n\r\n")


async def http_1_0(send: Send) -> None:
    await send(b"HTTP/1.0 200 OK\r\n" + TYPED + b"\r\n")
    for start in range(0, len(STREAM), 3):
        await send(STREAM[start : start + 3])


async def after_continue(send: Send) -> None:
    await send(b"HTTP/1.1 100 Continue\r\n\r\n")
    await asyncio.sleep(0.02)
    await send(CHUNKED)
    await in_chunks(send, 40)


async def after_early_hints(send: Send) -> None:
    await send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
    await send(CHUNKED)
    await in_chunks(send, 1000)


async def without_type(send: Send) -> None:
    await send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + STREAM)


async def byte_by_byte(send: Send) -> None:
    await send(CHUNKED)
    await in_chunks(send, 1)


async def http_1_0_cut(send: Send) -> None:
    await send(b"HTTP/1.0 200 OK\r\n" + TYPED + b"\r\n" + event("né"))


async def tls_alert(send: Send) -> None:
    await send(b"\x15\x03\x01\x00\x02\x02\x46")


async def nothing(_: Send) -> None:
    pass


def record_of(answer: Callable[[Send], Awaitable[None]]) -> Record:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(piece: bytes) -> None:
            writer.write(piece)
            await writer.drain()

        head = await reader.readuntil(b"\r\n\r\n")
        lines = [line.lower() for line in head.split(b"\r\n")]
        (length,) = [int(x.split(b":")[1]) for x in lines if x.startswith(b"content-length")]
        await reader.readexactly(length)
        await answer(send)
        writer.close()

    async def main() -> Record:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            async with Client(resolve_target(f"http://127.0.0.1:{port}"), BRIEF) as client:
                return await client.stream({"model": "x", "max_tokens": 3}, keep=True)
        finally:
            server.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    "answer", [http_1_0, after_continue, after_early_hints, without_type, byte_by_byte]
)
def test_a_whole_stream_is_whole(answer: Callable[[Send], Awaitable[None]]) -> None:
    record = record_of(answer)
    assert record.ok, record.message
    assert (record.text, record.tokens, record.prompt_tokens) == ("né→🙂c", 3, 5)


@pytest.mark.parametrize(
    ("answer", "failure"), [(http_1_0_cut, "cut"), (tls_alert, "reset"), (nothing, "reset")]
)
def test_a_broken_one_is_a_failure(answer: Callable[[Send], Awaitable[None]], failure: str) -> None:
    record = record_of(answer)
    assert (record.ok, record.failure) == (False, failure)
