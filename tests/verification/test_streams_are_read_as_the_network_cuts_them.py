"""SSE bytes in any pieces, chunks of several engines, counters of several versions."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from qwendeploy.engines.metrics import Metrics, parse_metrics
from qwendeploy.verification.loads.arrivals import Arrivals, is_steady
from qwendeploy.verification.wire.records import (
    ChunkReader,
    InvalidChunk,
    Record,
    ServerSaidError,
    check_usage,
)
from qwendeploy.verification.wire.sse import SseError, SseParser

DATA = Path(__file__).parents[1] / "data" / "verification"
STREAM = (
    'data: {"text": "né→🙂"}\n\n: keep-alive\n\nevent: x\ndata: two\r\ndata:lines\r\n\r\n'
    "retry: 5\n\ndata: [DONE]\n\n"
).encode()
EVENTS = ['{"text": "né→🙂"}'.encode(), b"two\nlines", b"[DONE]"]
ENDS = {"as-it-is": STREAM}
ENDS |= {
    name: STREAM.replace(b"\r\n", b"\n").replace(b"\n", end)
    for name, end in (("lf", b"\n"), ("crlf", b"\r\n"), ("cr", b"\r"))
}


@pytest.mark.parametrize("ends", ENDS)
@given(some.lists(some.integers(0, len(STREAM) + 12), max_size=12))
def test_events_are_the_same_however_the_bytes_are_cut(ends: str, cuts: list[int]) -> None:
    stream = ENDS[ends]
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    parser = SseParser()
    found: list[bytes] = []
    for low, high in itertools.pairwise(edges):
        found += parser.feed(stream[low:high])
    assert found + parser.finish() == EVENTS


def test_an_event_is_there_with_the_carriage_return_that_ends_it() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\r") == [b"a"]
    assert parser.feed(b"\ndata: b\r") == []
    assert parser.feed(b"\n\r") == [b"b"]


def test_an_unfinished_event_is_delivered_at_the_end() -> None:
    parser = SseParser()
    assert parser.feed(b"data: last") == []
    assert parser.finish() == [b"last"]


def test_an_endless_line_is_an_error() -> None:
    parser = SseParser(limit=100)
    with pytest.raises(SseError):
        parser.feed(b"data: " + b"x" * 200)


def read(chunks: list[dict[str, Any]], *, keep: bool = True) -> Record:
    record = Record(0, limit=100)
    reader = ChunkReader(record, keep=keep)
    for number, chunk in enumerate(chunks):
        reader.apply(json.dumps(chunk).encode(), float(number))
    reader.apply(b"[DONE]", float(len(chunks)))
    check_usage(record)
    return record


def chat(delta: dict[str, Any], tokens: int | None = None, finish: str | None = None) -> Any:
    chunk: dict[str, Any] = {"choices": [{"delta": delta, "finish_reason": finish}]}
    if tokens is not None:
        chunk["usage"] = {"prompt_tokens": 7, "completion_tokens": tokens}
    return chunk


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 6}}

ENGINES = {
    "vllm-continuous-drafting": (
        [chat({"role": "assistant", "content": ""}, 0), chat({"reasoning": "a b c"}, 3),
         chat({"content": ""}, 4), chat({"content": "d e"}, 6, "length"), USAGE],
        {"first_at": 1.0, "visible_at": 3.0, "last_at": 3.0, "tokens": 6, "continuous": True},
    ),
    "vllm-final-usage": (
        [chat({"role": "assistant", "content": ""}), chat({"content": "a b"}),
         chat({"content": ""}), chat({"content": "c"}), chat({}, None, "length"), USAGE],
        {"first_at": 1.0, "visible_at": 1.0, "last_at": 3.0, "tokens": 6, "continuous": False},
    ),
    "llama.cpp-null-content-and-timings": (
        [chat({"role": "assistant", "content": None}), chat({"content": "abc"}),
         chat({}, None, "length"), {**USAGE, "timings": {"predicted_n": 6}}],
        {"first_at": 1.0, "last_at": 1.0, "tokens": 6, "continuous": False},
    ),
    "llama.cpp-timings-per-token": (
        [chat({"role": "assistant", "content": None}),
         {**chat({"content": "a"}), "timings": {"prompt_n": 5, "cache_n": 2, "predicted_n": 2}},
         {**chat({"content": "b"}), "timings": {"prompt_n": 5, "cache_n": 2, "predicted_n": 6}},
         chat({}, None, "length"), USAGE],
        {"first_at": 1.0, "last_at": 2.0, "tokens": 6, "continuous": True, "cached_tokens": 2},
    ),
    "usage-on-the-finish-chunk": (
        [chat({"role": "assistant", "content": "a"}), chat({"content": "b"}),
         chat({"content": "c"}, 6, "stop")],
        {"first_at": 0.0, "last_at": 2.0, "tokens": 6, "continuous": False},
    ),
    "older-reasoning-name": (
        [chat({"role": "assistant"}), chat({"reasoning_content": "hm"}), chat({"content": "c"}),
         USAGE],
        {"first_at": 1.0, "visible_at": 2.0, "last_at": 2.0, "tokens": 6},
    ),
    "completions": (
        [{"choices": [{"text": "a", "finish_reason": None}]},
         {"choices": [{"text": "b", "finish_reason": "length"}]}, USAGE],
        {"first_at": 0.0, "last_at": 1.0, "tokens": 6},
    ),
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_chunks_of_each_engine_are_timed_and_counted(engine: str) -> None:
    chunks, facts = ENGINES[engine]
    record = read(chunks)
    assert {name: getattr(record, name) for name in facts} == facts
    assert record.ok, record.message
    assert record.prompt_tokens == 7


def test_streamed_tool_calls_are_put_together() -> None:
    pieces = [
        {"index": 0, "id": "x", "function": {"name": "get"}},
        {"index": 0, "function": {"arguments": '{"a":'}},
        {"index": 1, "id": "y", "function": {"name": "put", "arguments": "{}"}},
        {"index": 0, "function": {"arguments": "1}"}},
    ]
    record = read([chat({"tool_calls": [piece]}) for piece in pieces])
    assert [call["function"] for call in record.tool_calls] == [
        {"name": "get", "arguments": '{"a":1}'},
        {"name": "put", "arguments": "{}"},
    ]


@pytest.mark.parametrize("text", [b"{", b"[]", b'"x"', b'{"choices": 3}', b"\xff\xfe"])
def test_what_is_no_chunk_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidChunk):
        ChunkReader(Record(0)).apply(text, 0.0)


def test_counters_that_fall_or_exceed_are_usage_failures() -> None:
    falling = read([chat({"role": "assistant"}, 0), chat({"content": "a"}, 5),
                    chat({"content": "b"}, 3)])  # fmt: skip
    assert falling.failure == "usage"
    few = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    assert read([chat({"content": "a"}), chat({"content": "b"}), few]).failure == "usage"


@pytest.mark.parametrize(
    ("name", "drafting", "pool_tokens"),
    [("0.20.1-cpu", False, None), ("0.32.0-cpu-ngram", True, "2097152")],
)
def test_metrics_of_real_servers_are_read(
    name: str, drafting: bool, pool_tokens: str | None
) -> None:
    metrics = parse_metrics((DATA / f"metrics-{name}.txt").read_text())
    assert metrics.get("running") == 0
    assert metrics.blocks() == 16384
    assert (metrics.get("drafts") is not None) is drafting
    assert metrics.cache_config.get("kv_cache_size_tokens") == pool_tokens
    assert metrics.get("admission_rejections") == (0 if drafting else None)
    if drafting:
        zero = Metrics(values=dict.fromkeys(metrics.values, 0.0), started=metrics.started)
        assert metrics.acceptance_length(zero) == pytest.approx(1 + 414 / 1238)
        assert metrics.acceptance_rate(zero) == pytest.approx(414 / 3692)
        assert metrics.accepted_by_position == (414, 0, 0)


def test_absent_is_not_zero_and_a_restart_is_not_negative() -> None:
    a, b = parse_metrics("vllm:num_preemptions_total 5\n"), parse_metrics("other 1\n")
    assert b.get("preemptions") is None
    assert a.since(b, "preemptions") is None
    restarted = parse_metrics("vllm:num_preemptions_total 1\n")
    assert restarted.since(a, "preemptions") is None
    old = parse_metrics('vllm:gpu_cache_usage_perc{engine="0"} 0.5\n')
    assert old.get("kv_usage") == 0.5


def test_engines_behind_one_server_are_summed() -> None:
    text = "".join(
        f'vllm:num_requests_running{{engine="{e}"}} {e + 1}\n'
        f'vllm:kv_cache_usage_perc{{engine="{e}"}} {0.2 + e * 0.2}\n'
        for e in range(2)
    )
    metrics = parse_metrics(text)
    assert metrics.get("running") == 3
    assert metrics.get("kv_usage") == pytest.approx(0.3)
    assert metrics.engines == 2


def bursts(streams: int, steps: int, step: float, tokens: int) -> Arrivals:
    arrivals = Arrivals()
    for number in range(steps):
        for stream in range(streams):
            arrivals.add(number * step + stream * 1e-4, stream, tokens)
    return arrivals


@pytest.mark.parametrize("streams", [1, 7, 64])
def test_windows_between_arrivals_of_one_stream_have_no_edge_error(streams: int) -> None:
    arrivals = bursts(streams, 101, 0.02, 2)
    start, reference = arrivals.reference_after(0.5) or (0.0, 0)
    end = arrivals.next_of(reference, 1.5)
    assert end is not None
    span = arrivals.span(start, end)
    assert span.rate == pytest.approx(streams * 2 / 0.02, rel=1e-9)
    assert span.streams == streams
    assert span.tpots == pytest.approx([0.01] * streams)


@pytest.mark.parametrize(
    ("rates", "steady"),
    [
        pytest.param([10, 40, 70, 90, 99, 100], False, id="rising"),
        pytest.param([100, 101, 99, 100, 102, 98], True, id="level"),
        pytest.param([100, 101, 99, 100, 0, 98], False, id="a-hole"),
        pytest.param([100, 101, 99], False, id="too-few"),
        pytest.param([5, 5, 100, 101, 99, 100, 102, 98], True, id="old-bins-forgotten"),
    ],
)
def test_steadiness_is_seen_not_assumed(rates: list[float], steady: bool) -> None:
    assert is_steady(rates, 0.03) is steady


@pytest.mark.parametrize("version", ["0.20.1", "0.32.0-ngram"])
def test_a_captured_stream_of_a_real_server_is_read(version: str) -> None:
    """12 tokens of a random model; even without drafting (0.20.1) some chunks hold two."""
    raw = (DATA / f"stream-vllm-{version}.sse").read_bytes()
    record, parser = Record(0, limit=12), SseParser()
    reader = ChunkReader(record, keep=True)
    counts = []
    for number, data in enumerate([*parser.feed(raw), *parser.finish()]):
        counts.append(reader.apply(data, float(number)))
    check_usage(record)
    assert record.ok, record.message
    assert record.tokens == sum(counts) == 12
    assert record.continuous
    assert record.reasoning and not record.text
    assert record.first_at == 1.0, "the role chunk is no token"
    assert record.visible_at is None
    assert max(counts) > 1
    assert record.prompt_tokens == 28


def test_an_endless_event_is_an_error() -> None:
    parser = SseParser(limit=100)
    with pytest.raises(SseError, match="event"):
        for _ in range(60):
            parser.feed(b"data: xx\n")


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 5])
def test_a_byte_order_mark_is_no_text(cut: int) -> None:
    text = b"\xef\xbb\xbfdata: one\n\n"
    parser = SseParser()
    assert parser.feed(text[:cut]) + parser.feed(text[cut:]) == [b"one"]


ERRORS = {
    "object": {"error": {"message": "boom", "code": 500}},
    "text": {"error": "boom"},
    "beside-choices": {"error": {"message": "boom"}, "choices": [{"delta": {}}]},
    "old-vllm": {"object": "error", "message": "boom", "code": 400},
    "detail": {"error": {"detail": "boom"}},
}


@pytest.mark.parametrize("form", ERRORS)
def test_errors_inside_a_stream_are_seen_in_every_form(form: str) -> None:
    with pytest.raises(ServerSaidError, match="boom"):
        ChunkReader(Record(0)).apply(json.dumps(ERRORS[form]).encode(), 0.0)


def test_null_and_missing_counts_are_no_counts() -> None:
    none = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": None}}
    record = read([chat({"role": "assistant"}), chat({"content": "a"}), none])
    assert (record.output_tokens, record.tokens, record.prompt_tokens) == (None, 1, 7)
    record = read([chat({"content": "a"}), {"choices": [], "usage": {"total_tokens": 9}}])
    assert record.ok and record.output_tokens is None


def test_content_in_parts_is_text() -> None:
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}, {"type": "other"}]
    record = read([chat({"content": parts}), USAGE])
    assert record.text == "abc"
