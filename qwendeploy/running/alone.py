"""One ``up`` at a time for a name: a second one would take the first one's container for a rest."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qwendeploy.errors import EnvironmentProblem


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Hold the lock of ``name``; the kernel releases it with the process, however that ends.

    Raises:
        EnvironmentProblem: another process holds it.
    """
    path = Path(tempfile.gettempdir()) / f"qwendeploy-{os.getuid()}-{name}.lock"
    try:
        # not following a link that somebody else may have put there
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise EnvironmentProblem(
            f"the lock of `up` cannot be made: {problem.strerror}",
            where=str(path),
            hint="remove what is there, or set TMPDIR to a directory that can be written",
        ) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EnvironmentProblem(
                f"another `qwendeploy up` for {name} is under way",
                where=str(path),
                hint="wait for it; `qwendeploy status` tells how far it is",
            ) from None
        yield
    finally:
        os.close(handle)
