"""Identity of plans and machines: equal ones have equal ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Protocol

from qwendeploy.documents import Machine, OperatingPoint, Option, Plan

DIGITS = 12
OPTION_EDITED = (
    "option, flags or operating point do not belong to the plan's id: it was edited by hand, and"
    " its predictions may not hold"
)
PREDICTIONS_EDITED = (
    "machine or predictions of the plan were edited after it was created: they are no longer"
    " computed values"
)


class Named(Protocol):
    """A flag or variable, while options are compared or as a plan stores it."""

    @property
    def name(self) -> str:
        """The flag with its dashes, or the variable."""

    @property
    def value(self) -> str | None:
        """``None`` for a switch."""


def plan_id(
    option: Option, flags: Iterable[Named], env: Iterable[Named], point: OperatingPoint
) -> str:
    """Return the first 12 hex digits of the SHA-256 over what the plan runs and promises.

    A value that is its field's default is not hashed, so that a plan keeps its id when a later
    version of the document knows one field more.
    """
    content = {
        "option": option.model_dump(mode="json", exclude_defaults=True),
        "flags": [[setting.name, setting.value] for setting in flags],
        "env": [[setting.name, setting.value] for setting in env],
        "point": point.model_dump(mode="json", exclude_defaults=True),
    }
    return _digest(content)


def seal(plan: Plan) -> str:
    """Return the digest of what a plan was made for and what it predicts."""
    parts = ("machine", "predictions", "cells")
    return _digest(plan.model_dump(mode="json", include=set(parts), exclude_defaults=True))


def edits(plan: Plan) -> tuple[str, ...]:
    """Return a note for each part of a plan that was changed since it was made."""
    found = []
    if plan_id(plan.option, plan.flags, plan.env, plan.operating_point) != plan.plan_id:
        found.append(OPTION_EDITED)
    if plan.seal is not None and plan.seal != seal(plan):
        found.append(PREDICTIONS_EDITED)
    return tuple(found)


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def machine_id(machine: Machine) -> str:
    """Return a digest of what must agree for two runs to be of one machine: GPUs and driver."""
    parts = [gpu.model or gpu.name or "?" for gpu in machine.gpus]
    parts += [gpu.uuid or "" for gpu in machine.gpus]
    return hashlib.sha256("|".join([*parts, machine.driver or ""]).encode()).hexdigest()[:DIGITS]
