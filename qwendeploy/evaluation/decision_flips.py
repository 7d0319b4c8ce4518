"""Situations where the constant answer, FP8 with three MTP drafts at TP=2, is wrong or impossible.

``benchdata/decision_flips.yaml`` holds them as data: machine, workload, what the user fixed, the
right answer as conditions on the plan, why, and the evidence. A situation is right if every
condition of one of its accepted answers holds. ``data accuracy`` prints the share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from qwendeploy.documents import Gpu, Machine, Plan, Workload
from qwendeploy.documents.base import Model
from qwendeploy.documents.request import Pins, Request
from qwendeploy.errors import DataError, NoPlan, QwendeployError
from qwendeploy.hardware.interconnect import with_interconnect
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.hardware.usable import judge
from qwendeploy.resources import data_dir
from qwendeploy.rulebook.files import parse_files, validation_errors
from qwendeploy.tables.gpus import gpus

FILE = "decision_flips.yaml"
OPERATORS = ("gt", "ge", "lt", "le", "ne", "not_in", "matches", "contains", "lacks")
Recommender = Callable[[Machine, Workload, Request], Plan]


class StatedBox(Model):
    """A machine as a user states it; ``cards`` instead of ``gpu`` for unlike ones."""

    gpu: str | None = None
    gpus: Annotated[int, Field(ge=1)] = 1
    cards: tuple[str, ...] = ()
    vram: float | None = None
    driver: str | None = None
    nvlink: bool | None = None
    p2p: Literal["yes", "no", "unknown"] | None = None
    os: Literal["linux", "wsl2"] = "linux"

    def machine(self) -> Machine:
        """Return the machine. Raises UserError as ``stated_machine``."""
        names = self.cards or (self.gpu or "",)
        parts = [
            stated_machine(
                name,
                1 if self.cards else self.gpus,
                catalogue=gpus(),
                vram_gib=self.vram,
                driver=self.driver,
                nvlink=self.nvlink,
                system=self.os,
            )
            for name in names
        ]
        machine = parts[0]
        if len(parts) > 1:
            cards: list[Gpu] = [
                gpu.model_copy(update={"index": index})
                for index, gpu in enumerate(gpu for part in parts for gpu in part.gpus)
            ]
            joined = machine.model_copy(update={"gpus": tuple(cards), "count": len(cards)})
            machine = with_interconnect(judge(joined), gpus())
        if self.p2p is not None:
            machine = machine.model_copy(update={"p2p": self.p2p})
        return machine


class Situation(Model):
    """One machine and workload with the answers that are right there."""

    id: str
    machine: StatedBox
    workload: dict[str, Any]
    """Fields of ``Workload``."""
    pins: dict[str, Any] = Field(default_factory=dict)
    """Fields of ``Pins``."""
    accept: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)]
    """Right answers; each maps a field of the plan, or ``exit``, to a condition."""
    constant: Literal["wrong", "impossible", "right"]
    why: str
    evidence: str


@dataclass(frozen=True)
class FlipResult:
    """What was advised in one situation, and which condition failed."""

    id: str
    constant: str
    right: bool
    answer: str
    missed: str


@cache
def situations() -> tuple[Situation, ...]:
    """Return the shipped situations.

    Raises:
        DataError: the file is missing or invalid; names file, line and key.
    """
    path = data_dir("benchdata") / FILE
    try:
        content = parse_files([path])[FILE]
    except OSError:
        raise DataError("no such file", file=str(path)) from None
    found = []
    for entry in content.get("situations", ()):
        try:
            found.append(Situation.model_validate(entry))
        except ValidationError as problem:
            raise validation_errors(path, problem)[0] from None
    names = [situation.id for situation in found]
    for name in names:
        if names.count(name) > 1:
            raise DataError("occurs twice", file=str(path), key=name)
    return tuple(found)


def judge_situation(situation: Situation, recommend: Recommender) -> FlipResult:
    """Return the advice for a situation and whether an accepted answer is met."""
    facts = _answer(situation, recommend)
    misses = [_first_miss(facts, accepted) for accepted in situation.accept]
    return FlipResult(
        id=situation.id,
        constant=situation.constant,
        right=None in misses,
        answer=str(facts["answer"]),
        missed="" if None in misses else str(misses[0]),
    )


def judge_all(recommend: Recommender) -> tuple[FlipResult, ...]:
    """Return the results of all shipped situations."""
    return tuple(judge_situation(situation, recommend) for situation in situations())


def _answer(situation: Situation, recommend: Recommender) -> dict[str, Any]:
    try:
        machine = situation.machine.machine()
        workload = Workload.model_validate(situation.workload)
        request = Request(pins=Pins(**situation.pins))
        plan = recommend(machine, workload, request)
    except NoPlan as refusal:
        rules = sorted({entry.rule for entry in refusal.trace})
        return {"exit": int(refusal.exit_code), "rules": rules, "answer": f"no plan: {refusal}"}
    except QwendeployError as problem:
        return {"exit": int(problem.exit_code), "rules": [], "answer": f"error: {problem}"}
    return _facts(plan)


def _facts(plan: Plan) -> dict[str, Any]:
    option = plan.option
    facts: dict[str, Any] = {"exit": 0}
    for name, value in option.model_dump().items():
        facts[f"option.{name}"] = value
    facts["option.gpus_used"] = option.gpus_used
    for name, value in plan.predictions.model_dump().items():
        if isinstance(value, dict) and "value" in value:
            facts[f"predictions.{name}"] = value["value"]
    facts["warnings"] = [warning.rule for warning in plan.warnings]
    facts["rules"] = sorted({entry.rule for entry in plan.trace})
    facts["headlines"] = " ".join(plan.headlines)
    for setting in plan.flags:
        facts[f"flag.{setting.name.lstrip('-')}"] = setting.value if setting.value else True
    for setting in plan.env:
        facts[f"env.{setting.name}"] = setting.value
    draft = "" if option.spec_method == "none" else f"+{option.spec_method}{option.spec_tokens}"
    facts["answer"] = (
        f"{option.quant}{draft} tp{option.tp}×{option.replicas} {option.kv_cache_dtype} KV, "
        f"{option.image or option.engine}"
    )
    return facts


def _first_miss(facts: Mapping[str, Any], accepted: Mapping[str, Any]) -> str | None:
    for name, condition in accepted.items():
        value = facts.get(name)
        if not meets(value, condition):
            return f"{name} is {value}, right is {condition}"
    return None


def meets(value: Any, condition: Any) -> bool:
    """Return whether a value of the plan meets a condition.

    A condition is a value, a list of allowed values, ``None`` for *not set*, or a mapping of
    operators that must all hold. A missing value meets only ``None``, ``ne``, ``not_in`` and
    ``lacks``.

    Raises:
        DataError: an unknown operator.
    """
    if isinstance(condition, Mapping):
        return all(_holds(value, name, wanted) for name, wanted in condition.items())
    if isinstance(condition, list | tuple):
        return value in condition
    return bool(value == condition)


def _holds(value: Any, operator: str, wanted: Any) -> bool:
    if operator not in OPERATORS:
        raise DataError(f"unknown operator {operator!r}", file=FILE)
    if operator == "ne":
        return bool(value != wanted)
    if operator == "not_in":
        return value not in wanted
    if operator == "lacks":
        return value is None or wanted not in value
    if value is None:
        return False
    if operator == "matches":
        return re.search(wanted, str(value)) is not None
    if operator == "contains":
        return wanted in value
    return bool({"gt": value > wanted, "ge": value >= wanted, "lt": value < wanted,
                 "le": value <= wanted}[operator])  # fmt: skip
