"""Shell text as simple commands: quoting undone by ``shlex``, variables left as they are.

Nothing is executed and nothing is looked up outside the text. A first pass removes comments and
line continuations, cuts the text at ``;``, ``&``, ``|`` and line ends, and puts in the literals
that the same text assigned; ``shlex`` then splits each command into words. Command substitutions
stay as ``$(...)``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from qwendeploy.auditing.shell_parameters import WINDOW, balanced, closing_brace, default_text
from qwendeploy.auditing.shell_words import Splitter, split_words
from qwendeploy.auditing.text import LARGEST_BYTES, Word
from qwendeploy.errors import UserError

REDIRECT = "\ue000"
"""Stands for ``<`` and ``>`` between the passes (a private-use character)."""
MOST_WRITTEN = 4 * LARGEST_BYTES
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)\+?=(.*)$", re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_MOST_HEREDOCS = 50
"""Here-documents that are read; each costs a copy of the text."""
_SHELLS = {"sh", "bash", "dash", "zsh", "ssh"}
_SOURCING = {"source", "."}
_DECLARING = {"export", "readonly", "local", "declare", "typeset"}


@dataclass(frozen=True)
class Command:
    """One simple command: its assignments in front, its words, what the text exported before."""

    words: tuple[Word, ...]
    prefix: Mapping[str, Word]
    exported: Mapping[str, Word]
    unread: tuple[str, ...] = ()
    """Variables exported before under names that the text does not hold: where they come from."""


@dataclass
class _Scan:
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
    written: int = 0
    splitter: Splitter = field(init=False)

    def __post_init__(self) -> None:
        self.splitter = Splitter(self.file)

    def put(self, text: str) -> None:
        """Append to the command; variables that repeat each other must not grow without end."""
        self.written += len(text)
        if self.written > MOST_WRITTEN:
            raise UserError("expands to too much text", where=f"{self.file}:{self.line}")
        self.out.extend((char, self.line) for char in text)


def commands(
    text: str, file: str, *, first_line: int = 1, variables: Mapping[str, str] | None = None
) -> Iterator[Command]:
    """Yield the simple commands of a shell text in order.

    Raises:
        UserError: a quote is never closed, or the text has more words than a launch command.
    """
    scan = _Scan(text, file, line=first_line, variables=dict(variables or {}))
    while scan.at < len(scan.text):
        if _step(scan):
            command = _finish(scan)
            if command is not None:
                yield command
    if scan.quote:
        raise UserError(f"the quote {scan.quote} is never closed", where=f"{file}:{scan.opened}")
    command = _finish(scan)
    if command is not None:
        yield command


def _step(scan: _Scan) -> bool:
    """Consume one character or construct; return whether a command ends here."""
    text, at = scan.text, scan.at
    char = text[at]
    scan.at += 1
    if char == "\n":
        return _line_end(scan)
    if scan.quote == "'":
        scan.quote = "" if char == "'" else "'"
        scan.put(char)
        return False
    if char == "\\":
        _backslash(scan)
        return False
    if char in "$`":
        _dollar(scan, char)
        return False
    if scan.quote:
        scan.quote = "" if char == '"' else '"'
        scan.put(char)
        return False
    if char in "'\"":
        scan.quote, scan.opened = char, scan.line
        scan.put(char)
        return False
    if char == "#" and (not scan.out or scan.out[-1][0].isspace()):
        end = text.find("\n", scan.at)
        scan.at = len(text) if end < 0 else end
        return False
    return _operator(scan, char)


def _line_end(scan: _Scan) -> bool:
    inside = bool(scan.quote) or scan.array is not None
    scan.put("\n" if inside else "")
    scan.line += 1
    return not inside


def _backslash(scan: _Scan) -> None:
    following = scan.text[scan.at : scan.at + 1]
    scan.at += 1
    if following == "\n":
        scan.line += 1
    elif scan.quote == '"' and following in "$`":
        scan.put(following)
    elif not scan.quote and following in (" ", "\t"):
        # A blank after the last backslash of a line breaks the continuation in a shell as well.
        scan.put("\\" + following)
    else:
        scan.put("\\" + following)


def _operator(scan: _Scan, char: str) -> bool:
    if char in "<>":
        heredoc = _HEREDOC.match(scan.text, scan.at - 1)
        if heredoc:
            if _feeds_shell(scan):
                _open_heredoc(scan, heredoc)
                return False
            _skip_heredoc(scan, heredoc)
            return True
        scan.put(f" {REDIRECT} ")
        while scan.text[scan.at : scan.at + 1] in ("<", ">", "&"):
            scan.at += 1
        return False
    if char == "(":
        name = _pending_assignment(scan)
        if name is not None:
            scan.array = name
            return False
        return True
    if char == ")":
        if scan.array is not None:
            _close_array(scan)
            return False
        return True
    if char in ";&|":
        return scan.array is None
    if char in "^" and scan.text[scan.at : scan.at + 1] == "\n":
        scan.at += 1
        scan.line += 1
        return False
    scan.put(char)
    return False


def _feeds_shell(scan: _Scan) -> bool:
    """Say whether the command at hand runs what it reads: a shell, here or on another host."""
    scan.heredocs += 1
    if scan.heredocs > _MOST_HEREDOCS:
        return False
    names = "".join(char for char, _ in scan.out[-512:]).split()
    while names and names[0] in ("sudo", "env", "exec"):
        names = names[1:]
    return bool(names) and names[0].rsplit("/", 1)[-1] in _SHELLS


def _open_heredoc(scan: _Scan, match: re.Match[str]) -> None:
    """Leave a here-document's text to be read as commands: take its two marks out."""
    text = scan.text
    start = text.find("\n", match.end())
    close = re.compile(rf"^[ \t]*{re.escape(match[2])}[ \t]*$", re.MULTILINE)
    ends = close.search(text, start + 1) if start >= 0 else None
    rest = text[match.end() :]
    if ends is not None:
        rest = text[match.end() : ends.start()] + text[ends.end() :]
    scan.text = text[: scan.at] + rest


