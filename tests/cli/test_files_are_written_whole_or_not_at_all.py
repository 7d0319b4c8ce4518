"""One module writes files: whole or not at all, never over another without being told to."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from qwendeploy.documents.disk import FileContent, write_file, write_files
from qwendeploy.errors import EnvironmentProblem, UserError


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_file_stays_until_forced(tmp_path: Path) -> None:
    write_file(tmp_path / "new" / "a", b"one", force=False)
    with pytest.raises(UserError, match=r"exists already.*--force"):
        write_file(tmp_path / "new" / "a", b"two", force=False)
    assert held(tmp_path / "new") == {"a": b"one"}
    write_file(tmp_path / "new" / "a", b"two")
    assert held(tmp_path / "new") == {"a": b"two"}


def test_a_file_stays_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    write_file(tmp_path / "a", b"one", force=False)
    with pytest.raises(UserError, match="exists already"):
        write_file(tmp_path / "a", b"two", force=False)
    assert held(tmp_path) == {"a": b"one"}


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "a", b"old")
    synced: list[int] = []

    def full(handle: int) -> None:
        synced.append(handle)
        if len(synced) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentProblem, match="No space left") as caught:
        write_files(
            {tmp_path / "a": FileContent(b"new"), tmp_path / "b": FileContent(b"new")},
            kind=EnvironmentProblem,
        )
    assert caught.value.where == str(tmp_path / "b")
    assert held(tmp_path) == {"a": b"old"}


def test_a_name_taken_by_a_directory_stops_all(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with pytest.raises(UserError, match="is a directory"):
        write_files({tmp_path / "a": FileContent(b"x"), tmp_path / "b": FileContent(b"x")})
    assert held(tmp_path) == {}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("below", ["file/a", "file/folder/a"])
def test_a_file_where_a_directory_should_be_is_named(
    tmp_path: Path, below: str, force: bool
) -> None:
    write_file(tmp_path / "file", b"kept")
    with pytest.raises(UserError, match="cannot be written: a part of its path is a file") as told:
        write_file(tmp_path / below, b"x", force=force)
    assert "--force" not in str(told.value)
    assert held(tmp_path) == {"file": b"kept"}


def test_modes_are_those_asked_for_or_the_umasks(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "secret", b"x", 0o600)
        write_file(tmp_path / "public", b"x", 0o644)
        write_file(tmp_path / "usual", b"x")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"secret": 0o600, "public": 0o644, "usual": 0o640}
