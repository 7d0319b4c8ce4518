"""Lengths and counts parse as people write them; nonsense gets one line and exit code 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qwendeploy.errors import UserError
from qwendeploy.units import format_tokens, parse_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("256k", 262144),
        ("256K", 262144),
        ("262144", 262144),
        ("0.25M", 262144),
        ("128k", 131072),
        ("1", 1),
        ("262,144", 262144),
        ("262_144", 262144),
        (".5k", 512),
    ],
)
def test_lengths_parse(text: str, tokens: int) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize("text", ["9G", "-1", "0", "", "k", "1.3", "0.0001k", "1e5", "256kk", "∞"])
def test_nonsense_lengths_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="token"):
        parse_tokens(text)


def test_formatting_a_length_is_its_inverse() -> None:
    for tokens in (1, 1000, 1024, 50400, 131072, 262144):
        assert parse_tokens(format_tokens(tokens)) == tokens


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        pytest.param(["--gpus", "0"], "--gpus", id="no-gpus"),
        pytest.param(["--ctx", "9G"], "262144", id="wrong-unit"),
        pytest.param(["--c", "-1"], "--c", id="negative-concurrency"),
        pytest.param(["--gpu", "RTX PRO 600"], "RTX PRO 6000", id="unknown-gpu-names-nearest"),
        pytest.param(["--quality", "best"], "reference", id="unknown-quality"),
        pytest.param(["--gpu", "3090", "--driver", "abc"], "--driver", id="driver"),
        pytest.param(["--gpu", "3090", "--vram", "-4"], "--vram", id="negative-memory"),
        pytest.param(["--vram", "24"], "--gpu", id="memory-without-card"),
        pytest.param(["--gpu", "3090", "--machine", "x.yaml"], "--machine", id="two-machines"),
        pytest.param(["--machine", "absent.yaml"], "absent.yaml", id="no-such-machine"),
        pytest.param(["--gpu", "3090", "--spec-tokens", "3"], "--spec", id="tokens-without-method"),
        pytest.param(
            ["--gpu", "3090", "--ctx", "8k", "--typical-ctx", "16k"], "--ctx", id="typical-too-long"
        ),
        pytest.param(
            ["--gpu", "3090", "--ctx", "8k", "--isl", "8k", "--osl", "1k"], "--ctx", id="isl-osl"
        ),
        pytest.param(
            ["--gpu", "3090", "--upstream-only", "--image", "repne/vllm:v17"],
            "--upstream-only",
            id="fork-and-upstream-only",
        ),
        pytest.param(["--gpu", "3090", "--image", "foo/bar"], "images", id="unknown-image"),
        pytest.param(["--gpu", "3090", "--devices", "a,b"], "--devices", id="devices"),
        pytest.param(["--gpu", "3090", "--tpot", "0"], "--tpot", id="zero-limit"),
        pytest.param(["--gpu", "3090", "--port", "70000"], "--port", id="port"),
        pytest.param(["--nonsense"], "--nonsense", id="unknown-setting"),
    ],
)
def test_recommend_refuses_nonsense(run: Any, settings: list[str], says: str) -> None:
    ran = run("recommend", *settings)

    assert ran.code == 2
    assert ran.out == ""
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_unknown_verb_names_the_nearest(run: Any) -> None:
    ran = run("recomend")

    assert ran.code == 2
    assert "recommend" in ran.err


def test_plan_is_written_whole_and_never_over_another(run: Any, tmp_path: Path) -> None:
    target = tmp_path / "plan.yaml"
    asked = ("recommend", "--gpu", "RTX PRO 6000 Blackwell Workstation", "-o", target)

    assert run(*asked, "--ctx", "32k").code == 0
    before = target.read_text()
    refused = run(*asked, "--ctx", "64k")

    assert refused.code == 2
    assert "--force" in refused.err
    assert target.read_text() == before
    assert run(*asked, "--ctx", "64k", "--force").code == 0
    assert target.read_text() != before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_plan_in_an_unwritable_place_is_one_message(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = run(
        "recommend", "--gpu", "RTX PRO 6000 Blackwell Workstation", "-o", tmp_path / "file" / "p"
    )

    assert ran.code == 2
    assert "cannot be written" in ran.err