def _skip_heredoc(scan: _Scan, match: re.Match[str]) -> None:
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


def _pending_assignment(scan: _Scan) -> str | None:
    tail = "".join(char for char, _ in scan.out[-256:]).rsplit(None, 1)
    match = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)\+?=", tail[-1]) if tail else None
    return match[1] if match else None


def _close_array(scan: _Scan) -> None:
    assert scan.array is not None
    text = "".join(char for char, _ in scan.out)
    opening = re.compile(rf"{re.escape(scan.array)}\+?=")
    start = max((match.end() for match in opening.finditer(text)), default=len(text))
    values = [word.text for word in scan.splitter.words(scan.out[start:], scan.line)]
    if "+=" in text[:start]:
        values = scan.arrays.get(scan.array, []) + values
    scan.arrays[scan.array] = values
    scan.out = []
    scan.array = None


def _dollar(scan: _Scan, char: str) -> None:
    """Consume what a dollar sign or a backtick begins; the character itself is read already."""
    text, at = scan.text, scan.at
    following = text[at : at + 1]
    if char == "`":
        # PowerShell ends a continued line with a backtick.
        end = at if following == "\n" else text.find("`", at, at + WINDOW)
        if end >= 0:
            _skip(scan, end + 1 - at)
            scan.put("" if following == "\n" else "$(...)")
        return
    if following == "(":
        _skip(scan, balanced(text[at : at + WINDOW]))
        scan.put("$(...)")
    elif following == "{":
        end = closing_brace(text, at)
        inner = text[at + 1 : end] if end > 0 else ""
        _skip(scan, end + 1 - at if end > 0 else 1)
        _expand_braced(scan, inner)
    elif following == "'" and not scan.quote:
        return
    else:
        match = _NAME.match(text, at)
        if match is None:
            scan.put("$")
            return
        _skip(scan, match.end() - at)
        _insert(scan, match[0], None)


