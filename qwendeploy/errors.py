"""The error tree and the exit codes.

    QwendeployError
    ├── UserError            a setting or document the user can correct            exit 2
    │   └── DataError        a table, rule or document with file, line and key     exit 2
    ├── NoPlan               nothing feasible; carries the trace                    exit 1
    └── EnvironmentProblem   GPU, Docker or server is not there or refuses          exit 4

A message has three parts: what is wrong, where, and what to do next. Anything outside this
tree is a bug and keeps its traceback.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """What the process returns to the shell; every verb uses these and no others."""

    DONE = 0
    """Done, or the plan is confirmed."""
    REFUTED = 1
    """The plan is refuted, no option is feasible, or ``audit`` found errors."""
    USAGE = 2
    """A setting, file or document is invalid."""
    INCONCLUSIVE = 3
    """The measurement neither confirms nor refutes."""
    ENVIRONMENT = 4
    """No GPU, no Docker, or the server cannot be reached."""
    INTERRUPTED = 130
    """Stopped by the user; what was measured is on disk."""


class QwendeployError(Exception):
    """Base of every error that is reported as one message without a traceback."""

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.what}{hint}"


class UserError(QwendeployError):
    """A setting or an input file that the user can correct."""

    exit_code = ExitCode.USAGE


class DataError(UserError):
    """A table, rule or document with a bad value, named by file, line and key."""

    def __init__(
        self,
        what: str,
        *,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        hint: str | None = None,
    ) -> None:
        where = ":".join(str(part) for part in (file, line) if part is not None)
        if key is not None:
            where = f"{where}: {key}" if where else key
        super().__init__(what, where=where or None, hint=hint)
        self.file = file
        self.line = line
        self.key = key


class NoPlan(QwendeployError):
    """No option satisfies machine, workload and limits; ``trace`` says why each was rejected."""

    exit_code = ExitCode.REFUTED

    def __init__(
        self, what: str, *, where: str | None = None, hint: str | None = None, trace: Any = ()
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.trace = trace


class EnvironmentProblem(QwendeployError):
    """The GPU, Docker or the server is missing, refuses or does not answer."""

    exit_code = ExitCode.ENVIRONMENT


class NotSaved(EnvironmentProblem):
    """A result that could not be written; ``result`` holds it, so that it can be shown."""

    def __init__(self, problem: EnvironmentProblem, result: Any) -> None:
        super().__init__(problem.what, where=problem.where, hint=problem.hint)
        self.result = result
