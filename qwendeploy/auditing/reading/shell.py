"""Shell text as simple commands: unquoted with ``shlex``, variables unexpanded.

Nothing is executed and nothing is looked up outside the text. A first pass removes comments and
line continuations, cuts the text at ``;``, ``&``, ``|`` and line ends, and puts in the literals
that the same text assigned; ``shlex`` then splits each command into words. Command substitutions
stay as ``$(...)``.

Why not tree-sitter: 32 KiB of ``a|`` repeated take its bash grammar (0.25.1) 23 s or more and
2.2 GiB, during which its progress callback is not asked, so hostile text has no bound.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from qwendeploy.auditing.reading.shell_functions import Function, cut_functions
from qwendeploy.auditing.reading.shell_parameters import (
    WINDOW,
    balanced,
    closing_brace,
    default_text,
)
from qwendeploy.auditing.reading.shell_scan import (
    HEREDOC,
    Scan,
    called,
    condition,
    feeds_shell,
    open_heredoc,
    shift,
    skip_heredoc,
)
from qwendeploy.auditing.reading.shell_words import split_words
from qwendeploy.auditing.reading.text import Word
from qwendeploy.errors import UserError

REDIRECT = "\ue000"
"""Stands for ``<`` and ``>`` between the passes (a private-use character)."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]")
_ASSIGNMENT = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)$", re.DOTALL)
_POWERSHELL = re.compile(r"^\$(env:)?([A-Za-z_][A-Za-z0-9_]*)$")
"""How PowerShell names what it assigns."""
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
    background: bool = False
    """The shell goes on while it runs (``&``)."""
    branch: tuple[tuple[int, int], ...] = ()
    """The conditions it stands in, outermost first: which condition, which branch of it."""


def commands(
    text: str, file: str, *, first_line: int = 1, variables: Mapping[str, str] | None = None
) -> Iterator[Command]:
    """Yield the simple commands of a shell text in order; a call of a function is its body's.

    Raises:
        UserError: a quote is never closed, or the text has more words than a launch command.
    """
    rest, functions = cut_functions(text)
    scan = Scan(rest, file, line=first_line, variables=dict(variables or {}))
    yield from _commands(scan, functions, 0)


_DEEPEST_CALL = 3
_MOST_CALLS = 100
"""Calls of functions in one text that are followed."""


def _commands(scan: Scan, functions: Mapping[str, Function], depth: int) -> Iterator[Command]:
    while scan.at <= len(scan.text):
        ended = scan.at == len(scan.text)
        if ended and scan.quote:
            where = f"{scan.file}:{scan.opened}"
            raise UserError(f"missing closing quote {scan.quote}", where=where)
        if not (ended or _step(scan)):
            continue
        scan.at += ended
        command = _finish(scan)
        if command is None:
            continue
        body = functions.get(command.words[0].text)
        scan.meter.calls += body is not None
        if body is None or depth >= _DEEPEST_CALL or scan.meter.calls > _MOST_CALLS:
            yield command
            continue
        for inner in _commands(
            called(scan, body, [word.text for word in command.words[1:]]), functions, depth + 1
        ):
            yield replace(
                inner,
                background=inner.background or command.background,
                branch=(*command.branch, *inner.branch),
            )


def _step(scan: Scan) -> bool:
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


def _line_end(scan: Scan) -> bool:
    inside = bool(scan.quote) or scan.array is not None
    scan.put("\n" if inside else "")
    scan.line += 1
    return not inside


def _backslash(scan: Scan) -> None:
    following = scan.text[scan.at : scan.at + 1]
    scan.at += 1
    if following == "\n":
        scan.line += 1
    elif scan.quote == '"' and following in "$`":
        scan.put(following)
    else:
        # A blank after the last backslash of a line breaks the continuation in a shell as well.
        scan.put("\\" + following)


