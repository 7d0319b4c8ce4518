"""Usage off by one, absent, beside choices; chunks without text: what counts is what was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from known import known_server
from measuring import POOL, small_plan, verified
from odd_proxy import Chunk, Odd, odd_proxy
from test_streams_are_read_as_the_network_cuts_them import chat, read

from qwendeploy.verification.wire.records import ChunkReader, Record, ratio_of


def words(count: int) -> list[Any]:
    return [chat({"role": "assistant", "content": ""}), *(chat({"content": "a "}),) * count]


def final(tokens: int) -> Any:
    return {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": tokens}}


@pytest.mark.parametrize(
    ("chunks", "tokens", "contradicts"),
    [
        pytest.param(40, 40, False, id="right"),
        pytest.param(40, 39, False, id="one-fewer-in-a-long-answer"),
        pytest.param(40, 41, False, id="one-more"),
        pytest.param(40, 38, True, id="two-fewer"),
        pytest.param(4, 3, True, id="one-fewer-in-a-short-answer"),
        pytest.param(40, 0, True, id="none"),
    ],
)
def test_one_token_is_no_contradiction_two_are(chunks: int, tokens: int, contradicts: bool) -> None:
    assert (read([*words(chunks), final(tokens)]).failure == "usage") is contradicts


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_a_count_that_is_off_by_one_is_one_token_a_chunk(off: int) -> None:
    """Else a rate that is counted in chunks would be wrong by one in as many as a trial has."""
    records = [read([*words(48), final(48 + off)]) for _ in range(2)]
    ratio = ratio_of(records)
    assert ratio is not None and (ratio.value, ratio.error) == (1.0, 0.0)
    two = ratio_of([read([*words(24), final(47)])])
    assert two is not None and two.value == pytest.approx(2.0)


def test_usage_beside_the_last_choice_is_the_final_count() -> None:
    right = read([*words(12), chat({}, 12, "stop")])
    assert right.ok and right.tokens == 12
    wrong = read([*words(12), chat({}, 5, "stop")])
    assert wrong.failure == "usage"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_both_names_of_reasoning_are_one(name: str) -> None:
    record = read([chat({"role": "assistant"}), chat({name: "hm"}), chat({"content": "c"})])
    assert (record.reasoning, record.text, record.tokens) == ("hm", "c", 2)
    both = read([chat({"reasoning": "hm", "reasoning_content": "hm"})])
    assert (both.reasoning, both.tokens) == ("hm", 1)


def test_a_prompt_of_no_tokens_was_not_counted() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 12}}
    assert read([*words(12), usage]).prompt_tokens is None


def beats(reader: ChunkReader, times: int) -> None:
    for _ in range(times):
        reader.apply(b'{"choices": [{"delta": {"content": ""}, "finish_reason": null}]}', 1.0)


def test_a_chunk_without_text_before_any_text_is_no_first_token() -> None:
    """A proxy's heart-beat while the prompt is worked on must not end the first-token time."""
    record = Record(0, limit=50)
    reader = ChunkReader(record)
    beats(reader, 5)
    assert record.first_at is None
    reader.apply(b'{"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}', 9.0)
    assert record.first_at == 9.0
    beats(reader, 2)
    assert record.tokens == 3 and record.held_chunks == 2


def test_chunks_without_text_that_hold_no_token_are_not_counted() -> None:
    record = Record(0, limit=50)
    reader = ChunkReader(record, held=False)
    reader.apply(b'{"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}', 0.0)
    beats(reader, 3)
    assert (record.tokens, len(record.chunk_times)) == (1, 1)


BARE = ("--usage", "final", "--absent", "/metrics,/version,/tokenize")


@pytest.mark.parametrize("every", [1, 3])
def test_heart_beats_between_tokens_change_no_rate(tmp_path: Path, every: int) -> None:
    """Each, or each third, chunk is followed by one with empty text that holds no token."""

    def beating(_: int, chunk: Chunk) -> list[Chunk]:
        words_ = chunk["choices"] and chunk["choices"][0]["delta"].get("content")
        beating.count += bool(words_)  # type: ignore[attr-defined]
        if not words_ or beating.count % every:  # type: ignore[attr-defined]
            return [chunk]
        empty = {"index": 0, "delta": {"content": ""}, "finish_reason": None}
        return [chunk, {**chunk, "choices": [empty]}]

    beating.count = 0  # type: ignore[attr-defined]
    odd = Odd(events=beating)
    with known_server(tmp_path, *BARE) as known, odd_proxy(known.url, odd) as url:
        run, _ = verified(url, calm=True, repeats=1)
    rate, tpot = run.figures["aggregate_decode_tps"], run.figures["tpot_ms"]
    assert rate is not None and rate.value == pytest.approx(100, rel=0.03)
    assert tpot is not None and tpot.value == pytest.approx(20, rel=0.03)


@pytest.mark.parametrize("off", [-1, 1])
def test_a_server_whose_count_is_off_by_one_is_measured_right(tmp_path: Path, off: int) -> None:
    def shifted(_: int, chunk: Chunk) -> list[Chunk]:
        if chunk.get("usage"):
            chunk["usage"]["completion_tokens"] += off
        return [chunk]

    odd = Odd(events=shifted)
    with known_server(tmp_path, *BARE) as known, odd_proxy(known.url, odd) as url:
        run, _ = verified(url, calm=True, repeats=1)
    assert not any(step.requests.failed for step in run.steps if step.shape == "decode")
    rate = run.figures["aggregate_decode_tps"]
    assert rate is not None and rate.value == pytest.approx(100, rel=0.02)


def test_prompts_that_are_cut_on_the_way_decide_nothing(tmp_path: Path) -> None:
    """A gateway that keeps the last part of long messages: another context is decoded."""

    def cut(body: Chunk) -> Chunk:
        for message in body["messages"]:
            message["content"] = message["content"][-3000:]
        return body

    odd = Odd(prompt=cut)
    plan = small_plan(spread=0.12)
    point = plan.operating_point.model_copy(update={"context": 4000})
    plan = plan.model_copy(update={"operating_point": point})
    settings = (*POOL, "--absent", "/tokenize")
    with known_server(tmp_path, *settings) as known, odd_proxy(known.url, odd) as url:
        _, report = verified(url, plan, rate_only=True)
    assert report.outcome == "inconclusive", report.statement
    assert "tokens per prompt instead of" in report.verdicts[0].reason
    assert "other-prompts" in [cause.id for cause in report.causes]
