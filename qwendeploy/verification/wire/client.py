"""The timed client: aiohttp streams on the running loop, one record per request; pages by httpx.

Every way a stream can go wrong ends in a record with a failure kind; nothing here raises for what
the server did. Deadlines run from token to token, so keep-alive comments do not extend them.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from qwendeploy.engines.metrics import Metrics
from qwendeploy.errors import EnvironmentProblem
from qwendeploy.verification.wire.backing_off import BackingOff, retry_after
from qwendeploy.verification.wire.records import (
    ChunkReader,
    InvalidChunk,
    Record,
    ServerSaidError,
    check_usage,
)
from qwendeploy.verification.wire.sse import SseError, SseParser
from qwendeploy.verification.wire.target import Target, redact

if TYPE_CHECKING:
    import aiohttp
    import httpx

Arrival = Callable[[float, int], None]

STREAMED = ("text/event-stream", "application/octet-stream", "text/plain")
"""Content types under which events come; some servers name none."""
PAGE_LIMIT = 32 * 2**20
"""Bytes of a plain page; the metrics of an engine take some 100 kB."""
STALE_ATTEMPTS = 4
"""Some servers close a connection after a stream that they had promised to keep; a request that
meets such a one is sent again on another, its time starting anew."""

ASKED_AGAIN = 3
"""Times that a question is put to a server that asks to come back later."""


@dataclass(frozen=True)
class Limits:
    """Deadlines in seconds; a request that exceeds one is a failure of its kind."""

    connect: float = 10.0
    first: float = 600.0
    """Sending to first token: a cold 256k prompt takes minutes on a small card."""
    gap: float = 60.0
    """Between tokens: far above any decode step, far below a user's patience."""
    total: float = 7200.0


