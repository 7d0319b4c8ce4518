"""Every artefact kind for every golden option; ``scripts/update artefacts`` accepts a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_samples import LLAMA_OPTION, OPTIONS, sample_plan

from qwendeploy.documents import Plan
from qwendeploy.rendering import KINDS, render

GOLDENS = Path(__file__).parents[1] / "data" / "goldens"
STALE = "the goldens are not current: look at the difference, then run scripts/update artefacts"


def plan_of(option: str) -> Plan:
    return sample_plan(**(LLAMA_OPTION if option == "llama-q4" else OPTIONS[option]))


CASES = [
    (option, kind.name)
    for option in (*OPTIONS, "llama-q4")
    for kind in KINDS.values()
    if plan_of(option).option.engine in kind.engines
]


def rendered(option: str, kind: str) -> dict[str, tuple[str, int]]:
    files = render(plan_of(option), kind, tool_version="0.0.0")
    # the plan is the input of all of them
    del files["plan.yaml"]
    return files


@pytest.mark.parametrize(("option", "kind"), CASES, ids=lambda part: part)
def test_artefact_equals_its_golden(option: str, kind: str) -> None:
    place = GOLDENS / option / kind
    golden = {path.name: path.read_text(encoding="utf-8") for path in sorted(place.glob("*"))}

    found = {name: text for name, (text, _) in rendered(option, kind).items()}

    assert found == golden, STALE


def test_there_is_no_golden_without_a_case() -> None:
    present = {(path.parent.name, path.name) for path in GOLDENS.glob("*/*")}

    assert present == set(CASES), STALE
