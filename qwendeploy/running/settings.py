"""Settings of a start that are not part of the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class UpSettings:
    """How to start, beside the plan."""

    name: str = "qwendeploy"
    yes: bool = False
    """Replace a container of another plan without asking."""
    network: str | None = None
    timeout_s: float | None = None
    secrets_file: Path | None = None
    checks: bool = True
    """Look at this machine's GPUs before anything is pulled."""
    writable: bool = False
    confirm: Callable[[list[str]], bool] | None = None
    """Asked with the differences when a container of another plan is there."""
