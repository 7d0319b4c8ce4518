"""What logs and measurements show: every signature's examples, evidence, order, bounded time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from qwendeploy.diagnosis import Signature, causes, load_signatures, match
from qwendeploy.errors import DataError
from qwendeploy.rulebook.book import load_rules

SIGNATURES = load_signatures()
EXAMPLES = [
    pytest.param(signature, example, id=f"{signature.id}-{number}")
    for signature in SIGNATURES
    for number, example in enumerate(signature.examples)
]
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 372.00 MiB."


@pytest.mark.parametrize(("signature", "example"), EXAMPLES)
def test_example_is_recognised_and_nothing_else_is_said(signature: Signature, example: Any) -> None:
    found = [result.signature.id for result in match(example.lines, example.metrics)]
    assert found == ([signature.id] if example.matches else [])


def test_rules_that_foresee_the_fault_exist() -> None:
    known = {rule.id for rule in load_rules().rules}
    named = {rule for signature in SIGNATURES for rule in signature.rules}
    assert named <= known
    assert SIGNATURES


def test_values_of_the_log_fill_cause_and_fix() -> None:
    line = (
        "(EngineCore pid=7) ERROR 11-30 09:03:30 [core.py:1] ValueError: To serve at least one "
        "request with the model's max seq len (262144), (26.66 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (25.91 GiB). Based on the available memory, "
        "the estimated maximum model length is 253952."
    )
    (cause,) = causes([line, "RuntimeError: Engine core initialization failed. See root cause"])
    assert cause.id == "kv-cache-too-small"
    assert "26.66 GiB" in cause.text and "25.91 GiB" in cause.text
    assert "--max-model-len 253952" in cause.fix
    assert cause.evidence.startswith("ValueError: To serve")


def test_a_value_that_the_log_does_not_give_is_unknown() -> None:
    (cause,) = causes(["torch.OutOfMemoryError"])
    assert "unknown" in cause.text


def test_the_root_cause_beats_what_follows_from_it() -> None:
    lines = [
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        OUT_OF_MEMORY,
    ]
    assert [cause.id for cause in causes(lines)] == ["cuda-out-of-memory"]


def test_fatal_comes_before_degraded_and_information_is_no_cause() -> None:
    lines = [
        "WARNING Unknown vLLM environment variable detected: VLLM_USE_V1",
        "No available shared memory broadcast block found in 60 seconds.",
        "OSError: [Errno 98] Address already in use",
    ]
    assert [result.signature.severity for result in match(lines)] == ["fatal", "degraded", "info"]
    assert [cause.id for cause in causes(lines)] == ["port-in-use", "ranks-wait"]


@pytest.mark.parametrize(
    "secret", ["hf_abcdefghijklmnopqrst", "sk-abcdefghijklmnop", "Bearer s3cr3tt0ken"]
)
def test_secrets_do_not_reach_the_evidence(secret: str) -> None:
    (cause,) = causes([f"OSError: [Errno 98] Address already in use {secret}"])
    assert secret.split()[-1] not in cause.evidence
    assert "[removed]" in cause.evidence


def test_colour_codes_and_carriage_returns_do_not_hide_a_line() -> None:
    (cause,) = causes(["\x1b[31mRuntimeError: \x1b[0mUVA is not available\r\n"])
    assert cause.id == "wsl2-no-uva"


@pytest.mark.parametrize(
    "lines",
    [
        ["x" * 3_000_000],
        ["INFO: 127.0.0.1 POST /v1/chat/completions 200 " + "a b " * 200] * 60_000,
        ["(" * 50_000, "ERROR " + "\\" * 50_000],
    ],
    ids=["one-long-line", "many-lines", "brackets"],
)
def test_any_log_is_read_in_bounded_time(lines: list[str]) -> None:
    start = time.perf_counter()
    match(lines)
    assert time.perf_counter() - start < 10


def test_the_end_of_a_very_long_log_is_read() -> None:
    lines = ["INFO nothing"] * 50_000 + [OUT_OF_MEMORY]
    assert [cause.id for cause in causes(lines)] == ["cuda-out-of-memory"]


def test_an_unknown_measurement_holds_no_condition() -> None:
    assert match(metrics={"waiting": 4}) == ()
    with pytest.raises(KeyError, match="mood"):
        match(metrics={"mood": 1})


GOOD = """\
id: good
title: t
stage: start
severity: fatal
any_of: ['boom (?P<size>\\d+)']
cause: "{size} boomed"
fix: none
sources: [somewhere]
certainty: observed
examples:
  - {lines: ['boom 3'], matches: true}
  - {lines: ['calm'], matches: false}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: t", "titel: t", "unknown key"),
        ("'boom (?P<size>\\d+)'", "'(boom)+ (?P<size>\\d+)'", "unbounded repetition"),
        ("'boom (?P<size>\\d+)'", "'boom.* (?P<size>\\d+)'", "unbounded repetition"),
        ("'boom (?P<size>\\d+)'", "'boom (?P<size>\\d+'", "not a regular expression"),
        ("{size} boomed", "{length} boomed", "neither a pattern group"),
        ("fix: none", "fix: none\nmetrics: {mood: {gt: 1}}", "unknown measurement mood"),
        ("fix: none", "fix: none\nmetrics: {waiting: {above: 1}}", "unknown operator above"),
        (
            "fix: none",
            "fix: none\nbeats: [nobody]",
            "names signature 'nobody', which does not exist",
        ),
        ("any_of: ['boom (?P<size>\\d+)']\n", "", "needs log patterns"),
        ("id: good", "id: other", "differs from the file name"),
    ],
)
def test_bad_signature_is_refused_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert old in GOOD
    directory = tmp_path / "signatures"
    directory.mkdir()
    (directory / "good.yaml").write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_signatures(directory)
    assert message in str(caught.value)
    assert "good.yaml" in str(caught.value)
