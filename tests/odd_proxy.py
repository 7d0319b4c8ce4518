"""Something odd between client and known server: pages rewritten, events changed, requests refused.

Runs on a loop of its own in a thread of the test, so a test hands it functions. Fit for a few
streams; what it adds to times is not what such tests are about.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

Chunk = dict[str, Any]


@dataclass
class Odd:
    """What is odd; the defaults pass everything on as it is."""

    prefix: str = ""
    """Path below which the server is found."""
    at_root: tuple[str, ...] = ()
    """Pages that stay at the root, outside the prefix."""
    pages: dict[str, Callable[[str], str]] = field(default_factory=dict)
    """Changes of plain pages, by path."""
    events: Callable[[int, Chunk], list[Chunk]] | None = None
    """From request number and chunk to the chunks that are sent instead."""
    refuse: Callable[[int], tuple[int, dict[str, str]] | None] = lambda _number: None
    """From the number of a generation to status and headers of a refusal."""
    prompt: Callable[[Chunk], Chunk] = lambda body: body
    """Change of a generation's body."""
    deaf: bool = False
    """Goes on asking the server when its own client has left."""
    asked: list[tuple[str, float]] = field(default_factory=list)
    """Path and time of every request that came."""
    generations: int = 0


class _Proxy:
    def __init__(self, url: str, odd: Odd) -> None:
        self.url, self.odd = url, odd
        self.session: aiohttp.ClientSession

    async def handle(self, request: web.Request) -> web.StreamResponse:
        odd, path = self.odd, request.path
        odd.asked.append((path, asyncio.get_running_loop().time()))
        inside = path.startswith(odd.prefix)
        path = path.removeprefix(odd.prefix) if inside else path
        if (not inside and path not in odd.at_root) or (
            inside and odd.prefix and path in odd.at_root
        ):
            return web.Response(status=404, text="nothing here")
        body = await request.read()
        if path.endswith("/completions"):
            return await self.generate(request, path, json.loads(body))
        async with self.session.request(request.method, self.url + path, data=body) as answer:
            text = await answer.text()
            if path in odd.pages:
                text = odd.pages[path](text)
            return web.Response(status=answer.status, text=text, content_type=answer.content_type)

    async def generate(self, request: web.Request, path: str, body: Chunk) -> web.StreamResponse:
        odd = self.odd
        number, odd.generations = odd.generations, odd.generations + 1
        refusal = odd.refuse(number)
        if refusal is not None:
            return web.Response(status=refusal[0], headers=refusal[1], text="come back later")
        async with self.session.post(self.url + path, json=odd.prompt(body)) as answer:
            response = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]}
            )
            await response.prepare(request)
            there = True
            async for line in answer.content:
                try:
                    if there:
                        await response.write(self.changed(number, line))
                except ConnectionError:
                    there = False
                    if not odd.deaf:
                        break
            with contextlib.suppress(ConnectionError):
                await response.write_eof()
            return response

    def changed(self, number: int, line: bytes) -> bytes:
        if self.odd.events is None or not line.startswith(b"data: {"):
            return line
        chunks = self.odd.events(number, json.loads(line[6:]))
        return b"\n".join(b"data: " + json.dumps(one).encode() + b"\n" for one in chunks)

    async def serve(self, ready: threading.Event, port: list[int], stop: asyncio.Event) -> None:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
        ) as self.session:
            app = web.Application(client_max_size=2**26)
            app.router.add_route("*", "/{path:.*}", self.handle)
            runner = web.AppRunner(
                app, handler_cancellation=not self.odd.deaf, access_log=None, shutdown_timeout=0.1
            )
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port.append(runner.addresses[0][1])
            ready.set()
            await stop.wait()
            await runner.cleanup()


@contextmanager
def odd_proxy(url: str, odd: Odd) -> Iterator[str]:
    """Run the proxy before a server until the block ends; yields its address without prefix."""
    ready = threading.Event()
    port: list[int] = []
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        await _Proxy(url, odd).serve(ready, port, stop)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield f"http://127.0.0.1:{port[0]}"
    finally:
        loop, stop = loops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join()
