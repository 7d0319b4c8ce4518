"""Which flags, ``--speculative-config`` keys and variables each engine release takes.

``benchdata/engine_flags.csv`` was read from the sources of fifteen vLLM releases
(``scripts/read_engine_flags.py``). A row holds one form of a name and the releases it was read in:
``since``..``until``; ``absent_to`` and ``absent_from`` are the neighbouring releases read that have
another form or none. A release between two that were read, older than all or newer than all is
answered from the nearest one and marked ``checked = False``: an unknown flag there is a doubt, not
an error. A fork publishes no source; it is answered from the upstream releases around its base and
from the flags it was seen to take (``engine_flags_fork.csv``), never as checked.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Literal

from packaging.version import Version

from qwendeploy.tables.reader import read_table
from qwendeploy.tables.releases import find_release
from qwendeploy.versions import release_of

Kind = Literal["flag", "spec_key", "env"]


@dataclass(frozen=True, slots=True)
class FlagRow:
    """One form of a flag, key or variable and the releases it was read in."""

    kind: Kind
    name: str
    aliases: str | None
    negatives: str | None
    type: Literal[
        "switch", "flag", "int", "float", "text", "choice", "size", "size_or_auto", "json", "list"
    ]
    default: str | None
    allowed: str | None
    since: str
    absent_to: str | None
    until: str
    absent_from: str | None
    source: str

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every spelling, the canonical name first, those that switch it off last."""
        return (self.name, *(self.aliases or "").split(), *(self.negatives or "").split())

    @property
    def choices(self) -> tuple[str, ...]:
        """Values that the release accepts; empty is unrestricted."""
        return tuple((self.allowed or "").split("|")) if self.allowed else ()

    @property
    def takes_value(self) -> bool:
        """Whether a value follows the flag."""
        return self.type not in ("switch", "flag")


@dataclass(frozen=True, slots=True)
class ForkRow:
    """A flag or key that a fork was seen to take."""

    kind: Kind
    name: str
    type: str
    allowed: str | None
    note: str
    source: str


class ReleaseStatus(StrEnum):
    """What a release does with a name."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    """No release read has it."""
    REMOVED = "removed"
    NOT_YET = "not_yet"


@dataclass(frozen=True, slots=True)
class FlagStatus:
    """Answer for one name and release."""

    asked: str
    status: ReleaseStatus
    checked: bool
    """The release itself was read; otherwise the answer is the nearest release's."""
    row: FlagRow | None = None
    negative: bool = False
    """The spelling switches the flag off."""
    nearest: str | None = None
    since: str | None = None
    until: str | None = None

    @property
    def message(self) -> str:
        """One sentence without the release's name."""
        near = f"; nearest: {self.nearest}" if self.nearest else ""
        doubt = "" if self.checked else " (this release was not read)"
        return {
            ReleaseStatus.KNOWN: f"{self.asked} is known{doubt}",
            ReleaseStatus.UNKNOWN: f"{self.asked} is in no release read{near}{doubt}",
            ReleaseStatus.REMOVED: f"{self.asked} was last in {self.until}{near}{doubt}",
            ReleaseStatus.NOT_YET: f"{self.asked} appears with {self.since}{near}{doubt}",
        }[self.status]


@cache
def flag_rows() -> tuple[FlagRow, ...]:
    """Return every row of ``benchdata/engine_flags.csv``."""
    return read_table("engine_flags", FlagRow)


@cache
def fork_rows() -> tuple[ForkRow, ...]:
    """Return every row of ``benchdata/engine_flags_fork.csv``."""
    return read_table("engine_flags_fork", ForkRow)


@cache
def releases() -> tuple[Version, ...]:
    """Return the releases that were read, oldest first."""
    named = {Version(text) for row in flag_rows() for text in (row.since, row.until)}
    return tuple(sorted(named))


@cache
def _index() -> Mapping[tuple[str, str], tuple[FlagRow, ...]]:
    index: dict[tuple[str, str], list[FlagRow]] = {}
    for row in flag_rows():
        for spelling in row.spellings:
            index.setdefault((row.kind, spelling), []).append(row)
    return {key: tuple(rows) for key, rows in index.items()}


def read_release(engine_version: str | None) -> tuple[Version, bool]:
    """Return the release that answers for a version and whether it is that version.

    Patch and development versions of a release that was read count as that release; an unknown
    version is answered by the newest.
    """
    known = releases()
    wanted = release_of(engine_version)
    if wanted is None:
        return known[-1], False
    if wanted in known:
        return wanted, True
    same_minor = [version for version in known if version.release[:2] == wanted.release[:2]]
    if same_minor:
        return min(same_minor, key=lambda v: abs(v.micro - wanted.micro)), True
    older = [version for version in known if version < wanted]
    return (older[-1] if older else known[0]), False


