"""An OpenAI-compatible server whose timing is known: it logs when it really sent every token.

Standard library only and one file, so that it also runs inside a container without packages. It
plays a continuous-batching engine: requests queue for seats and KV blocks, every decode step sends
one chunk of one or more tokens to each running request, growing requests may be preempted, and
``/metrics`` tells of it under the names of vLLM 0.20.1 or 0.32.0. ``--log`` receives one JSON line
per finished request; its times are ``time.perf_counter()``, on Linux the clock of every process.

    python known_server.py --port 8000 --step-ms 20 --tokens 3,1,2 --log server.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import importlib
import itertools
import json
import math
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

CHARS_PER_TOKEN = 4
LONG_PROMPT = 1500
"""Tokens from which ``--long-prompts-count`` applies."""
WORDS = ("alpha", "bravo", "cargo", "delta", "ember", "fjord", "grove", "haven")
Answer = Callable[[dict[str, Any]], "dict[str, Any] | None"]


@dataclass
class Fault:
    """What goes wrong for which requests: the ``at``-th, every ``every``-th, or all of them."""

    kind: str
    at: tuple[int, ...] = ()
    every: int = 0
    after: int = 3
    """Tokens sent before it happens."""
    value: float = 0

    def hits(self, number: int) -> bool:
        """Whether request ``number`` (from 0) is struck."""
        if self.at:
            return number in self.at
        return number % self.every == self.every - 1 if self.every else True


@dataclass
class Request:
    """One generation as the engine sees it."""

    number: int
    prompt_tokens: int
    prefix_hashes: tuple[str, ...]
    limit: int
    chat: bool
    faults: dict[str, Fault]
    accepted_at: float
    reply: dict[str, Any] | None = None
    cached_tokens: int = 0
    generated: int = 0
    steps: int = 0
    ready_at: float = 0.0
    state: str = "waiting"
    chunks: asyncio.Queue[tuple[int, bool] | None] = field(default_factory=asyncio.Queue)
    log: list[tuple[float, int]] = field(default_factory=list)

    @property
    def context(self) -> int:
        """Tokens whose keys and values are held."""
        return self.prompt_tokens + self.generated


class Engine:
    """Continuous batching over one block pool, on an absolute step schedule."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.o = options
        self.tokens = [int(part) for part in options.tokens.split(",")]
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.cache: set[str] = set()
        self.counters: dict[str, float] = dict.fromkeys(
            ("preemptions", "prompt", "generated", "queries", "hits", "drafts", "drafted"), 0.0
        )
        self.accepted = [0.0] * max(options.spec_tokens, 0)
        self.finished: dict[str, int] = dict.fromkeys(("stop", "length", "abort", "error"), 0)
        self.ttft: list[float] = []
        self.itl: list[float] = []
        self.work = asyncio.Event()
        self.prefill_free_at = 0.0
        self.started = time.perf_counter()

    def held(self, request: Request) -> int:
        """Blocks that a request holds: attention blocks of its context, plus its states."""
        o = self.o
        blocks = o.attention_groups * math.ceil(max(request.context, 1) / o.block_tokens)
        return int(blocks + o.state_groups * (1 + max(o.spec_tokens, 0)))

    def used(self) -> int:
        """Blocks in use by running requests."""
        return sum(self.held(request) for request in self.running)

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.append(request)
        self.work.set()

    def drop(self, request: Request, reason: str) -> None:
        """Take a request out and count how it ended."""
        for queue in (self.waiting, self.running):
            if request in queue:
                queue.remove(request)
                self.finished[reason] += 1
        request.state = "done"

    def admit(self, now: float) -> None:
        """Start waiting requests while seats and blocks allow."""
        while self.waiting and len(self.running) < self.o.max_num_seqs:
            request = self.waiting[0]
            if self.used() + self.held(request) > self.o.blocks - 1:
                return
            self.waiting.pop(0)
            self.running.append(request)
            request.state = "prefill"
            self._look_up_prefix(request)
            rate = self.o.prefill_tps
            fresh = request.context - request.cached_tokens
            cost = self.o.ttft_ms / 1e3 + (fresh / rate if rate else 0.0)
            start = max(now, self.prefill_free_at) if self.o.serial_prefill else now
            request.ready_at = start + cost
            if self.o.serial_prefill:
                self.prefill_free_at = request.ready_at

    def _look_up_prefix(self, request: Request) -> None:
        request.cached_tokens = 0
        if self.o.prefix_cache:
            for digest in request.prefix_hashes:
                if digest not in self.cache or self.o.forgetful:
                    break
                request.cached_tokens += self.o.block_tokens
            self.cache.update(request.prefix_hashes)
            self.counters["queries"] += request.prompt_tokens
            self.counters["hits"] += request.cached_tokens
        if not request.generated:
            self.counters["prompt"] += request.prompt_tokens

    def step_seconds(self, now: float) -> float:
        """Length of the next decode step; grows with the batch and, if asked, with time."""
        o = self.o
        batch = sum(request.state == "decode" for request in self.running)
        base = (o.step_ms + o.step_ms_per_seq * batch) / 1e3
        return float(base * (1 + o.drift_per_minute * (now - self.started) / 60))

    async def run(self) -> None:
        """Step for ever: absolute schedule, restarted after idling or falling behind."""
        due = time.perf_counter()
        while True:
            if not self.waiting and not self.running:
                self.work.clear()
                await self.work.wait()
                due = time.perf_counter()
            self.admit(time.perf_counter())
            due = max(due + self.step_seconds(due), time.perf_counter())
            await self._first_tokens_until(due)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            for request in list(self.running):
                if request.state == "decode":
                    self._advance(request)

    async def _first_tokens_until(self, due: float) -> None:
        """Send the first tokens that fall due before the next step, each at its own time."""
        while True:
            self.admit(time.perf_counter())
            coming = [r for r in self.running if r.state == "prefill" and r.ready_at <= due]
            if not coming:
                return
            request = min(coming, key=lambda r: r.ready_at)
            await asyncio.sleep(max(0.0, request.ready_at - time.perf_counter()))
            if request.state == "prefill":
                request.state = "decode"
                if request.generated == 0:
                    self._emit(request, 1)
                    self.ttft.append(time.perf_counter() - request.accepted_at)

    def _advance(self, request: Request) -> None:
        count = self.tokens[request.steps % len(self.tokens)]
        request.steps += 1
        if self.o.spec_tokens > 0 and not self.o.draftless:
            self.counters["drafts"] += 1
            self.counters["drafted"] += self.o.spec_tokens
            for position in range(min(count - 1, self.o.spec_tokens)):
                self.accepted[position] += 1
        before = self.held(request)
        self._emit(request, min(count, request.limit - request.generated))
        if request.state == "decode" and self.held(request) > before:
            self._make_room()

    def _make_room(self) -> None:
        while self.used() > self.o.blocks - 1 and len(self.running) > 1:
            victim = self.running.pop()
            victim.state = "waiting"
            self.waiting.insert(0, victim)
            self.counters["preemptions"] += 1

    def _emit(self, request: Request, count: int) -> None:
        request.generated += count
        self.counters["generated"] += count
        done = request.generated >= request.limit
        request.chunks.put_nowait((count, done))
        if done:
            self.drop(request, "stop" if request.reply is not None else "length")


