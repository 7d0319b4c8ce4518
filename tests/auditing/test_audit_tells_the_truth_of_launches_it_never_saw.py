"""Launches whose fate was written down before they were audited, half of them working set-ups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from qwendeploy.auditing.audit import audit_launches
from qwendeploy.auditing.correcting.correct import correct
from qwendeploy.auditing.judging.judge import judge_launch
from qwendeploy.auditing.reading.read import read_launch_text, read_launches
from qwendeploy.auditing.understanding.context import described
from qwendeploy.documents.audit import AuditDocument

FOLDER = Path(__file__).parents[1] / "data" / "audit_own"


def _cases() -> list[dict[str, Any]]:
    reader = YAML(typ="safe", pure=True)
    return [case for path in sorted(FOLDER.glob("*.yaml")) for case in reader.load(path)]


CASES = _cases()


def _written(case: dict[str, Any], folder: Path) -> None:
    for name, text in case["files"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _audited(case: dict[str, Any], folder: Path) -> AuditDocument:
    _written(case, folder)
    launches = read_launches(folder / next(iter(case["files"])))
    return audit_launches(launches, described(case["machine"]), compare=False)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_what_becomes_of_it_is_told(case: dict[str, Any], tmp_path: Path) -> None:
    audit = _audited(case, tmp_path)
    told = {(found.id, found.severity) for found in audit.findings if found.severity != "info"}
    expected = {(name, severity) for item in case["findings"] for name, severity in item.items()}
    assert told == expected
    assert audit.outcome == case["outcome"]


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if "full_length_requests" in case],
    ids=lambda case: str(case["id"]),
)
def test_the_pool_is_the_one_that_was_logged(case: dict[str, Any], tmp_path: Path) -> None:
    """What the engine printed as its maximum concurrency, within the 5 % of the pool's goal."""
    audit = _audited(case, tmp_path)
    tokens = audit.predictions.kv_pool_tokens
    assert tokens is not None and audit.option is not None and audit.option.max_model_len
    printed = tokens.value / audit.option.max_model_len
    assert printed == pytest.approx(case["full_length_requests"], rel=0.05)


SHELL = [
    case
    for case in CASES
    if case["findings"]
    and next(iter(case["files"])).endswith(".sh")
    and not re.search(r"^ *(?:\[Container\]|services:)", next(iter(case["files"].values())), re.M)
]


@pytest.mark.parametrize("case", SHELL, ids=lambda case: str(case["id"]))
def test_a_correction_brings_nothing_new_and_keeps_what_was_asked(
    case: dict[str, Any], tmp_path: Path
) -> None:
    """What is left after ``--fix`` was said to be left, and the model stays the one named."""
    name, text = next(iter(case["files"].items()))
    _written(case, tmp_path)
    context = described(case["machine"])
    judged = judge_launch(read_launches(tmp_path / name)[0], context)
    corrected = correct(judged)
    again = judge_launch(read_launch_text(corrected.text, name)[0], context)
    told = {found.id for found in again.findings if found.severity != "info"}
    assert told <= {found.id for found in corrected.left}
    model, kept = judged.understood.arguments.model, again.understood.arguments.model
    assert (kept and kept.text) == (model and model.text)
    dropped = judged.understood.values.keys() - again.understood.values.keys()
    assert not dropped - {"attention_backend", "kv_cache_bytes"}, text


def test_there_are_enough_of_both_kinds() -> None:
    fine = [case for case in CASES if not case["findings"]]
    faulty = [case for case in CASES if any("error" in item.values() for item in case["findings"])]
    assert len(CASES) == len({case["id"] for case in CASES})
    assert len(fine) >= 30
    assert len(faulty) >= 45
