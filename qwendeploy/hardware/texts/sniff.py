"""From saved output to readings; the content determines the format, not the file name.

One text may hold several outputs after one another (a pasted terminal session), so every parser
looks at every text and takes only what it recognises.
"""

from __future__ import annotations

import errno
import os
import re
import select
import sys
from collections.abc import Iterable
from pathlib import Path

from qwendeploy.errors import UserError
from qwendeploy.hardware.reading import Reading
from qwendeploy.hardware.texts.buses import read_buses
from qwendeploy.hardware.texts.clean import MAX_BYTES, clean, decode, lines_of
from qwendeploy.hardware.texts.environment import read_environment
from qwendeploy.hardware.texts.failures import read_failures
from qwendeploy.hardware.texts.kernel_log import read_kernel_log
from qwendeploy.hardware.texts.listing import read_listing
from qwendeploy.hardware.texts.log import read_plain, read_xml
from qwendeploy.hardware.texts.monitors import read_monitors
from qwendeploy.hardware.texts.query import read_query
from qwendeploy.hardware.texts.table import read_table, read_versions
from qwendeploy.hardware.texts.topology import read_topologies

MAX_FILES = 64
SUFFIXES = frozenset({"", ".txt", ".csv", ".xml", ".log", ".out"})
"""Files of a directory that are looked at; documents and notes beside them are not output."""

MAX_GPUS = 1024
"""Rows for GPUs that are kept of one text: a watch log repeats them, no box has as many."""

PIPE_SECONDS = 60
"""Longest wait for a piece of a pipe; nvidia-smi of a sick box takes about half a minute."""

_OTHER_TOOL = re.compile(
    r"ROCm System Management Interface|ROCm-SMI|\b(?:amd|rocm|xpu|hl|npu|mx|ppu)-smi\b",
    re.IGNORECASE,
)
OTHER_TOOL = "the input has output of another vendor's tool, whose GPUs are not read"
HOW = "save the output of nvidia-smi, nvidia-smi -L, topo -m, nvlink -s or -q -x"


def read_text(text: str, origin: str) -> Reading:
    """Return what a text says; an unrecognised text gives an empty reading.

    Raises:
        UserError: the text is an XML log with entity declarations.
    """
    reading = Reading(origin)
    text = clean(text)
    rest = read_xml(text, reading)
    lines = lines_of(rest)
    read_versions("\n".join(lines), reading)
    read_table(lines, reading)
    read_topologies(lines, reading)
    outside = read_plain(lines, reading)
    read_listing(outside, reading)
    read_query(outside, reading)
    read_monitors(outside, reading)
    del reading.gpus[MAX_GPUS:]
    if _OTHER_TOOL.search(text[:20_000]):
        reading.notes.append(OTHER_TOOL)
    read_failures(rest, reading)
    read_kernel_log(rest, reading)
    read_buses(lines, reading)
    read_environment(text, lines, reading)
    return reading


def read_bytes(data: bytes, origin: str) -> Reading:
    """Return what a file's bytes say. Raises ``UserError`` for binary or oversized data."""
    return read_text(decode(data, origin), origin)


def read_paths(paths: Iterable[str | Path]) -> list[Reading]:
    """Return the readings of files, of the files in directories, and of stdin for ``-``.

    In a directory, files that are not text of nvidia-smi are passed over; a file that is named
    itself must be one. Directories are read one level deep, without hidden files.

    Raises:
        UserError: a path does not exist, is unreadable, binary or too large, or nothing in the
            paths is recognised.
    """
    readings: list[Reading] = []
    passed_over: list[str] = []
    for path in paths:
        if str(path) == "-":
            readings.append(read_bytes(sys.stdin.buffer.read(MAX_BYTES + 1), "stdin"))
            continue
        path = Path(path)
        if path.is_dir():
            readings.extend(_read_directory(path, passed_over))
        else:
            readings.append(read_bytes(_load(path), path.name))
    if all(reading.is_empty() for reading in readings):
        other = any(OTHER_TOOL in reading.notes for reading in readings)
        raise UserError(
            "the input has no recognizable output of nvidia-smi"
            + _named(readings, passed_over)
            + (f"; {OTHER_TOOL}" if other else ""),
            where="hardware input",
            hint=HOW,
        )
    return readings


def _load(path: Path) -> bytes:
    try:
        if path.is_fifo():
            return _load_pipe(path)
        with path.open("rb") as handle:
            return handle.read(MAX_BYTES + 1)
    except OSError as problem:
        raise UserError(
            f"cannot be read: {problem.strerror or problem}",
            where=str(path),
            hint="pass a file, a directory or - for stdin",
        ) from None


def _load_pipe(path: Path) -> bytes:
    """Return what comes through a pipe, as from ``<(nvidia-smi)``.

    Raises:
        OSError: nothing comes for ``PIPE_SECONDS``; without a writer the pipe is empty.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        data = b""
        while len(data) <= MAX_BYTES:
            try:
                piece = os.read(handle, 65536)
            except BlockingIOError:
                if not select.select([handle], [], [], PIPE_SECONDS)[0]:
                    raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
                continue
            if not piece:
                break
            data += piece
        return data
    finally:
        os.close(handle)


def _read_directory(directory: Path, passed_over: list[str]) -> list[Reading]:
    try:
        files = sorted(
            file
            for file in directory.iterdir()
            if file.is_file() and file.name[0] != "." and file.suffix.lower() in SUFFIXES
        )
    except OSError as refusal:
        raise UserError(f"cannot be read: {refusal.strerror}", where=str(directory)) from None
    if not files:
        raise UserError("the directory has no files", where=str(directory), hint=HOW)
    if len(files) > MAX_FILES:
        raise UserError(
            f"the directory has {len(files)} files, more than the limit of {MAX_FILES}",
            where=str(directory),
            hint="pass only the saved output",
        )
    readings = []
    problem: UserError | None = None
    for file in files:
        try:
            reading = read_bytes(_load(file), file.name)
        except UserError as error:
            problem = problem or error
            passed_over.append(file.name)
            continue
        if reading.is_empty() and not (reading.platform_hints or reading.host_memory_mib):
            passed_over.append(file.name)
        else:
            readings.append(reading)
    if problem is not None and all(reading.is_empty() for reading in readings):
        raise problem
    return readings


def _named(readings: list[Reading], passed_over: list[str]) -> str:
    names = [reading.origin for reading in readings] + passed_over
    return f" in {', '.join(names[:5])}" + (" …" if len(names) > 5 else "") if names else ""
