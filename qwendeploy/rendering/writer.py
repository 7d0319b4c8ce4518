"""Artefacts reach the disk whole or not at all; nothing is overwritten without being asked."""

from __future__ import annotations

import difflib
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qwendeploy.documents.disk import FileContent, naming_refusals, write_file, write_files
from qwendeploy.errors import UserError
from qwendeploy.rendering.page import SECRET, SECRETS_FILE

DIFF_LINES = 200
"""Lines of difference shown; the rest is counted."""


@dataclass(frozen=True)
class Written:
    """What ``write`` did in ``directory``."""

    directory: Path
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    notes: tuple[str, ...] = ()


class WouldOverwrite(UserError):
    """Files of the target differ from what would be written; ``diff`` shows how."""

    def __init__(self, directory: Path, names: list[str], diff: str) -> None:
        super().__init__(
            f"{', '.join(names)} would be overwritten",
            where=str(directory),
            hint="look at the difference above and repeat with --force, or choose another -o",
        )
        self.diff = diff


def write(files: Mapping[str, tuple[str, int]], directory: Path, *, force: bool) -> Written:
    """Write ``files`` (text and mode by name) into ``directory``, all of them or none.

    Equal files are left alone. Every new text is complete under a temporary name in the same
    directory before the first one is renamed.

    Raises:
        WouldOverwrite: a file is there with other content and ``force`` is off.
        UserError: the directory cannot be made or written.
    """
    with naming_refusals(directory):
        directory.mkdir(parents=True, exist_ok=True)
        changed, unchanged = _compare(files, directory, force=force)
        write_files({directory / name: _content(*files[name]) for name in changed})
        for name in unchanged:
            _set_mode(directory / name, files[name][1])
    return Written(directory, tuple(changed), tuple(unchanged))


def _compare(
    files: Mapping[str, tuple[str, int]], directory: Path, *, force: bool
) -> tuple[list[str], list[str]]:
    """Return the names to write and those already equal; refuse silent overwriting."""
    changed: list[str] = []
    unchanged: list[str] = []
    clashes: list[str] = []
    diff: list[str] = []
    for name, (text, _) in files.items():
        path = directory / name
        if path.is_dir():
            raise UserError("is a directory", where=str(path), hint="choose another -o")
        if not path.exists():
            changed.append(name)
            continue
        present = path.read_bytes().decode("utf-8", errors="replace")
        if present == text:
            unchanged.append(name)
            continue
        changed.append(name)
        clashes.append(name)
        diff += difflib.unified_diff(
            present.splitlines(), text.splitlines(), str(path), f"{name} (new)", lineterm=""
        )
    if clashes and not force:
        if len(diff) > DIFF_LINES:
            diff[DIFF_LINES:] = [f"... {len(diff) - DIFF_LINES} more lines"]
        raise WouldOverwrite(directory, clashes, "\n".join(diff))
    return changed, unchanged


def _content(text: str, mode: int) -> FileContent:
    return FileContent(text.encode(), mode)


def _set_mode(path: Path, mode: int) -> None:
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)


def present_secrets(directory: Path) -> str:
    """Return the text of ``secrets.env``, empty if it is not there.

    Raises:
        UserError: it is there, but cannot be read.
    """
    path = directory / SECRETS_FILE
    try:
        return path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(
            f"cannot be used: {getattr(problem, 'strerror', None) or problem}",
            where=str(path),
            hint="it holds one NAME=value a line; move what is there away",
        ) from None


def write_secrets(
    directory: Path, *, api_key: str, hub_token: str, required: tuple[str, ...]
) -> tuple[str, ...]:
    """Make sure that ``secrets.env`` is there with mode 0600 and a key where one is required.

    What the file holds already stays. ``api_key`` and ``hub_token`` are the variables' names.
    Returns what the user should know.

    Raises:
        UserError: the file cannot be read or written.
    """
    path = directory / SECRETS_FILE
    notes: list[str] = []
    with naming_refusals(path):
        present = present_secrets(directory)
        text = present or _secrets_head(api_key, hub_token)
        held = variables(text)
        if api_key in required and not held.get(api_key):
            text = text.rstrip("\n") + f"\n{api_key}={secrets.token_urlsafe(32)}\n"
            notes.append(f"a new key for clients is in {path} as {api_key}")
        if hub_token in required and not held.get(hub_token):
            notes.append(f"write {hub_token}=... into {path}: a checkpoint is gated")
        notes += [
            f"{name} in {path} is in quotes, which Docker takes for a part of the value and others"
            " do not: leave them out"
            for name, value in held.items()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        ]
        if text != present:
            write_file(path, text.encode(), SECRET)
        elif stat.S_IMODE(path.stat().st_mode) != SECRET:
            path.chmod(SECRET)
            notes.append(f"{path} was readable by others; its mode is 0600 now")
    return tuple(notes)


def _secrets_head(api_key: str, hub_token: str) -> str:
    return (
        "# Secrets of the server: one NAME=value a line, without quotes. Mode 0600; keep it out of"
        " version control.\n"
        f"# {api_key}=key that clients must send\n"
        f"# {hub_token}=token for gated checkpoints\n"
    )


def variables(text: str) -> dict[str, str]:
    """Return the variables that an env file sets, as Docker reads it."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value for name, equals, value in pairs if equals and name.strip()}
