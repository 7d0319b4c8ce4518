"""A computer made of given program outputs, files and variables."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field

from qwendeploy.hardware.live.probe import Ran


@dataclass
class FakeComputer:
    """Stands in for the computer that hardware and doctor read."""

    outputs: Mapping[str, str | Ran] = field(default_factory=dict)
    """Output by command line; a program of which nothing is given is not installed."""
    files: Mapping[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    architecture: str = "x86_64"

    def run(self, *command: str, timeout_s: float = 30) -> Ran | None:  # noqa: ARG002
        given = self.outputs.get(" ".join(command))
        if given is None:
            if any(line.split()[0] == command[0] for line in self.outputs):
                return Ran(2, "")
            return None
        return given if isinstance(given, Ran) else Ran(0, given)

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def matches(self, pattern: str) -> list[str]:
        return sorted(path for path in self.files if fnmatch.fnmatchcase(path, pattern))

    def environ(self, name: str) -> str | None:
        return self.variables.get(name)

    def machine(self) -> str:
        return self.architecture

    def system(self) -> str:
        return "Linux"
