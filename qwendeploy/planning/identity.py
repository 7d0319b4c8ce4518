"""Identity of plans and machines: equal ones have equal ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Protocol

from qwendeploy.documents import Machine, OperatingPoint, Option

DIGITS = 12


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
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def machine_id(machine: Machine) -> str:
    """Return a digest of what must agree for two runs to be of one machine: GPUs and driver."""
    parts = [gpu.model or gpu.name or "?" for gpu in machine.gpus]
    parts += [gpu.uuid or "" for gpu in machine.gpus]
    return hashlib.sha256("|".join([*parts, machine.driver or ""]).encode()).hexdigest()[:DIGITS]