@dataclass(frozen=True)
class Page:
    """A plain answer."""

    status: int
    text: str
    location: str = ""
    """Where a redirect points, without credentials."""
    retry_after: float | None = None
    """Seconds after which a refusing server wants to be asked again."""

    def json(self) -> Any:
        """Return the parsed body, ``None`` if it is not JSON."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None


class Client:
    """Connections to one server; use as an async context manager."""

    def __init__(self, target: Target, limits: Limits | None = None) -> None:
        self.target = target
        self.limits = limits or Limits()
        self._session: aiohttp.ClientSession | None = None
        self._pages: httpx.AsyncClient | None = None
        self._counter = 0
        self.backing_off = BackingOff()
        self.metrics_at: tuple[str, ...] = ()
        """Where the replicas tell their metrics; empty for the target itself."""
        self.places: dict[str, str] = {}
        """Addresses of pages that are not below the target's own."""
        self.serves: tuple[str, ...] = ()
        """Names of what is measured, the wanted one first: whose metrics are ours."""
        self.held_tokens = True
        """Whether chunks without text hold tokens, where chunks are what is counted."""
        self.last_metrics: Metrics | None = None
        self.restarted = False
        """Whether metrics came from another process than those before."""
        self.metrics_of_another = False
        """Whether the metrics page is not of the server that answers, and so not read."""

    async def __aenter__(self) -> Self:
        import aiohttp
        import httpx

        tls = self._ssl()
        headers = {"Accept-Encoding": "identity"}
        self._pages = httpx.AsyncClient(
            headers=headers,
            verify=tls,
            proxy=self.target.proxy,
            trust_env=False,
            timeout=httpx.Timeout(None, connect=self.limits.connect),
        )
        if self.target.api_key:
            headers["Authorization"] = f"Bearer {self.target.api_key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls, ttl_dns_cache=3600),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.limits.connect),
            headers=headers,
            trust_env=False,
            trace_configs=[_sent_times()],
            auto_decompress=True,
            read_bufsize=2**18,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
        if self._pages is not None:
            await self._pages.aclose()

    def _ssl(self) -> ssl.SSLContext | bool:
        if not self.target.base_url.startswith("https"):
            return True
        if self.target.insecure:
            return False
        try:
            return ssl.create_default_context(
                cafile=str(self.target.ca_file) if self.target.ca_file else None
            )
        except (ssl.SSLError, OSError) as problem:
            raise EnvironmentProblem(
                f"cannot use the certificate file: {problem}", where=str(self.target.ca_file)
            ) from None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session."""
        assert self._session is not None, "the client is not open"
        return self._session

    async def page(
        self,
        path: str,
        *,
        body: Any = None,
        timeout: float = 30.0,
        key: bool = True,
        base: str | None = None,
    ) -> Page:
        """Return a plain page; ``body`` makes it a POST, ``base`` asks another server.

        Raises:
            OSError or asyncio.TimeoutError: the server cannot be reached or does not answer.
        """
        import httpx

        headers: dict[bytes, bytes] = {}
        if body is not None:
            headers[b"Content-Type"] = b"application/json"
        if key and self.target.api_key:
            headers[b"Authorization"] = f"Bearer {self.target.api_key}".encode()
        address = (base or self.places.get(path, self.target.base_url)) + path
        # not httpx's own JSON, which refuses the halves of characters that a model may write
        content = None if body is None else json.dumps(body).encode()
        try:
            async with asyncio.timeout(timeout):
                for attempt in range(STALE_ATTEMPTS):
                    try:
                        return await self._page(address, headers, content)
                    except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                        if attempt == STALE_ATTEMPTS - 1:
                            raise
        except httpx.ConnectError as problem:
            raise OSError(redact(_refusal(problem))) from problem
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise OSError(redact(str(problem)) or type(problem).__name__) from problem
        raise AssertionError("the last attempt returns or raises")

    async def _page(self, address: str, headers: dict[bytes, bytes], content: bytes | None) -> Page:
        """Return a page asked for once; raises what httpx raises."""
        assert self._pages is not None, "the client is not open"
        method = "GET" if content is None else "POST"
        async with self._pages.stream(method, address, headers=headers, content=content) as answer:
            text = (await _bounded(answer)).decode("utf-8", "replace")
        status = answer.status_code
        where = redact(answer.headers.get("Location", ""))
        return Page(status, text, where, retry_after(status, answer.headers))

    async def stream(
        self,
        body: dict[str, Any],
        *,
        path: str = "/v1/chat/completions",
        arrival: Arrival | None = None,
        keep: bool = False,
        record: Record | None = None,
    ) -> Record:
        """Send one streaming request and return its record, complete however it ended.

        ``arrival(time, tokens)`` is called for every chunk with tokens. Cancelling the task closes
        the connection, which makes the server stop generating, and marks the record. Nothing is
        sent before the moment that an earlier refusal named.
        """
        record = record if record is not None else Record(self._next())
        record.limit = int(body.get("max_tokens") or 0)
        payload = json.dumps(body, ensure_ascii=False).encode()
        reader = ChunkReader(record, keep=keep, held=self.held_tokens)
        try:
            await self.backing_off.wait()
            for attempt in range(STALE_ATTEMPTS):
                record.sent_at = time.perf_counter()
                last = attempt == STALE_ATTEMPTS - 1
                if await self._exchange(path, payload, record, reader, arrival, last=last):
                    break
        except asyncio.CancelledError:
            record.cancelled = True
            raise
        finally:
            record.ended_at = time.perf_counter()
            check_usage(record)
        return record

    async def ask(self, body: dict[str, Any], *, keep: bool = False) -> Record:
        """Return the record of a request that is sent again when a refusal names a time for it."""
        for _ in range(ASKED_AGAIN):
            record = await self.stream(body, keep=keep)
            if record.retry_after is None:
                break
        return record

    def _next(self) -> int:
        self._counter += 1
        return self._counter

    async def _exchange(
        self,
        path: str,
        payload: bytes,
        record: Record,
        reader: ChunkReader,
        arrival: Arrival | None,
        *,
        last: bool,
    ) -> bool:
        """Send and read once; false if a kept-alive connection was closed before the request."""
        import aiohttp

        loop = asyncio.get_running_loop()
        end = loop.time() + self.limits.total
        try:
            async with asyncio.timeout_at(min(end, loop.time() + self.limits.first)) as deadline:
                async with self.session.post(
                    self.target.url(path),
                    data=payload,
                    headers={"Content-Type": "application/json"},
                    proxy=self.target.proxy,
                    allow_redirects=False,
                    trace_request_ctx=record,
                ) as answer:
                    record.status = answer.status
                    if answer.status != 200:
                        record.retry_after = retry_after(answer.status, answer.headers)
                        if record.retry_after is not None:
                            self.backing_off.told(record.retry_after)
                        text = (await answer.content.read(2000)).decode("utf-8", "replace")
                        record.fail("status", f"{answer.status}: {_message(text)}")
                        return True
                    if answer.content_type not in STREAMED:
                        text = (await answer.content.read(2000)).decode("utf-8", "replace")
                        what = f"{answer.content_type} instead of an event stream"
                        record.fail("invalid", f"{what}: {_message(text)}")
                        return True
                    await self._read(answer.content, record, reader, arrival, deadline, end)
        except TimeoutError:
            # aiohttp's connect timeout is a TimeoutError too; it comes before any status.
            self._timed_out(record, over=loop.time() >= end)
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError) as problem:
            record.fail("tls", str(problem))
        except aiohttp.ClientConnectorError as problem:
            record.fail("connect", str(problem))
        except aiohttp.ClientPayloadError as problem:
            record.fail("cut", f"the stream ended early: {problem}")
        except (aiohttp.ClientError, OSError) as problem:
            if record.status is None and not last:
                return False
            record.fail("reset", f"{type(problem).__name__}: {problem}")
        return True

    def _timed_out(self, record: Record, *, over: bool) -> None:
        limits = self.limits
        if over:
            record.fail("timeout_total", f"not finished after {limits.total:g} s")
        elif record.first_at is None:
            where = "no response" if record.status is None else "no token"
            record.fail("timeout_first", f"{where} within {limits.first:g} s")
        else:
            record.fail("timeout_gap", f"no token for {limits.gap:g} s")

    async def _read(
        self,
        content: aiohttp.StreamReader,
        record: Record,
        reader: ChunkReader,
        arrival: Arrival | None,
        deadline: asyncio.Timeout,
        end: float,
    ) -> None:
        loop = asyncio.get_running_loop()
        parser = SseParser()
        clock = time.perf_counter
        try:
            while True:
                piece = await content.readany()
                now = clock()
                fresh = 0
                for data in parser.feed(piece) if piece else parser.finish():
                    fresh += reader.apply(data, now)
                if fresh:
                    deadline.reschedule(min(end, loop.time() + self.limits.gap))
                    if arrival is not None:
                        arrival(now, fresh)
                if not piece:
                    break
        except (SseError, InvalidChunk) as problem:
            record.fail("invalid", str(problem))
        except ServerSaidError as problem:
            record.fail("server_error", redact(str(problem)))
        if record.failure is None and not record.done:
            record.fail("cut", "the stream ended without [DONE]")


def _refusal(problem: BaseException) -> str:
    """Return what the system said, where httpx says that nothing could be reached."""
    while (cause := problem.__cause__ or problem.__context__) is not None and str(cause):
        problem = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause
    return str(problem) or type(problem).__name__


async def _bounded(answer: httpx.Response) -> bytes:
    """Return a whole page; raises OSError for one that is no page by its size."""
    pieces, size = [], 0
    async for piece in answer.aiter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > PAGE_LIMIT:
            raise OSError(f"the page has more than {PAGE_LIMIT} bytes")
    return b"".join(pieces)


def _sent_times() -> aiohttp.TraceConfig:
    """Return a trace that times a request from its first byte on the wire.

    In a burst the requests of one loop are built one after the other; what the earlier ones cost
    is not the server's time.
    """
    import aiohttp

    async def sent(_: object, context: Any, __: object) -> None:
        record = context.trace_request_ctx
        if isinstance(record, Record) and record.status is None:
            record.sent_at = time.perf_counter()

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(sent)
    return trace


def _message(text: str) -> str:
    """Return the message of an error body, without secrets."""
    try:
        error = json.loads(text)
        error = error.get("error", error)
        text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        pass
    return redact(" ".join(text.split()))[:200]
