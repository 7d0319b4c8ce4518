"""The client's record of one request: times, token counts, how it ended."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

FailureKind = Literal[
    "connect", "tls", "status", "timeout_first", "timeout_gap", "timeout_total", "reset", "cut",
    "invalid", "server_error", "usage", "empty",
]  # fmt: skip


@dataclass(slots=True)
class Record:
    """One streamed request. Times are ``time.perf_counter()``; tokens are cumulative."""

    number: int
    limit: int = 0
    """Output tokens asked for at most."""
    sent_at: float = 0.0
    status: int | None = None
    first_at: float | None = None
    """First generated token of any kind, reasoning included."""
    visible_at: float | None = None
    """First token that is not reasoning."""
    last_at: float | None = None
    ended_at: float | None = None
    chunk_times: array[float] = field(default_factory=lambda: array("d"))
    chunk_tokens: array[int] = field(default_factory=lambda: array("L"))
    """Cumulative tokens after each chunk: by usage if ``continuous``, else chunks counted."""
    continuous: bool = False
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    """The server's own final count."""
    finish_reason: str | None = None
    done: bool = False
    """The end mark arrived."""
    cancelled: bool = False
    failure: FailureKind | None = None
    message: str = ""
    usage_problem: str = ""
    retry_after: float | None = None
    """Seconds after which a refusal asked to be tried again."""
    text_chunks: int = 0
    """Chunks that carried text, whatever usage says."""
    held_chunks: int = 0
    """Chunks after the first text that might hold a token without text yet."""
    text: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """The request ended as it should, by itself."""
        return self.failure is None and not self.cancelled and self.done

    @property
    def tokens(self) -> int:
        """Output tokens by the best count there is."""
        if self.output_tokens is not None:
            return self.output_tokens
        return self.chunk_tokens[-1] if self.chunk_tokens else 0

    @property
    def ttft(self) -> float | None:
        """Seconds from sending to the first token."""
        return None if self.first_at is None else self.first_at - self.sent_at

    @property
    def tpot(self) -> float | None:
        """(tn - t1)/(n - 1) in seconds; needs two tokens."""
        if self.first_at is None or self.last_at is None or self.tokens < 2:
            return None
        return (self.last_at - self.first_at) / (self.tokens - 1)

    def fail(self, kind: FailureKind, message: str) -> None:
        """Mark the request as failed; the first failure stays."""
        if self.failure is None:
            self.failure, self.message = kind, message[:300]


STALE_CHUNKS = 3
"""Chunks with text under one count from which the count is not of every chunk."""


CHUNK_SPREAD = 0.5
"""Largest usual deviation of the tokens of a chunk over their mean: drafts taken by chance."""


@dataclass(frozen=True)
class Ratio:
    """Tokens per chunk, with its relative standard error."""

    value: float
    error: float


def ratio_of(records: Sequence[Record]) -> Ratio | None:
    """Return the tokens per chunk of finished requests; ``None`` if none tells.

    The first chunk holds the one token of the prompt's step, so it says nothing of the others.
    """
    told = [r for r in records if r.ok and r.output_tokens and len(r.chunk_times) > 1]
    chunks = sum(len(record.chunk_times) - 1 for record in told)
    if not chunks:
        return None
    tokens = sum((record.output_tokens or 0) - 1 for record in told)
    if abs(tokens - chunks) <= len(told):
        return Ratio(1.0, 0.0)  # one token a chunk, the end mark counted or not
    value = tokens / chunks
    return Ratio(value, CHUNK_SPREAD / chunks**0.5 if value > 1.02 else 0.0)


class InvalidChunk(ValueError):
    """A chunk that is not the JSON of a completion stream."""


class ServerSaidError(ValueError):
    """The stream carried an error object."""


