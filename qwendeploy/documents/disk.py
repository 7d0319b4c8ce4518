"""The one way in which files reach the disk: complete or not at all, refused in one line."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qwendeploy.errors import QwendeployError, UserError


@dataclass(frozen=True)
class FileContent:
    """What a file shall hold; without ``mode`` its permissions are those that the umask leaves."""

    data: bytes
    mode: int | None = None


@contextmanager
def naming_refusals(place: Path, kind: type[QwendeployError] = UserError) -> Iterator[None]:
    """Raise ``kind``, naming ``place``, where the system refuses to write."""
    try:
        yield
    except OSError as problem:
        # what mkdir says of a file where a directory should be
        above = isinstance(problem, FileExistsError | NotADirectoryError)
        why = "a part of its path is a file" if above else problem.strerror or str(problem)
        raise kind(
            f"cannot be written: {why}",
            where=str(place),
            hint="choose another place, or correct its permissions",
        ) from None


def write_files(
    files: Mapping[Path, FileContent],
    *,
    force: bool = True,
    kind: type[QwendeployError] = UserError,
) -> None:
    """Write all files or none; no reader ever sees a part of one.

    Every content is complete and synced under a temporary name in the directory of its file before
    the first one is renamed. Directories are made where they are missing.

    Raises:
        UserError: a file exists and not ``force``.
        kind: a file cannot be written, or a directory or device has its name.
    """
    staged: list[tuple[Path, Path]] = []
    try:
        for path, content in files.items():
            with naming_refusals(path, kind):
                _check(path, kind)
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
                staged.append((temporary, path))
                _fill(temporary, content)
        for temporary, path in staged:
            with naming_refusals(path, kind):
                if force:
                    temporary.replace(path)
                else:
                    _name(temporary, path)
    finally:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_file(
    path: Path,
    data: bytes,
    mode: int | None = None,
    *,
    force: bool = True,
    kind: type[QwendeployError] = UserError,
) -> None:
    """Write one file as ``write_files`` does."""
    write_files({path: FileContent(data, mode)}, force=force, kind=kind)


def _check(path: Path, kind: type[QwendeployError]) -> None:
    """Refuse what a rename would fail on, or replace by a file: directories and devices."""
    if path.exists() and not path.is_file():
        what = "is a directory" if path.is_dir() else "is not a regular file"
        raise kind(what, where=str(path), hint="name a file; --json prints to stdout")


def _fill(temporary: Path, content: FileContent) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    handle = os.open(temporary, flags, 0o666 if content.mode is None else 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content.data)
        stream.flush()
        os.fsync(stream.fileno())
    if content.mode is not None:
        temporary.chmod(content.mode)


def _name(temporary: Path, path: Path) -> None:
    """Give the file its name unless that is taken; some file systems have no hard links."""
    try:
        os.link(temporary, path)
    except OSError:
        if os.path.lexists(path):
            raise UserError(
                "exists already", where=str(path), hint="--force overwrites it"
            ) from None
        temporary.replace(path)
