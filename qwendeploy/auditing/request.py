"""The audit request; kept separate so that callers need not import the auditing modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from qwendeploy.documents.option import Content


@dataclass(frozen=True)
class AuditRequest:
    """What to audit and for which machine.

    ``source`` is a path, the bytes of a stream, or the name of a container; ``machine`` holds the
    settings of ``planning.machines.resolve``.
    """

    source: Path | bytes | str
    engine_version: str | None = None
    concurrency: int | None = None
    typical_context: int | None = None
    content: Content = Content.MIXED
    contexts: Literal["shared", "separate"] = "separate"
    compare: bool = True
    machine: Mapping[str, Any] = field(default_factory=dict)
