"""What an artefact kind is: one record, from which command line, goldens, tests and docs follow."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qwendeploy.documents import Plan
from qwendeploy.rendering.launch import Launch
from qwendeploy.rendering.page import SECRETS_FILE

Files = dict[str, tuple[str, int]]
"""Text and mode by file name."""


@dataclass(frozen=True)
class Order:
    """What a builder is given."""

    plan: Plan
    launch: Launch
    header: list[str]
    """Comment lines for the top of the file."""
    router: bool
    """Whether every replica is a server of its own behind a router."""


@dataclass(frozen=True)
class ArtefactKind:
    """One kind of files that run a plan; the ``KIND`` of a module of ``rendering.kinds``.

    In ``main_file``, ``start`` and ``checks`` the name of the launch stands as ``{name}``; in the
    latter two also the main file as ``{file}``, and in ``start`` the directory as ``{place}`` and
    the file of keys as ``{secrets}``.
    """

    name: str
    """As ``generate -f`` takes it."""
    title: str
    """What is written, with its article."""
    main_file: str
    """The file that starts the server, which ``audit`` reads back."""
    build: Callable[[Order], Files]
    """Makes the files beside ``plan.yaml`` and ``verify.sh``. Raises DataError for a value that
    the format cannot hold."""
    start: str
    """The command line that starts the server."""
    checks: tuple[str, ...]
    """Command lines that accept the main file, run in its directory."""
    engines: tuple[str, ...] = ("vllm", "llama.cpp")
    container: bool = True
    """Whether the server runs from the plan's image."""
    replicas: Literal["process", "router", "pods"] = "process"
    """How several are started: in one process, or as servers of their own behind nginx or as the
    pods of a cluster, where every other pod reaches the port."""

    def file_of(self, name: str) -> str:
        """Return the name of the main file of a launch of that name."""
        return self.main_file.format(name=name)

    def start_line(self, directory: Path, name: str) -> str:
        """Return the command line that starts what was written into ``directory``."""
        place = shlex.quote(str(directory))
        file = f"{place}/{self.file_of(name)}"
        return self.start.format(place=place, file=file, name=name, secrets=SECRETS_FILE)

    def check_lines(self, name: str) -> tuple[tuple[str, ...], ...]:
        """Return the argument vectors that check the main file, run in its directory."""
        file = self.file_of(name)
        return tuple(tuple(shlex.split(line.format(file=file, name=name))) for line in self.checks)