def _operator(scan: Scan, char: str) -> bool:
    if char in "<>":
        heredoc = HEREDOC.match(scan.text, scan.at - 1)
        if heredoc:
            if feeds_shell(scan):
                open_heredoc(scan, heredoc)
                return False
            skip_heredoc(scan, heredoc)
            return True
        before = [mark for mark, _ in scan.out[-2:]]
        if before and before[-1].isdigit() and before[:-1] in ([], [" "], ["\t"]):
            # A number against the sign is a descriptor, one apart from it an argument.
            scan.out.pop()
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
    if char == "&" and scan.text[scan.at : scan.at + 1] == ">":
        return False
    if char in ";&|":
        following = scan.text[scan.at : scan.at + 1]
        scan.background = char == "&" and following != "&" and scan.text[scan.at - 2] != "&"
        if char == ";" and following == ";" and scan.conditions:
            # The end of one arm of a case.
            scan.conditions[-1] = (scan.conditions[-1][0], scan.conditions[-1][1] + 1)
        return scan.array is None
    if char in "^" and scan.text[scan.at : scan.at + 1] == "\n":
        scan.at += 1
        scan.line += 1
        return False
    scan.put(char)
    return False


def _pending_assignment(scan: Scan) -> str | None:
    tail = "".join(char for char, _ in scan.out[-256:]).rsplit(None, 1)
    match = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)\+?=", tail[-1]) if tail else None
    return match[1] if match else None


def _close_array(scan: Scan) -> None:
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


def _dollar(scan: Scan, char: str) -> None:
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
    elif following in ("@", "*") and "@" in scan.arrays:
        _skip(scan, 1)
        _expand_braced(scan, "@[@]")
    else:
        match = _PARAMETER.match(text, at)
        if match is None:
            scan.put("$")
            return
        _skip(scan, match.end() - at)
        _insert(scan, match[0], None)


def _skip(scan: Scan, count: int) -> None:
    scan.line += scan.text.count("\n", scan.at, scan.at + count)
    scan.at += count


def _expand_braced(scan: Scan, inner: str) -> None:
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
    match = _PARAMETER.match(inner)
    if match is None:
        scan.put("$")
        return
    operator = inner[match.end() :]
    default = None
    if operator.startswith((":-", "-", ":=", "=")):
        default = default_text(scan.variables, operator.lstrip(":")[1:].strip("\"'"))
        if operator.lstrip(":").startswith("="):
            scan.variables.setdefault(match[0], default)
    if operator.startswith((":-", ":=")) and scan.variables.get(match[0]) == "":
        scan.variables.pop(match[0])
    _insert(scan, match[0], default)


def _insert(scan: Scan, name: str, default: str | None) -> None:
    """Put in a literal that this text assigned, else the default, else leave the name."""
    value = scan.variables.get(name, default)
    if value is None:
        scan.put(f"${name}")
        return
    special = '"\\' if scan.quote else "\"'\\"
    scan.put("".join(f"\\{char}" if char in special else char for char in value))


def _finish(scan: Scan) -> Command | None:
    background, scan.background = scan.background, False
    words = scan.splitter.words(scan.out, scan.line)
    scan.out = []
    if words:
        condition(scan, words[0].text)
    words = _without_redirects(words)
    prefix: dict[str, Word] = {}
    index = 0
    for word in words:
        match = _ASSIGNMENT.match(word.text)
        if match is None:
            break
        before = scan.variables.get(match[1], "") if match[2] else ""
        prefix[match[1]] = Word(before + match[3], word.place)
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
    if rest[0].text == "shift":
        shift(scan, rest)
        return None
    if len(rest) == 3 and rest[1].text == "=" and (match := _POWERSHELL.match(rest[0].text)):
        scan.variables[match[2]] = rest[2].text
        if match[1]:
            scan.exported[match[2]] = rest[2]
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
    return Command(
        tuple(rest),
        prefix,
        dict(scan.exported),
        tuple(scan.unread),
        background,
        tuple(scan.conditions),
    )


def _declare(scan: Scan, words: list[Word]) -> None:
    for word in words[1:]:
        match = _ASSIGNMENT.match(word.text)
        name = match[1] if match else word.text
        if match:
            before = scan.variables.get(name, "") if match[2] else ""
            scan.variables[name] = before + match[3]
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
            skip = True
        elif skip:
            skip = False
        else:
            kept.append(word)
    return kept
