"""Text under audit: bounded in size, with the place of every part, never executed."""

from __future__ import annotations

import codecs
import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

from qwendeploy.errors import UserError

LARGEST_BYTES = 256 * 1024
"""A launch file is a few kilobytes; anything larger is not one, and parsing stays bounded."""
LONGEST_WORD = 64 * 1024
MOST_WORDS = 20_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: a file as the user named it and a line from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Word:
    """One argument after quoting is undone, with its place; ``$NAME`` may be left in it."""

    text: str
    place: Place

    @property
    def symbolic(self) -> bool:
        """Whether a variable that is not known here is still in it."""
        return "$" in self.text


def whole_number(text: str) -> int | None:
    """Return a number of up to eighteen digits, ``None`` for everything else.

    Single underscores between digits are passed over, as Python does.
    """
    plain = text.strip()
    return int(plain) if re.fullmatch(r"[0-9](?:_?[0-9]){0,17}", plain) else None


def read_text(path: Path, name: str | None = None) -> str:
    """Return a file's text with Unix line ends.

    Raises:
        UserError: missing, a directory, unreadable, larger than ``LARGEST_BYTES``, or binary.
    """
    shown = name or str(path)
    try:
        with path.open("rb") as handle:
            raw = handle.read(LARGEST_BYTES + 1)
    except OSError as problem:
        raise UserError(f"cannot be read: {problem.strerror or problem}", where=shown) from None
    return decode(raw, shown)


def decode(raw: bytes, shown: str) -> str:
    """Return bytes as text with Unix line ends. Raises UserError as ``read_text``."""
    if len(raw) > LARGEST_BYTES:
        raise UserError(
            f"larger than {LARGEST_BYTES // 1024} KiB",
            where=shown,
            hint="pass only the launch command or file",
        )
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # What PowerShell writes when a command's output is redirected.
        with contextlib.suppress(UnicodeDecodeError):
            raw = raw.decode("utf-16").encode("utf-8")
    if b"\x00" in raw:
        raise UserError("binary, not a launch command or file", where=shown)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw[: problem.start].count(b"\n") + 1
        raise UserError("not UTF-8 text", where=f"{shown}:{line}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
