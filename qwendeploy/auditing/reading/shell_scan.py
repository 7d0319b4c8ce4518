"""The state of the first pass over a shell text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from qwendeploy.auditing.reading.shell_functions import Function
from qwendeploy.auditing.reading.shell_words import Splitter
from qwendeploy.auditing.reading.text import LARGEST_BYTES, Word
from qwendeploy.errors import UserError

MOST_WRITTEN = 4 * LARGEST_BYTES
HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_MOST_HEREDOCS = 50
"""Here-documents that are read; each costs a copy of the text."""
_SHELLS = {"sh", "bash", "dash", "zsh", "ssh"}


@dataclass
class Meter:
    """What a text and all calls of its functions cost together."""

    written: int = 0
    calls: int = 0


@dataclass
class Scan:
    """State of the first pass over one text."""

    text: str
    file: str
    at: int = 0
    line: int = 1
    quote: str = ""
    opened: int = 1
    out: list[tuple[str, int]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    exported: dict[str, Word] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    aliases: dict[str, Word] = field(default_factory=dict)
    array: str | None = None
    heredocs: int = 0
    meter: Meter = field(default_factory=Meter)
    background: bool = False
    conditions: list[tuple[int, int]] = field(default_factory=list)
    met: int = 0
    splitter: Splitter = field(init=False)

    first: int = field(init=False)

    def __post_init__(self) -> None:
        self.splitter = Splitter(self.file)
        self.first = self.line

    def put(self, text: str) -> None:
        """Append to the command; variables that repeat each other must not grow without end."""
        self.meter.written += len(text)
        if self.meter.written > MOST_WRITTEN:
            raise UserError("the expanded text is too long", where=f"{self.file}:{self.line}")
        self.out.extend((char, self.line) for char in text)


def feeds_shell(scan: Scan) -> bool:
    """Say whether the command at hand runs what it reads: a shell, here or on another host."""
    scan.heredocs += 1
    if scan.heredocs > _MOST_HEREDOCS:
        return False
    names = "".join(char for char, _ in scan.out[-512:]).split()
    while names and names[0] in ("sudo", "env", "exec"):
        names = names[1:]
    return bool(names) and names[0].rsplit("/", 1)[-1] in _SHELLS


def open_heredoc(scan: Scan, match: re.Match[str]) -> None:
    """Leave a here-document's text to be read as commands: take its two marks out."""
    text = scan.text
    start = text.find("\n", match.end())
    close = re.compile(rf"^[ \t]*{re.escape(match[2])}[ \t]*$", re.MULTILINE)
    ends = close.search(text, start + 1) if start >= 0 else None
    rest = text[match.end() :]
    if ends is not None:
        rest = text[match.end() : ends.start()] + text[ends.end() :]
    scan.text = text[: scan.at] + rest


def skip_heredoc(scan: Scan, match: re.Match[str]) -> None:
    """Leave out a here-document: its text is data."""
    text = scan.text
    end = text.find("\n", match.end())
    while 0 <= end < len(text):
        start = end + 1
        end = text.find("\n", start)
        line = text[start:] if end < 0 else text[start:end]
        if line.strip() == match[2]:
            break
    stop = len(text) if end < 0 else end
    scan.line += text.count("\n", scan.at, stop)
    scan.at = stop


def condition(scan: Scan, word: str) -> None:
    """Note where a condition begins, turns to its next branch, and ends."""
    if word in ("if", "case"):
        scan.met += 1
        scan.conditions.append((scan.met, 0))
    elif word in ("elif", "else") and scan.conditions:
        scan.conditions[-1] = (scan.conditions[-1][0], scan.conditions[-1][1] + 1)
    elif word in ("fi", "esac") and scan.conditions:
        scan.conditions.pop()


def called(scan: Scan, body: Function, given: list[str]) -> Scan:
    """Return the scan of a function's body with the parameters of a call."""
    inside = Scan(body.text, scan.file, line=scan.first + body.line - 1)
    inside.variables = scan.variables
    inside.arrays, inside.exported, inside.unread = scan.arrays, scan.exported, scan.unread
    inside.meter = scan.meter
    inside.splitter, inside.met = scan.splitter, scan.met + 1000 * (scan.heredocs + 1)
    _give(inside, given)
    return inside


def shift(scan: Scan, words: list[Word]) -> None:
    """Take the first parameters of a function away."""
    if "@" not in scan.arrays:
        return
    count = int(words[1].text) if len(words) > 1 and words[1].text.isdigit() else 1
    _give(scan, scan.arrays["@"][count:])


def _give(scan: Scan, given: list[str]) -> None:
    """Set a function's parameters."""
    scan.arrays["@"] = given
    scan.variables.update({str(at): "" for at in range(1, 10)})
    scan.variables.update({str(at): text for at, text in enumerate(given[:9], start=1)})