def _has(row: FlagRow, release: Version) -> bool:
    return Version(row.since) <= release <= Version(row.until)


def normalise(flag: str) -> str:
    """Return a flag as the engine's parser compares it: dashes for underscores, no dotted key."""
    if not flag.startswith("--"):
        return "-O" if re.fullmatch(r"-O\d?", flag) else flag.partition(".")[0]
    head, dot, _rest = flag.partition(".")
    return head.replace("_", "-") if dot else flag.replace("_", "-")


@cache
def flag_status(
    flag: str, engine_version: str | None, fork: bool = False, kind: Kind = "flag"
) -> FlagStatus:
    """Return what a release does with a flag, a speculative key or a variable.

    Dotted flags (``--speculative-config.method``) are answered for their head. For a fork a name is
    known if it was seen there or is in an upstream release around its base.
    """
    name = normalise(flag) if kind == "flag" else flag
    if name in ("-O", "--help", "-h"):
        return FlagStatus(flag, ReleaseStatus.KNOWN, True)
    if fork:
        return _fork_status(flag, name, kind)
    release, checked = read_release(engine_version)
    rows = _index().get((kind, name), ())
    here = [row for row in rows if _has(row, release)]
    if not here and kind == "flag":
        here = _abbreviated(name, release)
        name = _spelling(here[0], name) if here else name
    if here:
        negative = name in (here[0].negatives or "").split()
        return FlagStatus(
            flag, ReleaseStatus.KNOWN, checked, here[0], negative, since=here[0].since
        )
    if name in GONE:
        until, near = GONE[name]
        return FlagStatus(flag, ReleaseStatus.REMOVED, checked, nearest=near, until=until)
    nearest = _nearest(name, release, kind)
    later = [row for row in rows if Version(row.since) > release]
    if later:
        since = min(later, key=lambda row: Version(row.since)).since
        return FlagStatus(flag, ReleaseStatus.NOT_YET, checked, nearest=nearest, since=since)
    if rows:
        last = max(rows, key=lambda row: Version(row.until)).until
        return FlagStatus(flag, ReleaseStatus.REMOVED, checked, nearest=nearest, until=last)
    return FlagStatus(flag, ReleaseStatus.UNKNOWN, checked, nearest=nearest)


def _abbreviated(name: str, release: Version) -> list[FlagRow]:
    """Return the one flag that ``name`` begins; the parser takes unambiguous beginnings."""
    if not name.startswith("--") or len(name) < _SHORTEST_BEGINNING:
        return []
    full = {spelling for spelling in _spellings_at(release, "flag") if spelling.startswith(name)}
    if len(full) != 1:
        return []
    return [row for row in _index()["flag", full.pop()] if _has(row, release)]


def _spelling(row: FlagRow, beginning: str) -> str:
    return next(spelling for spelling in row.spellings if spelling.startswith(beginning))


_SHORTEST_BEGINNING = 5
"""Shorter beginnings are rather slips of the pen than abbreviations."""

GONE: Mapping[str, tuple[str, str | None]] = {
    "--disable-log-requests": ("a release before 0.19", "--no-enable-log-requests"),
    "--swap-space": ("a release before 0.19", None),
    "--use-v2-block-manager": ("a release before 0.19", None),
    "--num-scheduler-steps": ("a release before 0.19", None),
    "--enable-reasoning": ("a release before 0.19", "--reasoning-parser"),
    "--speculative-model": ("a release before 0.19", "--speculative-config"),
    "--num-speculative-tokens": ("a release before 0.19", "--speculative-config"),
    "--guided-decoding-backend": ("a release before 0.19", "--structured-outputs-config"),
    "--max-seq-len-to-capture": ("a release before 0.19", "--max-cudagraph-capture-size"),
    "--disable-frontend-multiprocessing": ("a release before 0.19", None),
}
"""Flags of older releases that none of those read has, with what replaced them (vLLM 0.6 to 0.12
documentation; absence checked in the sources of 0.19.1 to 0.33.0)."""


def _fork_status(flag: str, name: str, kind: Kind) -> FlagStatus:
    rows = _index().get((kind, name), ())
    base = find_release(None, fork=True)
    assert base is not None
    low, high = Version(base.since), Version(base.until)
    around = [row for row in rows if Version(row.until) >= low and Version(row.since) <= high]
    if around:
        negative = name in (around[-1].negatives or "").split()
        return FlagStatus(flag, ReleaseStatus.KNOWN, False, around[-1], negative)
    if any(row.kind == kind and row.name == name for row in fork_rows()):
        return FlagStatus(flag, ReleaseStatus.KNOWN, False)
    return FlagStatus(flag, ReleaseStatus.UNKNOWN, False, nearest=_nearest(name, high, kind))