def metrics_text(engine: Engine) -> str:
    """Return the Prometheus page with the names of the version that is played."""
    o = engine.o
    base = f'engine="0",model_name="{o.served_model_name}"'
    modern = o.version.startswith(("0.3", "0.28", "0.29"))
    lines: list[str] = []

    def put(name: str, kind: str, value: float, labels: str = "") -> None:
        head = f"# TYPE {name} {kind}"
        if head not in lines:
            lines.append(head)
        lines.append(f"{name}{{{base}{',' + labels if labels else ''}}} {float(value)}")

    def histogram(name: str, values: list[float], edges: Iterable[float]) -> None:
        lines.append(f"# TYPE {name} histogram")
        for edge in edges:
            count = sum(value <= edge for value in values)
            lines.append(f'{name}_bucket{{{base},le="{edge}"}} {float(count)}')
        lines.append(f'{name}_bucket{{{base},le="+Inf"}} {float(len(values))}')
        lines.append(f"{name}_count{{{base}}} {float(len(values))}")
        lines.append(f"{name}_sum{{{base}}} {sum(values)}")

    count = engine.counters
    lines += [
        "# TYPE process_start_time_seconds gauge",
        f"process_start_time_seconds {o.boot_epoch}",
    ]
    if o.spec_tokens > 0:
        put("vllm:spec_decode_num_drafts_total", "counter", count["drafts"])
        put("vllm:spec_decode_num_draft_tokens_total", "counter", count["drafted"])
        put("vllm:spec_decode_num_accepted_tokens_total", "counter", sum(engine.accepted))
        for position, value in enumerate(engine.accepted):
            name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            put(name, "counter", value, f'position="{position}"')
    put("vllm:num_requests_running", "gauge", len(engine.running))
    put("vllm:num_requests_waiting", "gauge", len(engine.waiting))
    put("vllm:kv_cache_usage_perc", "gauge", engine.used() / (o.blocks - 1))
    put("vllm:prefix_cache_queries_total", "counter", count["queries"])
    put("vllm:prefix_cache_hits_total", "counter", count["hits"])
    put("vllm:num_preemptions_total", "counter", count["preemptions"])
    put("vllm:prompt_tokens_total", "counter", count["prompt"])
    put("vllm:generation_tokens_total", "counter", count["generated"])
    for reason, value in engine.finished.items():
        put("vllm:request_success_total", "counter", value, f'finished_reason="{reason}"')
    histogram("vllm:time_to_first_token_seconds", engine.ttft, (0.001, 0.01, 0.1, 1.0, 10.0))
    histogram("vllm:inter_token_latency_seconds", engine.itl, (0.01, 0.025, 0.1, 1.0))
    info = (
        f'block_size="{o.block_tokens}",cache_dtype="{o.cache_dtype}",'
        f'enable_prefix_caching="{bool(o.prefix_cache)}",'
        f'gpu_memory_utilization="{o.gpu_memory_utilization}",num_gpu_blocks="{o.blocks}"'
    )
    if modern:
        reserve = o.attention_groups * math.ceil(o.max_model_len / o.block_tokens)
        reserve += o.state_groups * (1 + max(o.spec_tokens, 0) + bool(o.prefix_cache))
        info += f',kv_cache_size_tokens="{int(o.blocks / reserve * o.max_model_len)}"'
        info += f',kv_cache_max_concurrency="{o.blocks / reserve}"'
    put("vllm:cache_config_info", "gauge", 1, info)
    return "\n".join(lines) + "\n"