def _skip(scan: _Scan, count: int) -> None:
    scan.line += scan.text.count("\n", scan.at, scan.at + count)
    scan.at += count


def _expand_braced(scan: _Scan, inner: str) -> None:
    if inner.endswith(("[@]", "[*]")):
        values = scan.arrays.get(inner[:-3])
        if values is None:
            scan.put(f"${inner[:-3]}")
            return
        alone = scan.text[scan.at : scan.at + 1] == '"'
        if scan.quote and scan.out and scan.out[-1][0] == '"' and alone:
            scan.out.pop()
            scan.quote = ""
            scan.at += 1
        joined = " ".join(shlex.quote(value) for value in values)
        scan.put(f'" {joined} "' if scan.quote else f" {joined} ")
        return
    match = _NAME.match(inner)
    if match is None:
        scan.put("$")
        return
    operator = inner[match.end() :]
    default = None
    if operator.startswith((":-", "-", ":=", "=")):
        default = default_text(scan.variables, operator.lstrip(":")[1:].strip("\"'"))
        if operator.lstrip(":").startswith("="):
            scan.variables.setdefault(match[0], default)
    _insert(scan, match[0], default)


def _insert(scan: _Scan, name: str, default: str | None) -> None:
    """Put in a literal that this text assigned, else the default, else leave the name."""
    value = scan.variables.get(name, default)
    if value is None:
        scan.put(f"${name}")
        return
    special = '"\\' if scan.quote else "\"'\\"
    scan.put("".join(f"\\{char}" if char in special else char for char in value))


def _finish(scan: _Scan) -> Command | None:
    words = scan.splitter.words(scan.out, scan.line)
    scan.out = []
    words = _without_redirects(words)
    prefix: dict[str, Word] = {}
    index = 0
    for word in words:
        match = _ASSIGNMENT.match(word.text)
        if match is None:
            break
        prefix[match[1]] = Word(match[2], word.place)
        index += 1
    rest = words[index:]
    if not rest:
        scan.variables.update({name: word.text for name, word in prefix.items()})
        for name in prefix.keys() & scan.exported.keys():
            scan.exported[name] = prefix[name]
        return None
    if rest[0].text in _DECLARING:
        _declare(scan, rest)
        return None
    if rest[0].text == "alias":
        for word in rest[1:]:
            name, equals, value = word.text.partition("=")
            if equals:
                scan.aliases[name] = Word(value, word.place)
        return None
    if rest[0].text in _SOURCING and len(rest) > 1:
        # An environment's activation sets PATH and the prompt, nothing that a server reads.
        if not rest[1].text.endswith("bin/activate"):
            scan.unread.append(f"variables of {rest[1].text}")
        return None
    alias = scan.aliases.get(rest[0].text)
    if alias is not None:
        rest = [*split_words(alias.text, scan.file, alias.place.line), *rest[1:]]
        if not rest:
            return None
    return Command(tuple(rest), prefix, dict(scan.exported), tuple(scan.unread))


def _declare(scan: _Scan, words: list[Word]) -> None:
    for word in words[1:]:
        match = _ASSIGNMENT.match(word.text)
        name = match[1] if match else word.text
        if match:
            scan.variables[name] = match[2]
        if words[0].text == "export" and _NAME.fullmatch(name):
            value = scan.variables.get(name, f"${name}")
            scan.exported[name] = Word(value, word.place)
        elif words[0].text == "export" and "$" in name:
            scan.unread.append(f"variables of line {word.place.line}")


def _without_redirects(words: list[Word]) -> list[Word]:
    kept: list[Word] = []
    skip = False
    for word in words:
        if word.text == REDIRECT:
            if kept and re.fullmatch(r"\d|&", kept[-1].text):
                kept.pop()
            skip = True
        elif skip:
            skip = False
        else:
            kept.append(word)
    return kept