@cache
def _spellings_at(release: Version, kind: Kind) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            spelling
            for row in flag_rows()
            if row.kind == kind and _has(row, release)
            for spelling in row.spellings
        )
    )


def _nearest(name: str, release: Version, kind: Kind) -> str | None:
    spellings = _spellings_at(release, kind)
    renamed = {"num_spec_tokens": "num_speculative_tokens", "--spec-tokens": "--speculative-config"}
    renamed |= {"--spec-method": "--speculative-config", "--spec-model": "--speculative-config"}
    if renamed.get(name) in spellings:
        return renamed[name]
    near = difflib.get_close_matches(name, spellings, n=1, cutoff=0.7)
    return near[0] if near else None


_SIZE = re.compile(r"^(\d+(?:\.\d+)?)([kKmMgGtT])$")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


_WHOLE = re.compile(r"[0-9]+(?:_[0-9]+)*")
"""What Python's ``int`` takes, which the engine's parser calls: ``131_072`` too."""
_LONGEST_SIZE = 24
"""Characters of a size that anybody means."""


def engine_size(text: str) -> int | None:
    """Return a size as the engine reads it: ``256k`` is 256,000 and ``256K`` 262,144.

    ``None`` if the parser would refuse it. The automatic values of ``--max-model-len`` (``auto``,
    ``-1``) are -1.
    """
    text = text.strip()
    if len(text) > _LONGEST_SIZE:
        return None
    if text == "-1" or text.lower() == "auto":
        return -1
    match = _SIZE.match(text)
    if match is None:
        return int(text) if _WHOLE.fullmatch(text) else None
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    return int(number) * _BINARY[suffix] if number.isdigit() else None


def value_problem(row: FlagRow, value: str | None) -> str | None:
    """Return why the release refuses a value, ``None`` if it takes it.

    Values with an unresolved variable (``$NAME``) are not judged.
    """
    if value is not None and "$" in value:
        return None
    if not row.takes_value:
        return None if value is None else f"{row.name} is a switch and takes no value"
    if value is None:
        return f"{row.name} needs a value"
    if row.type == "int" and not _WHOLE.fullmatch(value.strip().lstrip("+-")):
        return f"{row.name} takes a whole number, not {value!r}"
    if row.type == "float":
        try:
            float(value)
        except ValueError:
            return f"{row.name} takes a number, not {value!r}"
    size = engine_size(value) if row.type in ("size", "size_or_auto") else 0
    if size is None or (size == -1 and row.type == "size"):
        return f"{row.name} takes a size such as 8192 or 8K, not {value!r}"
    if row.type == "choice" and row.choices and value not in row.choices:
        near = nearest_choice(row, value)
        hint = f"; nearest: {near}" if near else f": {', '.join(row.choices[:8])}"
        return f"{row.name} does not take {value!r}{hint}"
    if row.type == "json" and value.lstrip().startswith("{"):
        try:
            json.loads(value)
        except ValueError as problem:
            return f"{row.name} is not valid JSON: {problem}"
    return None


def nearest_choice(row: FlagRow, value: str) -> str | None:
    """Return the choice that a refused value is most like; ``None`` if it is taken or like none."""
    if row.type != "choice" or not row.choices or value in row.choices:
        return None
    return next(iter(difflib.get_close_matches(value, row.choices, n=1)), None)


def spec_config_problems(
    config: Mapping[str, Any], engine_version: str | None, fork: bool = False
) -> tuple[tuple[str, FlagStatus | str], ...]:
    """Return the keys of a speculative configuration that a release refuses, with the reason.

    A reason is a ``FlagStatus`` for an unknown key and a sentence for a bad value. Bad keys pass
    the argument parser and stop the start when the engine's configuration is built.
    """
    problems: list[tuple[str, FlagStatus | str]] = []
    for key, value in config.items():
        status = flag_status(key, engine_version, fork, "spec_key")
        if status.status is not ReleaseStatus.KNOWN:
            problems.append((key, status))
            continue
        if status.row is None or fork:
            continue
        row = status.row
        if row.type == "choice" and row.choices and str(value) not in row.choices:
            problems.append((key, f"{value!r} is not one of {', '.join(row.choices)}"))
        elif row.type == "int" and (isinstance(value, bool) or not isinstance(value, int)):
            text = str(value)
            if not re.fullmatch(r"\d+", text) and "$" not in text:
                problems.append((key, f"{value!r} is not a whole number"))
    return tuple(problems)