class ChunkReader:
    """Applies the chunks of one stream to its record.

    Without usage on every chunk a chunk with text counts as one token until the final usage tells,
    and so does a later one without text, unless ``held`` says that such chunks hold none; with it,
    tokens are counted on the chunk that reports them, empty text included.
    """

    def __init__(self, record: Record, *, keep: bool = False, held: bool = True) -> None:
        self._record = record
        self._keep = keep
        self._held = held
        self._tokens = 0
        self._spoken = 0
        self._stale = 0

    def apply(self, data: bytes, now: float) -> int:
        """Take one event; returns the tokens that it brought.

        Raises:
            InvalidChunk: not JSON, or JSON of another shape.
            ServerSaidError: the server reports an error inside the stream.
        """
        record = self._record
        if data == b"[DONE]":
            record.done = True
            return 0
        try:
            body = json.loads(data)
            if body.get("error") or body.get("object") == "error":
                raise ServerSaidError(_error_text(body.get("error") or body))
            choices = body.get("choices") or []
            usage = body.get("usage") or _usage_of_timings(body.get("timings"))
            last = not choices or any(choice.get("finish_reason") for choice in choices)
            counted = self._usage(usage, final=last)
            brought: set[str] = set()
            for choice in choices:
                brought |= self._choice(choice)
        except (ValueError, AttributeError, TypeError, KeyError) as problem:
            if isinstance(problem, ServerSaidError):
                raise
            raise InvalidChunk(f"{type(problem).__name__} in {data[:80]!r}") from None
        if "visible" in brought and record.visible_at is None:
            record.visible_at = now
        record.text_chunks += "text" in brought
        held = "text" not in brought and "held" in brought and record.text_chunks > 0
        record.held_chunks += held
        fresh = self._fresh(counted, "text" in brought or (held and self._held))
        if fresh:
            if record.first_at is None:
                record.first_at = now
            record.last_at = now
            record.chunk_times.append(now)
            record.chunk_tokens.append(self._tokens)
        return fresh

    def _fresh(self, counted: int | None, spoke: bool) -> int:
        """Return how many tokens are new and remember the total.

        A count that stands still while text comes, or comes with the first chunk alone, is no count
        of every chunk: from there on chunks are counted.
        """
        record = self._record
        self._spoken += spoke
        if record.continuous and spoke:
            grown = counted is not None and counted > self._tokens
            self._stale = 0 if grown else self._stale + 1
            if counted is None or self._stale >= STALE_CHUNKS:
                record.continuous, record.output_tokens = False, None
                self._tokens = self._spoken - 1
        if counted is not None and record.continuous:
            fresh = max(0, counted - self._tokens)
        elif record.continuous:
            fresh = 0
        else:
            fresh = int(spoke)
        self._tokens += fresh
        return fresh

    def _usage(self, usage: Any, *, final: bool) -> int | None:
        if not usage:
            return None
        record = self._record
        if usage.get("prompt_tokens"):  # a prompt of no token is one that is not counted
            record.prompt_tokens = int(usage["prompt_tokens"])
        if usage.get("completion_tokens") is None:
            return None
        completion = int(usage["completion_tokens"])
        if not final and completion >= 0 and not self._spoken:
            record.continuous = True
        if completion < self._tokens and record.continuous:
            record.usage_problem = f"count fell from {self._tokens} to {completion}"
        if record.continuous or final or completion >= self._spoken:
            record.output_tokens = completion
        details = usage.get("prompt_tokens_details") or {}
        if details.get("cached_tokens") is not None:
            record.cached_tokens = int(details["cached_tokens"])
        return completion

    def _choice(self, choice: dict[str, Any]) -> set[str]:
        """Return what it brings: ``text``, ``visible`` text, perhaps a token ``held`` back."""
        record = self._record
        record.finish_reason = choice.get("finish_reason") or record.finish_reason
        if "delta" not in choice:
            text = choice.get("text") or ""
            if self._keep:
                record.text += text
            if text:
                return {"text", "visible"}
            return set() if choice.get("finish_reason") else {"held"}
        delta = choice["delta"]
        content = _plain(delta.get("content"))
        reasoning = delta.get("reasoning") or delta.get("reasoning_content") or ""
        calls = delta.get("tool_calls") or []
        if self._keep:
            record.text += content
            record.reasoning += reasoning
            for call in calls:
                merge_tool_call(record.tool_calls, call)
        if content or reasoning or calls:
            return {"text", "visible"} if content or calls else {"text"}
        # A held-back character is a token with empty text; the role chunk and a chunk that only
        # says why it ended are not tokens.
        held = not delta.get("role") and choice.get("finish_reason") is None and bool(delta)
        return {"held"} if held else set()


def _plain(content: Any) -> str:
    """Return content as text; some servers send it in parts."""
    if isinstance(content, list):
        return "".join(str(p.get("text") or "") for p in content if isinstance(p, dict))
    return content or ""


def _usage_of_timings(timings: Any) -> dict[str, Any] | None:
    """Return llama.cpp's per-chunk timings as usage: it counts there, not under ``usage``."""
    if not timings:
        return None
    cached = int(timings.get("cache_n") or 0)
    return {
        "prompt_tokens": int(timings["prompt_n"]) + cached,
        "completion_tokens": int(timings["predicted_n"]),
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def merge_tool_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """Add one streamed piece of a tool call to the calls so far."""
    index = int(piece.get("index") or 0)
    while len(calls) <= index:
        calls.append({"id": None, "function": {"name": "", "arguments": ""}})
    call = calls[index]
    call["id"] = piece.get("id") or call["id"]
    function = piece.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


SPLIT_FROM = 10
"""Chunks from which one more than tokens is no contradiction: the token between reasoning and
answer may come in two, and the one that ends the answer may be left out of the count, or be in it
beyond the limit."""


def check_usage(record: Record) -> None:
    """Fail the record if its usage cannot be right."""
    count, problem = record.output_tokens, record.usage_problem
    if count is not None and not problem:
        chunks = record.text_chunks
        if record.limit and count > record.limit + 1:
            problem = f"{count} output tokens, more than max_tokens {record.limit}"
        elif count + (chunks >= SPLIT_FROM) < chunks:
            problem = f"{count} output tokens in {chunks} chunks with text"
    if problem:
        record.fail("usage", problem)


def _error_text(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or error.get("detail") or error)
    return str(error)
