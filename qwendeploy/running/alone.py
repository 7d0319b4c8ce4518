"""One ``up`` at a time for a name on a daemon: a second one would take the first one's container
for a rest and remove it.

The lock is a file in ``/tmp`` named after daemon and name, so that all users of this host and
daemon share it, whatever their ``TMPDIR``. Those on other hosts do not: a container that they
are starting is known by its label (``running.found``).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qwendeploy.errors import EnvironmentProblem

LOCKS = Path("/tmp")
"""The one directory that every user may write in."""

MODE = 0o644
"""Others open the file to lock it; nobody reads or writes it."""


def lock_path(daemon: str, name: str) -> Path:
    """Return the lock of ``name`` on the daemon at an address, however its socket is spelt."""
    place = daemon.removeprefix("unix://")
    address = os.path.realpath(place) if place != daemon else daemon
    digest = hashlib.sha256(address.encode()).hexdigest()[:12]
    return LOCKS / f"qwendeploy-{digest}-{name}.lock"


@contextmanager
def alone(daemon: str, name: str) -> Iterator[None]:
    """Hold the lock of ``name``; the kernel releases it with the process, however that ends.

    Raises:
        EnvironmentProblem: another process holds it, or it cannot be made.
    """
    path = lock_path(daemon, name)
    handle = _locked(path, name)
    try:
        yield
    finally:
        # of another user: it stays, and is as good as a new one
        with suppress(OSError):
            path.unlink()
        os.close(handle)


def _locked(path: Path, name: str) -> int:
    """Return the open file once it is locked and still the one at ``path``."""
    while True:
        try:
            handle = _opened(path)
        except OSError as problem:
            raise EnvironmentProblem(
                f"cannot create the lock file of `up`: {problem.strerror}",
                where=str(path),
                hint="remove the file at that path",
            ) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise EnvironmentProblem(
                f"another `qwendeploy up` for {name} is running",
                where=str(path),
                hint="wait for it to finish; `qwendeploy status` shows its progress",
            ) from None
        # its holder may have removed it between the two calls
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.lstat()):
                return handle
        os.close(handle)


def _opened(path: Path) -> int:
    """Open the lock without following a link that somebody else may have put there."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            # first without O_CREAT: a kernel with fs.protected_regular refuses that for a file of
            # another user
            return os.open(path, flags)
        except FileNotFoundError:
            pass
        try:
            handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, MODE)
        except FileExistsError:
            continue
        # whatever the umask
        os.fchmod(handle, MODE)
        return handle
