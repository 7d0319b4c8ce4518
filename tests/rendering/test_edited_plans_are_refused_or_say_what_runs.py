"""A plan with one value replaced by nonsense is refused by file and key, or nothing of it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from plan_samples import LLAMA_OPTION, OPTIONS, sample_plan

from qwendeploy.documents import Plan
from qwendeploy.documents import files as documents
from qwendeploy.errors import DataError, ExitCode, UserError
from qwendeploy.rendering import KINDS, render
from qwendeploy.running import starting
from qwendeploy.running.settings import UpSettings

PLANS = {
    **{name: sample_plan(**changes) for name, changes in OPTIONS.items()},
    "llama": sample_plan(**LLAMA_OPTION),
}
NONSENSE: tuple[Any, ...] = (
    *(-3, 0, 10**30, 1e308, -0.5, float("nan"), float("inf"), True, None),
    *("", "-3", "sideways", "x\n$(id) `id` %n \"'", "y" * 5000, "\ud800", [], {}, [[]], {"a": 1}),
)
Path_ = tuple[int | str, ...]


def leaves(node: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the paths of all values that hold no others, and of all lists."""
    children = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in children:
        if isinstance(child, dict | list) and child:
            yield from leaves(child, (*path, key))
        if not isinstance(child, dict):
            yield (*path, key)


@cache
def document(name: str) -> dict[str, Any]:
    content: dict[str, Any] = PLANS[name].model_dump(mode="json", by_alias=True)
    return content


def at(content: Any, path: Path_) -> Any:
    for key in path:
        content = content[key]
    return content


def with_value(content: dict[str, Any], path: Path_, value: Any) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(content))
    at(changed, path[:-1])[path[-1]] = value
    return changed


def artefacts(plan: Plan) -> dict[str, Any]:
    """Return what each kind would write, or that it does not fit."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        try:
            files = render(plan, kind)
        except UserError as problem:
            found[kind] = type(problem)
            continue
        found[kind] = {name: text for name, (text, _) in files.items() if name != "plan.yaml"}
    return found


@cache
def unchanged(name: str) -> dict[str, Any]:
    return artefacts(PLANS[name])


edits = st.sampled_from(sorted(PLANS)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.sampled_from(list(leaves(document(name)))),
        st.sampled_from(NONSENSE),
    )
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(("fp8-mtp3-tp2", ("port",), True))
@example(("fp8-mtp3-tp2", ("flags",), []))
@example(("fp8-mtp3-tp2", ("boot_first_s", "high"), 1e308))
@example(("fp8-mtp3-tp2", ("download_gib", "high"), 1e308))
@example(("replicas-2xtp1", ("option", "replicas"), True))
@given(edits)
def test_nonsense_is_refused_by_key_or_reaches_no_artefact(
    tmp_path: Path, edit: tuple[str, Path_, Any]
) -> None:
    name, path, value = edit
    file = tmp_path / "plan.json"
    content = with_value(document(name), path, value)
    file.write_text(json.dumps(content))
    refused: list[UserError] = []
    written: dict[str, Any] = {}
    try:
        plan, text = documents.read_plan_and_text(file)
    except UserError as problem:
        refused.append(problem)
    else:
        for kind in KINDS:
            try:
                with documents.impossible_in(file, text):
                    files = render(plan, kind)
            except UserError as problem:
                if unchanged(name)[kind] is not type(problem):
                    refused.append(problem)
                continue
            written[kind] = {one: text for one, (text, _) in files.items() if one != "plan.yaml"}

    for error in refused:
        assert error.exit_code == ExitCode.USAGE
        assert str(file) in str(error)
        assert not isinstance(error, DataError) or error.key
    was = at(document(name), path)
    if isinstance(was, int | float) and not isinstance(was, bool):
        # no number of the plan reaches an artefact unchecked
        for kind, files_of_kind in written.items():
            assert files_of_kind == unchanged(name)[kind], (path, value, kind)


def test_version_with_a_line_break_stays_a_remark() -> None:
    plan = sample_plan()
    option = plan.option.model_copy(update={"engine_version": "0.22.0\n$(id)"})

    text = render(plan.model_copy(update={"option": option}), "vllm")["serve.sh"][0]

    assert "vLLM 0.22.0 $(id).\n" in text
    assert all(line.startswith("#") for line in text.splitlines() if "$(id)" in line)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("port",), -1),
        (("option", "tp"), 3),
        (("option", "spec_tokens"), 9),
        (("flags", 0, "value"), "many"),
        (("boot_first_s", "high"), 1e300),
        (("gpu_indices", 0), 7),
    ],
)
def test_up_refuses_the_same_before_it_asks_for_docker(
    path: Path_, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    content = with_value(document("fp8-mtp3-tp2"), path, value)

    with pytest.raises(UserError) as problem:
        starting.up(Plan.model_validate(content), UpSettings(), lambda _text, _share: None)

    assert isinstance(problem.value, DataError)
    assert str(problem.value.key).startswith((str(path[0]), "flags"))
