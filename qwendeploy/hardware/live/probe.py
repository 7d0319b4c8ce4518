"""Access to this computer's programs, files and devices; tests replace it."""

from __future__ import annotations

import glob
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from qwendeploy.hardware.texts.clean import MAX_BYTES

TIMEOUT_S = 30
"""nvidia-smi without persistence mode initialises every card first: about 2 s each."""

SMI_PLACES = ("/usr/lib/wsl/lib/nvidia-smi", "/usr/bin/nvidia-smi", "/opt/bin/nvidia-smi")
"""Where nvidia-smi lies when PATH does not say: WSL2, distributions, GKE nodes."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program printed; ``timed_out`` if it was stopped."""

    code: int
    text: str
    timed_out: bool = False


class Probe(Protocol):
    """What hardware and doctor ask of a computer."""

    def run(self, *command: str, timeout_s: float = TIMEOUT_S) -> Ran | None:
        """Return what a program printed on both streams, or ``None`` if it is not there."""
        ...

    def read(self, path: str) -> str | None:
        """Return the start of a file, or ``None`` if it cannot be read."""
        ...

    def matches(self, pattern: str) -> list[str]:
        """Return the existing paths of a shell pattern."""
        ...

    def environ(self, name: str) -> str | None:
        """Return an environment variable."""
        ...

    def machine(self) -> str:
        """Return the processor architecture."""
        ...

    def system(self) -> str:
        """Return the name of the operating system's kernel."""
        ...


class ThisComputer:
    """The computer that the program runs on."""

    def run(self, *command: str, timeout_s: float = TIMEOUT_S) -> Ran | None:
        program = shutil.which(command[0])
        if program is None and command[0] == "nvidia-smi":
            program = next((place for place in SMI_PLACES if os.access(place, os.X_OK)), None)
        if program is None:
            return None
        environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C"}
        try:
            done = subprocess.run(
                [program, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ran(-1, "", timed_out=True)
        except OSError as problem:
            return Ran(-1, f"{command[0]}: {problem.strerror}")
        return Ran(done.returncode, done.stdout[:MAX_BYTES].decode("utf-8", errors="replace"))

    def read(self, path: str) -> str | None:
        try:
            with Path(path).open("rb") as handle:
                return handle.read(MAX_BYTES).decode("utf-8", errors="replace")
        except OSError:
            return None

    def matches(self, pattern: str) -> list[str]:
        return sorted(glob.glob(pattern))  # noqa: PTH207 - Path.glob takes no absolute pattern

    def environ(self, name: str) -> str | None:
        return os.environ.get(name)

    def machine(self) -> str:
        return platform.machine()

    def system(self) -> str:
        return platform.system()
