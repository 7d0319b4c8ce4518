"""A router before several known servers: each request goes to the next of them in turn."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if line]
    length = 0
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    body = await reader.readexactly(length)
    return b"\r\n".join([*kept, b"Connection: close", b"", b""]) + body


async def route(port: int, backends: list[int]) -> None:
    """Serve until cancelled; prints a line once the port is open."""
    turns = itertools.cycle(backends)

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there: asyncio.StreamWriter | None = None
        try:
            request = await _request(reader)
            answer, there = await asyncio.open_connection("127.0.0.1", next(turns))
            there.write(request)
            gone = asyncio.create_task(reader.read(1))
            back = asyncio.create_task(_pipe(answer, writer))
            await asyncio.wait({gone, back}, return_when=asyncio.FIRST_COMPLETED)
            for task in (gone, back):
                task.cancel()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            for one in (there, writer):
                if one is not None:
                    one.close()

    server = await asyncio.start_server(connection, "127.0.0.1", port, backlog=512)
    print("routing", flush=True)
    async with server:
        await server.serve_forever()


@contextmanager
def known_router(port: int, backends: list[int]) -> Iterator[str]:
    """Route on ``port`` until the block ends; yields the address."""
    words = [sys.executable, __file__, str(port), *map(str, backends)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("routing")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    asyncio.run(route(int(sys.argv[1]), [int(word) for word in sys.argv[2:]]))