def sglang_text(engine: Engine) -> str:
    """Return the page with SGLang's names; its token counter moves when a request ends."""
    ended = sum(engine.finished.values())
    base = f'engine_type="unified",model_name="{engine.o.served_model_name}",tp_rank="0"'
    values = {
        "num_running_reqs": len(engine.running),
        "num_queue_reqs": len(engine.waiting),
        "token_usage": engine.used() / (engine.o.blocks - 1),
        "generation_tokens_total": 1000 * ended,
        "prompt_tokens_total": engine.counters["prompt"],
    }
    return "".join(f"sglang:{name}{{{base}}} {float(v)}\n" for name, v in values.items())


def count_tokens(text: str) -> int:
    """Return the tokens of a text: a quarter of its characters, at least one."""
    return max(1, math.ceil(len(text) / CHARS_PER_TOKEN))


def prompt_text(body: dict[str, Any]) -> str:
    """Return the prompt of a chat or completion request as one text."""
    if "messages" not in body:
        return str(body.get("prompt", ""))
    parts = []
    for message in body["messages"]:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content)
        parts.append(f"<|{message.get('role', 'user')}|>{content}")
    return "".join(parts)


class HttpError(Exception):
    """An answer other than 200, in the engine's JSON form."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


class Server:
    """HTTP/1.1 front end of the engine."""

    def __init__(self, options: argparse.Namespace, answer: Answer | None = None) -> None:
        self.o = options
        self.engine = Engine(options)
        self.answer = answer
        self.faults = [Fault(**fault) for fault in json.loads(options.faults)]
        self.numbers = itertools.count()
        self.log = open(options.log, "a", buffering=1) if options.log else None  # noqa: SIM115, PTH123
        self.healthy = True
        self.writers: set[asyncio.StreamWriter] = set()

    async def serve(self) -> None:
        """Serve until cancelled; prints the address once the port is open."""
        await asyncio.sleep(self.o.boot_s)
        tls = None
        if self.o.certificate:
            import ssl

            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(self.o.certificate)
        server = await asyncio.start_server(
            self.connection, self.o.host, self.o.port, ssl=tls, limit=2**26, backlog=1024
        )
        print(f"serving on port {server.sockets[0].getsockname()[1]}", flush=True)
        async with server:
            await self.engine.run()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until either side closes it."""
        self.writers.add(writer)
        try:
            while await self.one_request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    async def one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; returns whether the connection stays open."""
        line = await reader.readline()
        if not line:
            return False
        method, target, _ = line.decode("latin-1").split(" ", 2)
        headers: dict[str, str] = {}
        while (line := await reader.readline()) not in (b"\r\n", b"\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        arrived = time.perf_counter()
        path = target.split("?")[0]
        try:
            if self.o.redirect:
                head = f"HTTP/1.1 307 X\r\nLocation: {self.o.redirect}{path}\r\n"
                writer.write(f"{head}Content-Length: 0\r\n\r\n".encode())
                await writer.drain()
                return True
            if path.startswith("/v1") and self.o.api_key:
                sent = headers.get("authorization", "")
                if sent != f"Bearer {self.o.api_key}":
                    raise HttpError(401, "Unauthorized", "Unauthorized")
            if method == "POST" and path in ("/v1/chat/completions", "/v1/completions"):
                return await self.generate(path, body, arrived, reader, writer)
            self.send(writer, 200, *self.page(path, body))
        except HttpError as problem:
            self.send(writer, problem.status, json.dumps(problem.body), "application/json")
        await writer.drain()
        return True

    def page(self, path: str, body: bytes) -> tuple[str, str]:
        """Return body and content type of a plain page."""
        o = self.o
        if path in o.absent.split(","):
            raise HttpError(404, "Not Found", "NotFoundError")
        if path == "/health":
            if not self.healthy:
                raise HttpError(503, "engine is dead", "EngineDead")
            return "", "text/plain"
        if path == "/version":
            return json.dumps({"version": o.version}), "application/json"
        if path == "/metrics" and o.metrics_as == "sglang":
            return sglang_text(self.engine), "text/plain; version=0.0.4"
        if path == "/metrics":
            return metrics_text(self.engine), "text/plain; version=0.0.4"
        if path == "/v1/models":
            card = {
                "id": o.served_model_name,
                "object": "model",
                "root": o.root,
                "max_model_len": o.max_model_len,
            }
            cards = [] if o.no_models else [card]
            return json.dumps({"object": "list", "data": cards}), "application/json"
        if path == "/tokenize":
            count = count_tokens(prompt_text(json.loads(body)))
            answer = {"count": count, "max_model_len": o.max_model_len, "tokens": [0] * count}
            return json.dumps(answer), "application/json"
        raise HttpError(404, "Not Found", "NotFoundError")

    def send(self, writer: asyncio.StreamWriter, status: int, text: str, kind: str) -> None:
        """Write one whole answer."""
        payload = text.encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n".encode()
            + payload
        )

    def admit(self, path: str, body: dict[str, Any], arrived: float) -> Request:
        """Return the request, checked as the played version checks it."""
        o = self.o
        number = next(self.numbers)
        faults = {fault.kind: fault for fault in self.faults if fault.hits(number)}
        if "status" in faults:
            raise HttpError(int(faults["status"].value), "asked to fail", "InternalServerError")
        if body.get("model") != o.served_model_name:
            raise HttpError(
                404, f"The model `{body.get('model')}` does not exist.", "NotFoundError"
            )
        continuous = (body.get("stream_options") or {}).get("continuous_usage_stats")
        if continuous and o.usage == "reject-continuous":
            raise HttpError(400, "unknown field continuous_usage_stats", "BadRequestError")
        for name in o.reject_fields.split(","):
            if name and name in body:
                raise HttpError(400, f"unknown field {name}", "BadRequestError", name)
        text = prompt_text(body)
        prompt = count_tokens(text)
        if prompt > LONG_PROMPT:
            prompt = int(prompt * o.long_prompts_count)
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or 1 << 30
        if (body.get("min_tokens") or 0) > limit:
            raise HttpError(400, "min_tokens must not exceed max_tokens", "BadRequestError")
        strict = o.version.startswith(("0.19", "0.20")) and limit < 1 << 30
        if prompt >= o.max_model_len or (strict and prompt + limit > o.max_model_len):
            raise HttpError(
                400,
                f"This model's maximum context length is {o.max_model_len} tokens.",
                "BadRequestError",
                "input_tokens",
            )
        limit = min(limit, o.max_model_len - prompt, o.cap_tokens or limit)
        reply = self.answer(body) if self.answer and not body.get("ignore_eos") else None
        if reply is not None:
            limit = max(1, min(limit, count_tokens(json.dumps(reply))))
        size = o.block_tokens * CHARS_PER_TOKEN
        digest, hashes = hashlib.sha256(), []
        for start in range(0, len(text) - size + 1, size):
            digest.update(text[start : start + size].encode())
            hashes.append(digest.hexdigest())
        return Request(
            number, prompt, tuple(hashes), limit, "chat" in path, faults, arrived, reply=reply
        )

    async def generate(
        self,
        path: str,
        raw: bytes,
        arrived: float,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Run one generation and answer it, streamed or whole."""
        try:
            body = json.loads(raw)
        except ValueError:
            raise HttpError(400, "body is not JSON", "BadRequestError") from None
        if not self.healthy:
            raise HttpError(500, "engine is dead", "EngineDeadError")
        request = self.admit(path, body, arrived)
        self.engine.submit(request)
        outcome = "aborted"
        try:
            if body.get("stream") and not self.o.whole:
                outcome = await Stream(self, request, body, reader, writer).run()
            else:
                while not (await request.chunks.get() or (0, True))[1]:
                    if reader.at_eof():
                        return False
                self.send(writer, 200, self.whole(request, body), "application/json")
                await writer.drain()
                outcome = "finished"
        finally:
            self.engine.drop(request, "abort")
            self.write_log(request, outcome)
        return outcome == "finished" and not self.o.drop_kept

    def whole(self, request: Request, body: dict[str, Any]) -> str:
        """Return the answer of a request that is not streamed."""
        text = " ".join(itertools.islice(itertools.cycle(WORDS), request.generated))
        message: dict[str, Any] = {"role": "assistant", "content": text}
        finish = "length"
        if request.reply is not None:
            message = {"role": "assistant", "content": None, **request.reply}
            finish = "tool_calls" if message.get("tool_calls") else "stop"
            finish = message.pop("finish_reason", finish)
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "message": message}
        if not request.chat:
            choice = {"index": 0, "finish_reason": finish, "text": text}
        answer = {
            "id": f"r{request.number}",
            "model": body["model"],
            "choices": [choice],
            "usage": usage_of(request, request.generated),
        }
        return json.dumps(answer, ensure_ascii=False)

    def write_log(self, request: Request, outcome: str) -> None:
        """Append what was really sent, and when, to the log."""
        if self.log:
            entry = {
                "number": request.number,
                "arrived": request.accepted_at,
                "prompt_tokens": request.prompt_tokens,
                "cached_tokens": request.cached_tokens,
                "outcome": outcome,
                "sent": request.log,
            }
            self.log.write(json.dumps(entry) + "\n")

    def die(self) -> None:
        """Break every connection and answer no more generation, as a dead engine does."""
        if self.o.die == "exit":
            os._exit(1)
        self.healthy = False
        for writer in list(self.writers):
            writer.transport.abort()


