"""A bad rule file names itself and the key; nothing is loaded half."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from qwendeploy import resources
from qwendeploy.api import data
from qwendeploy.errors import DataError, UserError
from qwendeploy.rulebook import files as rulefiles
from qwendeploy.rulebook.book import load_rules

GOOD = """\
id: good
title: t
pass: admit
severity: reject
when:
  option.tp: 3
effects: [reject]
because: b
sources: [somewhere]
certainty: documented
about: a
fix: f
would_return: r
examples:
  - {facts: {option.tp: 3}, fires: true}
  - {facts: {option.tp: 2}, fires: false}
"""


def write(directory: Path, text: str, name: str = "good.yaml") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text, encoding="utf-8")
    return directory


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: t", "titel: t", "unknown key"),
        ("option.tp: 3", "option.tpp: 3", "unknown field option.tpp; did you mean option.tp"),
        ("option.tp: 3", "option.tp: {gtt: 3}", "unknown operator gtt"),
        ("option.tp: 3", "option.tp: three", "option.tp is a number"),
        ("option.tp: 3", "option.tp: {in: 3}", "in takes a list"),
        ("option.tp: 3", "option.tp: {matches: a}", "cannot be compared to it"),
        ("option.tp: 3", "option.tp: {}", "the condition is empty"),
        ("option.tp: 3", "option.image: {matches: '('}", "is not a valid pattern"),
        ("option.tp: 3", "option.image: {gt: a}", "needs a number or a version"),
        ("option.tp: 3", "option.spec_method: medusa", "is a choice"),
        ("option.tp: 3", "machine.driver: {lt: 580}", "is a version"),
        ("option.tp: 3", "resolved.max_num_seqs: 3", "admit may not read resolved.max_num_seqs"),
        ("option.tp: 3", "memory.starts: true", "admit may not read memory.starts"),
        ("option.tp: 3", "computed.capture_needed: 3", "admit may not read"),
        ("effects: [reject]", "effects: [explode]", "'reject', 'warn'"),
        ("effects: [reject]", "effects: []", "at least 1"),
        ("effects: [reject]", "effects: [warn]", "go together"),
        ("effects: [reject]", "effects: [reject, {flag: {value: 1}}]", "flag needs name"),
        ("effects: [reject]", "effects: [reject, {env: {name: A}}]", "env needs value"),
        ("effects: [reject]", "effects: [reject, {flag: {name: x}}]", "does not start with a dash"),
        (
            "effects: [reject]",
            "effects: [reject, {limit: {field: resolved.max_num_seqs}}]",
            "exactly one of max and min",
        ),
        (
            "effects: [reject]",
            "effects: [reject, {prefer: {field: machine.gpu, value: x}}]",
            "may set option",
        ),
        ("because: b", "because: b {option.nope}", "unknown field option.nope"),
        ("fires: false", "fires: true", "one that does not"),
        ("id: good", "id: other", "differs from the file name"),
        ("id: good", "id: Not Good", "pattern"),
        ("certainty: documented", "certainty: sure", "observed"),
        ("fix: f", "fix: f\noverrides: [nobody]", "names rule 'nobody'"),
        ("pass: admit", "pass: later", "admit"),
    ],
)
def test_bad_rule_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    directory = write(tmp_path / "rules", GOOD.replace(old, new, 1))
    with pytest.raises(DataError) as caught:
        load_rules(directory)
    assert message in str(caught.value)
    assert "good.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "is not YAML"),
        ("- a\n- b\n", "is not a mapping"),
        ("a: !!python/object:os.system x", "is not YAML"),
        ("id: good\nid: good\n", "is not YAML"),
    ],
)
def test_what_is_not_a_yaml_mapping_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_rules(write(tmp_path / "rules", text))


def test_the_line_of_the_bad_key_is_named(tmp_path: Path) -> None:
    directory = write(tmp_path / "rules", GOOD.replace("certainty: documented", "certainty: sure"))
    with pytest.raises(DataError) as caught:
        load_rules(directory)
    assert caught.value.line == 10
    assert caught.value.key == "certainty"


def test_second_load_needs_no_yaml(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write(tmp_path / "rules", GOOD)
    files = rulefiles.yaml_files(directory)
    first = rulefiles.cached_files(files, directory)
    monkeypatch.setattr(rulefiles, "parse_files", lambda _files: pytest.fail("parsed again"))
    assert rulefiles.cached_files(files, directory) == first
    assert list(own_cache.rglob("*.json"))


def test_a_changed_file_is_not_answered_from_the_cache(tmp_path: Path) -> None:
    directory = write(tmp_path / "rules", GOOD)
    rulefiles.cached_files(rulefiles.yaml_files(directory), directory)
    write(directory, GOOD.replace("title: t", "title: changed"))
    files = rulefiles.yaml_files(directory)
    assert rulefiles.cached_files(files, directory)["good.yaml"]["title"] == "changed"


@pytest.mark.parametrize("content", ["", "[]", "{", json.dumps({"digest": "x", "files": {}})])
def test_a_damaged_or_foreign_compiled_file_is_passed_over(tmp_path: Path, content: str) -> None:
    directory = write(tmp_path / "rules", GOOD)
    (directory / rulefiles.COMPILED).write_text(content, encoding="utf-8")
    assert [rule.id for rule in load_rules(directory).rules] == ["good"]


def test_a_home_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "blocker"
    blocker.write_text("a file where the cache directory would be", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    directory = write(tmp_path / "rules", GOOD)
    assert [rule.id for rule in load_rules(directory).rules] == ["good"]


def test_an_unknown_rule_names_the_nearest(tmp_path: Path) -> None:
    book = load_rules(write(tmp_path / "rules", GOOD))
    with pytest.raises(UserError, match="did you mean good"):
        book.get("goood")


def test_shipped_rules_load_without_the_yaml_reader() -> None:
    code = (
        "import sys\n"
        "from qwendeploy.rulebook.book import load_rules\n"
        "from qwendeploy.diagnosis import load_signatures\n"
        "load_rules(), load_signatures()\n"
        "print([name for name in sys.modules if name.startswith(('ruamel', 'pandas', 'yaml'))])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_data_check_names_every_problem_of_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = tmp_path / "rules"
    write(rules, GOOD)
    write(rules, GOOD.replace("id: good", "id: bad").replace("title: t", "titel: t"), "bad.yaml")
    write(rules, GOOD.replace("id: good", "id: other") + "see_also: [nowhere, bad]\n", "other.yaml")
    write(rules, "id: [", "torn.yaml")
    write(rules / "signatures", "id: wrong\nstage: never\n", "wrong.yaml")
    write(rules / "topics", "word:\n  title: t\n  text: [t]\n", "words.yaml")
    monkeypatch.setattr(
        "qwendeploy.api.data.data_dir",
        lambda name: rules if name == "rules" else resources.data_dir(name),
    )

    report = data.data_check()

    assert report.rules == {"rules": 2, "signatures": 0, "topics": 0}
    named = {(Path(problem.file or "").name, problem.key) for problem in report.problems}
    assert named >= {
        ("bad.yaml", "titel"),
        ("bad.yaml", "title"),
        ("other.yaml", "see_also"),
        ("torn.yaml", None),
        ("wrong.yaml", "stage"),
        ("wrong.yaml", "cause"),
        ("words.yaml", "word.sources"),
    }
    (dangling,) = [problem for problem in report.problems if problem.key == "see_also"]
    assert "'nowhere'" in dangling.what
