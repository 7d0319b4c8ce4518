"""Generated prompts: the wanted length with any tokenizer, distinct from the first word."""

from __future__ import annotations

from pathlib import Path

import pytest
from known import known_server
from measuring import verified

from qwendeploy.documents import Content
from qwendeploy.verification.loads.prompts import PromptMaker


@pytest.mark.parametrize("content", list(Content))
@pytest.mark.parametrize("tokens", [60, 1000, 40_000])
def test_length_follows_the_counted_ratio_of_its_kind(content: Content, tokens: int) -> None:
    maker = PromptMaker(content=content).calibrated("prose", 1000, 262).calibrated("code", 500, 262)
    for seed in ("a", "b", "c", "d"):
        text = maker.text(tokens, seed)
        ratio = 0.5 if maker.kind_of(seed) == "code" else 0.25
        assert len(text) * ratio + maker.overhead == pytest.approx(tokens, abs=2)


def test_prompts_share_no_first_words_and_are_made_again_the_same() -> None:
    maker = PromptMaker()
    texts = [maker.text(2000, f"{i}") for i in range(40)]
    assert len({text[:24] for text in texts}) == 40
    assert maker.text(2000, "7") == texts[7]
    assert {maker.kind_of(f"{i}") for i in range(40)} == {"prose", "code"}
    lines = texts[0].splitlines()
    assert len(set(lines)) > 0.5 * len(lines)


def test_content_is_what_was_asked_for() -> None:
    for content, mark in ((Content.CODE, "def "), (Content.PROSE, "The ")):
        text = PromptMaker(content=content).text(2000, "x")
        assert text.count(mark) > 3
    assert "def " not in PromptMaker(content=Content.PROSE).text(4000, "y")


@pytest.mark.parametrize("absent", ["", "/tokenize"])
def test_a_served_prompt_has_its_length(tmp_path: Path, absent: str) -> None:
    """The server counts a quarter of the characters; code and prose both come out right."""
    with known_server(tmp_path, "--absent", absent, "--tokens", "2") as known:
        run, _ = verified(known.url, context=3000, repeats=6)
        rows = known.entries(at_least=8)
    lengths = [row["prompt_tokens"] for row in rows if row["prompt_tokens"] > 2500]
    assert len(lengths) >= 6
    assert all(length == pytest.approx(3000, rel=0.01) for length in lengths)
    assert run.steps[0].prompt_tokens == pytest.approx(3000, rel=0.01)