def usage_of(request: Request, sent: int) -> dict[str, Any]:
    """Return the usage object once ``sent`` tokens are out."""
    factor = request.faults["wrong_usage"].value if "wrong_usage" in request.faults else 1
    tokens = int(sent * factor)
    return {
        "prompt_tokens": request.prompt_tokens,
        "completion_tokens": tokens,
        "total_tokens": request.prompt_tokens + tokens,
    }


class Stream:
    """One streamed answer: role chunk, tokens, finish, usage, end mark; faults on the way."""

    def __init__(
        self,
        server: Server,
        request: Request,
        body: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.server, self.o, self.request = server, server.o, request
        self.reader, self.writer = reader, writer
        options = body.get("stream_options") or {}
        self.final_usage = bool(options.get("include_usage")) and self.o.usage != "none"
        self.continuous = self.final_usage and bool(options.get("continuous_usage_stats"))
        self.continuous = self.continuous and self.o.usage in ("continuous", "first", "zeros")
        self.packer = zlib.compressobj(wbits=31) if self.o.gzip else None
        kind = "chat.completion.chunk" if request.chat else "text_completion"
        self.head = {"id": f"r{request.number}", "object": kind, "model": body["model"]}
        self.words = itertools.cycle(WORDS)
        self.sent_tokens = 0

    def raw(self, data: bytes) -> None:
        """Write one HTTP chunk, in two pieces at an odd place if asked."""
        if self.o.crlf:
            data = data.replace(b"\n", b"\r\n")
        if self.packer is not None:
            data = self.packer.compress(data) + self.packer.flush(zlib.Z_SYNC_FLUSH)
        framed = b"%x\r\n%b\r\n" % (len(data), data)
        if self.o.split and len(data) > 8:
            at = next((i for i, byte in enumerate(data) if byte >= 0x80), len(data) // 2) + 1
            for piece in (data[:at], data[at:]):
                self.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            return
        self.writer.write(framed)

    def event(self, choices: list[dict[str, Any]], usage: bool) -> None:
        """Write one SSE event."""
        body = {**self.head, "choices": choices}
        if usage and choices and self.o.usage == "first" and self.sent_tokens:
            body["usage"] = None
        elif usage:
            zero = choices and self.o.usage == "zeros"
            body["usage"] = usage_of(self.request, 0 if zero else self.sent_tokens)
        self.raw(b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n")

    def delta(self, content: dict[str, Any], finish: str | None = None) -> None:
        """Write one chunk with a choice."""
        if self.o.null_keys:
            keys = ("role", "content", "reasoning_content", "tool_calls")
            content = {**dict.fromkeys(keys), **content}
        if self.request.chat:
            choice = {"index": 0, "delta": content, "finish_reason": finish}
        else:
            text = content.get("content") or ""
            choice = {"index": 0, "text": text, "finish_reason": finish}
        self.event([choice], self.continuous)

    def text(self, count: int) -> dict[str, Any]:
        """Return the delta for the next ``count`` tokens."""
        if self.request.reply is not None:
            return {}
        start = self.sent_tokens
        word = " ".join(next(self.words) for _ in range(count)) + " "
        if self.o.split:
            word += "é→🙂 "
        if self.o.hold_every and (start // count) % self.o.hold_every == self.o.hold_every - 1:
            word = ""
        return {"reasoning" if start < self.o.reasoning_tokens else "content": word}

    async def run(self) -> str:
        """Send everything; returns how the request ended."""
        self.writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
            + (b"Content-Encoding: gzip\r\n" if self.packer else b"")
            + b"Transfer-Encoding: chunked\r\n\r\n"
        )
        if self.request.chat:
            self.delta({"role": "assistant", "content": ""})
        last = False
        while not last:
            item = await self.request.chunks.get()
            if item is None or self.reader.at_eof():
                return "aborted"
            count, last = item
            ending = await self.strike()
            if ending:
                return ending
            if self.o.path_ms and not self.request.log:
                await asyncio.sleep(self.o.path_ms / 1e3)
            now = time.perf_counter()
            if self.request.log:
                self.server.engine.itl.append(now - self.request.log[-1][0])
            if self.o.comments:
                self.raw(b": keep-alive\n\n")
            self.sent_tokens += count
            self.request.log.append((now, count))
            finish = "length" if last and self.request.reply is None else None
            self.delta(self.text(count) if not last or finish else {}, finish)
            await self.writer.drain()
        if self.request.reply is not None:
            self.send_reply(self.request.reply)
        if self.final_usage:
            self.event([], True)
        if "no_done" not in self.request.faults:
            self.raw(b"data: [DONE]\n\n")
        if self.packer is not None:
            end = self.packer.flush()
            self.writer.write(b"%x\r\n%b\r\n" % (len(end), end))
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()
        return "finished"

    def send_reply(self, reply: dict[str, Any]) -> None:
        """Send a prepared answer: reasoning, then content or tool calls in pieces."""
        for name in ("reasoning", "content"):
            text = reply.get(name) or ""
            for start in range(0, len(text), 5):
                self.delta({name: text[start : start + 5]})
        for index, call in enumerate(reply.get("tool_calls") or []):
            function = call["function"]
            head = {"index": index, "id": call["id"], "type": "function"}
            self.delta({"tool_calls": [{**head, "function": {"name": function["name"]}}]})
            arguments = function["arguments"]
            for start in range(0, len(arguments), 5):
                piece = {"index": index, "function": {"arguments": arguments[start : start + 5]}}
                self.delta({"tool_calls": [piece]})
        finish = "tool_calls" if reply.get("tool_calls") else "stop"
        self.delta({}, reply.get("finish_reason", finish))

    async def strike(self) -> str | None:
        """Do what this request's faults ask at this point; returns an ending if it ends here."""
        faults = self.request.faults
        due = [f for f in faults.values() if self.sent_tokens >= f.after]
        for fault in due:
            if fault.kind == "stall":
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.reader.read(1), fault.value or 3600)
                return "stalled" if self.reader.at_eof() else None
            if fault.kind == "reset":
                self.writer.transport.abort()
                return "reset"
            if fault.kind == "eof":
                self.writer.write(b"0\r\n\r\n")
                await self.writer.drain()
                return "cut"
            if fault.kind == "die":
                self.server.die()
                return "died"
            if fault.kind == "reboot":
                del faults["reboot"]
                self.o.boot_epoch += 60
            if fault.kind == "invalid":
                self.raw(b'data: {"choices": [{"delta"\n\n')
            if fault.kind == "error_event":
                self.raw(b'data: {"error": {"message": "boom", "code": 500}}\n\n')
                return "error"
            if fault.kind == "huge":
                del faults["huge"]
                self.raw(b"data: " + b"x" * int(fault.value) + b"\n\n")
        return None


def parser() -> argparse.ArgumentParser:
    """Return the settings; those shared with ``vllm serve`` carry its names."""
    p = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8000)
    p.add_argument("--served-model-name", default="known")
    p.add_argument("--root", default="known/known")
    p.add_argument("--max-model-len", type=int, default=32768)
    p.add_argument("--max-num-seqs", type=int, default=256)
    p.add_argument("--api-key", default="")
    p.add_argument("--gpu-memory-utilization", type=float, default=0.85)
    p.add_argument("--version", default="0.20.1")
    p.add_argument("--cache-dtype", default="auto")
    p.add_argument("--prefix-cache", action="store_true")
    p.add_argument("--ttft-ms", type=float, default=30.0)
    p.add_argument("--prefill-tps", type=float, default=0.0, help="0 = prompts cost nothing")
    p.add_argument("--serial-prefill", action="store_true")
    p.add_argument("--step-ms", type=float, default=20.0)
    p.add_argument("--step-ms-per-seq", type=float, default=0.0)
    p.add_argument("--tokens", default="1", help="tokens per step in turn, such as 3,1,2")
    p.add_argument("--spec-tokens", type=int, default=0)
    p.add_argument("--draftless", action="store_true", help="the draft counters stand still")
    p.add_argument("--forgetful", action="store_true", help="the prefix cache never hits")
    p.add_argument("--drift-per-minute", type=float, default=0.0)
    p.add_argument("--blocks", type=int, default=100_000)
    p.add_argument("--block-tokens", type=int, default=16)
    p.add_argument("--attention-groups", type=int, default=1)
    p.add_argument("--state-groups", type=int, default=0)
    p.add_argument("--reasoning-tokens", type=int, default=0)
    p.add_argument("--comments", action="store_true", help="keep-alive comments between events")
    p.add_argument("--split", action="store_true", help="cut events inside UTF-8 characters")
    p.add_argument("--long-prompts-count", type=float, default=1.0, help="times their tokens")
    p.add_argument("--hold-every", type=int, default=0, help="every n-th chunk has empty text")
    p.add_argument(
        "--usage",
        default="continuous",
        choices=("continuous", "final", "reject-continuous", "none", "first", "zeros"),
        help="first: on the first chunk and at the end; zeros: on every chunk, 0 until the end",
    )
    p.add_argument("--crlf", action="store_true", help="lines of events end as in HTTP")
    p.add_argument("--gzip", action="store_true", help="streams are compressed, piece by piece")
    p.add_argument("--null-keys", action="store_true", help="every delta has every key, null")
    p.add_argument("--cap-tokens", type=int, default=0, help="longest answer, whatever is asked")
    p.add_argument("--whole", action="store_true", help="a stream asked for is not streamed")
    p.add_argument("--redirect", default="", help="every page is elsewhere")
    p.add_argument("--metrics-as", default="vllm", choices=("vllm", "sglang"))
    p.add_argument("--reject-fields", default="", help="body fields answered with 400")
    p.add_argument("--absent", default="", help="pages answered with 404, comma-separated")
    p.add_argument("--no-models", action="store_true", help="an empty model list")
    p.add_argument("--boot-s", type=float, default=0.0, help="seconds until the port opens")
    p.add_argument("--boot-epoch", type=float, default=round(time.time(), 2))
    p.add_argument("--die", default="unhealthy", choices=("unhealthy", "exit"))
    p.add_argument("--faults", default="[]", help="JSON list of faults")
    p.add_argument("--path-ms", type=float, default=0.0, help="first tokens held back after engine")
    p.add_argument("--drop-kept", action="store_true", help="close connections after a stream")
    p.add_argument("--certificate", default="", help="PEM file with key: serve TLS")
    p.add_argument("--log", default="")
    return p


def main() -> None:
    """Serve until killed; settings it does not know are ignored, as a stand-in must."""
    words = [word for word in sys.argv[1:] if word != "serve"]
    options, _ = parser().parse_known_args(words)
    answer: Answer | None = None
    with contextlib.suppress(ImportError):
        answer = importlib.import_module("known_answers").answer
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Server(options, answer).serve())


if __name__ == "__main__":
    main()
