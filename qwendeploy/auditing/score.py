"""Audit scores on launches with a known outcome: the table of ``data accuracy --audit``.

A case is a subfolder with the configuration, ``machine.yaml`` and ``expect.yaml``, or one YAML file
with the keys ``launch`` (``file`` and ``text``), ``machine`` and ``expect``. What is expected:
outcome, also_accepted, kind, findings (id, severity, about), pool_blocks, pool_blocks_range,
blocks_per_full_request, false_alarms. Scoring: the outcome is the expected or an accepted one;
every expected error and warning is found; any further error or warning is a false alarm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwendeploy.auditing.judging.findings import Finding
from qwendeploy.auditing.judging.judge import Judged, judge_launch
from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.reading.read import read_launch_text, read_launches
from qwendeploy.auditing.reading.text import read_text
from qwendeploy.auditing.understanding.context import Context, described, read_context
from qwendeploy.auditing.understanding.memory import blocks_per_full_request
from qwendeploy.errors import UserError
from qwendeploy.rulebook.book import RuleBook

_BESIDE = {"machine.yaml", "expect.yaml"}


@dataclass(frozen=True)
class CaseScore:
    """One case: what was expected, what was found."""

    name: str
    kind: str
    works: bool
    """The case is one that works."""
    outcome: str
    expected_outcome: str
    outcome_right: bool
    expected: int
    """Errors and warnings expected."""
    missed: tuple[str, ...]
    false_errors: tuple[str, ...]
    false_warnings: tuple[str, ...]
    listed_alarms: tuple[str, ...]
    """False alarms that the case itself names and that were raised."""
    pool_error: float | None
    blocks_right: bool | None


@dataclass(frozen=True)
class AuditScore:
    """All cases together."""

    cases: tuple[CaseScore, ...]

    @property
    def recall(self) -> float:
        """Share of expected errors and warnings that were found."""
        expected = sum(case.expected for case in self.cases)
        missed = sum(len(case.missed) for case in self.cases)
        return 1 - missed / expected if expected else 1.0

    @property
    def outcomes_right(self) -> float:
        """Share of cases with the expected or an accepted outcome."""
        return sum(case.outcome_right for case in self.cases) / len(self.cases)

    @property
    def working_with_false_error(self) -> float:
        """Share of the working cases in which an error is raised."""
        working = [case for case in self.cases if case.works]
        return sum(bool(case.false_errors) for case in working) / len(working) if working else 0.0

    @property
    def false_warnings_per_case(self) -> float:
        """False warnings a case."""
        return sum(len(case.false_warnings) for case in self.cases) / len(self.cases)


@dataclass(frozen=True)
class Case:
    """A launch with its surroundings and what is known to become of it."""

    name: str
    launch: ForeignLaunch
    context: Context
    expect: dict[str, Any]


def score_folder(folder: Path, rules: RuleBook | None = None) -> AuditScore:
    """Return the score over every case of a folder.

    Raises:
        UserError: the folder holds no case, or a case cannot be read.
    """
    return AuditScore(tuple(score_case(case, rules) for case in read_cases(folder)))


def checkout_cases() -> Path:
    """Return the folder of cases of a checkout; an installed package carries none.

    Raises:
        UserError: this is no checkout.
    """
    folder = Path(__file__).resolve().parents[2] / "tests" / "data" / "audit"
    if not folder.is_dir():
        raise UserError(
            "the test cases exist only in a source checkout", hint="pass a directory: --audit DIR"
        )
    return folder


def read_cases(folder: Path) -> list[Case]:
    """Return every case of a folder. Raises UserError as ``score_folder``."""
    if not folder.is_dir():
        raise UserError("no such directory", where=str(folder))
    cases = []
    for entry in sorted(folder.iterdir()):
        if (entry / "expect.yaml").is_file():
            cases.append(_from_folder(entry))
        elif entry.suffix == ".yaml":
            cases.append(_from_file(entry))
    if not cases:
        raise UserError("contains no case with expectations", where=str(folder))
    return cases


def _from_folder(folder: Path) -> Case:
    files = [entry for entry in sorted(folder.iterdir()) if entry.name not in _BESIDE]
    if len(files) != 1:
        raise UserError("a case needs exactly one configuration file", where=str(folder))
    context = read_context(folder / "machine.yaml") or Context()
    launch = read_launches(files[0])[0]
    return Case(folder.name, launch, context, _expectation(_load(folder / "expect.yaml"), folder))


def _from_file(path: Path) -> Case:
    content = _load(path)
    launch = content.get("launch")
    if not isinstance(launch, dict) or not {"file", "text"} <= launch.keys():
        raise UserError("launch needs file and text", where=str(path))
    context = described(content["machine"], str(path)) if content.get("machine") else Context()
    launches = read_launch_text(str(launch["text"]), str(launch["file"]))
    return Case(path.stem, launches[0], context, _expectation(content.get("expect"), path))


def _load(path: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        content = YAML(typ="safe", pure=True).load(read_text(path))
    except YAMLError as problem:
        raise UserError(f"not valid YAML: {problem}".splitlines()[0], where=str(path)) from None
    if not isinstance(content, dict):
        raise UserError("not a YAML mapping", where=str(path))
    return content


def _expectation(content: Any, path: Path) -> dict[str, Any]:
    if not isinstance(content, dict) or "outcome" not in content:
        raise UserError("no expected outcome is given", where=str(path))
    return content


def score_case(case: Case, rules: RuleBook | None = None) -> CaseScore:
    """Return the score of one case."""
    expect = case.expect
    judged = judge_launch(case.launch, case.context, rules)
    wanted = [item for item in expect.get("findings") or [] if item["severity"] != "info"]
    told = [found for found in judged.findings if found.severity != "info"]
    missed = tuple(item["id"] for item in wanted if not any(_same(item, one) for one in told))
    extra = [one for one in told if not any(_same(item, one) for item in wanted)]
    accepted = {expect["outcome"], *(expect.get("also_accepted") or [])}
    alarms = [_about(item) for item in expect.get("false_alarms") or []]
    return CaseScore(
        name=case.name,
        kind=str(expect.get("kind", "")),
        works=expect["outcome"] == "works",
        outcome=judged.outcome,
        expected_outcome=expect["outcome"],
        outcome_right=judged.outcome in accepted,
        expected=len(wanted),
        missed=missed,
        false_errors=tuple(one.id for one in extra if one.severity == "error"),
        false_warnings=tuple(one.id for one in extra if one.severity == "warning"),
        listed_alarms=tuple(
            alarm for alarm in alarms if any(_touches(alarm, one.about) for one in extra)
        ),
        pool_error=_pool_error(expect, judged),
        blocks_right=_blocks_right(expect, judged),
    )


def _about(item: Any) -> str:
    return str(item["about"]) if isinstance(item, dict) else str(item)


def _same(item: dict[str, Any], found: Finding) -> bool:
    """Say whether a finding is the expected one: the same fault, by name or by what it is about."""
    if item["id"] == found.id:
        return True
    words = _marks(f"{item['about']} {item['id']}")
    return len(words & _marks(f"{found.about} {found.id}")) >= 2 and _touches(
        str(item["about"]), found.about
    )


def _marks(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z0-9_]{3,}", text.lower()) if word not in _COMMON}


_COMMON = {"the", "and", "with", "without", "not", "flag", "image", "for", "value", "model"}


def _touches(first: str, second: str) -> bool:
    """Say whether two texts name the same flag or variable."""
    pattern = r"--?[a-z][a-z0-9-]+|[A-Z][A-Z0-9_]{4,}|[a-z]+_[a-z_]+"
    ours, theirs = set(re.findall(pattern, first)), set(re.findall(pattern, second))
    return bool(ours & theirs)


def _pool_error(expect: dict[str, Any], judged: Judged) -> float | None:
    """Return the relative error of the pool, 0 inside the case's own range."""
    wanted = expect.get("pool_blocks")
    if wanted is None or judged.view is None:
        return None
    pool = judged.view.pool.count
    low, high = expect.get("pool_blocks_range") or (wanted, wanted)
    if low <= pool <= high:
        return 0.0
    if wanted == 0:
        return 0.0 if pool < judged.view.pool.per_request else 1.0
    return float(min(abs(pool - low), abs(pool - high)) / wanted)


def _blocks_right(expect: dict[str, Any], judged: Judged) -> bool | None:
    wanted = expect.get("blocks_per_full_request")
    if wanted is None:
        return None
    return blocks_per_full_request(judged.understood) == int(wanted)


def by_kind(cases: Iterable[CaseScore]) -> dict[str, tuple[CaseScore, ...]]:
    """Return cases by the family of their fault."""
    grouped: dict[str, list[CaseScore]] = {}
    for case in cases:
        grouped.setdefault(case.kind, []).append(case)
    return {kind: tuple(members) for kind, members in sorted(grouped.items())}
