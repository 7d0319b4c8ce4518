"""The one way in which files reach the disk: complete, or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FileContent:
    """What a file shall hold; without ``mode`` its permissions are those that the umask leaves."""

    data: bytes
    mode: int | None = None


def write_files(files: Mapping[Path, FileContent], *, replace: bool = True) -> None:
    """Write all files or none; no reader ever sees a part of one.

    Every content is complete and synced under a temporary name in the directory of its file before
    the first one is renamed. Directories are made where they are missing.

    Raises:
        FileExistsError: a file exists and not ``replace``.
        OSError: a file cannot be written.
    """
    staged: list[tuple[Path, Path]] = []
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            handle = os.open(temporary, flags, 0o666 if content.mode is None else 0o600)
            staged.append((temporary, path))
            with os.fdopen(handle, "wb") as stream:
                stream.write(content.data)
                stream.flush()
                os.fsync(stream.fileno())
            if content.mode is not None:
                temporary.chmod(content.mode)
        for temporary, path in staged:
            if replace:
                temporary.replace(path)
            else:
                _name(temporary, path)
    finally:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_file(path: Path, data: bytes, mode: int | None = None, *, replace: bool = True) -> None:
    """Write one file as ``write_files`` does."""
    write_files({path: FileContent(data, mode)}, replace=replace)


def _name(temporary: Path, path: Path) -> None:
    """Give the file its name unless that is taken; some file systems have no hard links."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        if path.exists():
            raise FileExistsError from None
        temporary.replace(path)
