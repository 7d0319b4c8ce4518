"""One quoting function per format: the tool that reads the artefact gets back exactly the text.

Values come from people; anything printable may stand in them. Text that no argument vector can
hold (NUL, lone surrogates) is refused by ``rendering.launch`` before it comes here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

_PLAIN_SHELL = re.compile(r"[A-Za-z0-9_@%+=:./-]+\Z")
_PLAIN_SYSTEMD = re.compile(r"[A-Za-z0-9_@+=:,./-]+\Z")
_PLAIN_YAML = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*\Z")
_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"}


def shell(text: str) -> str:
    """Return ``text`` as one word of a POSIX shell."""
    if _PLAIN_SHELL.match(text):
        return text
    if "'" in text and text.isprintable() and not any(char in text for char in '"$`\\!'):
        return f'"{text}"'
    if text.isprintable() and any(char in text for char in "$`"):
        # in single quotes shellcheck takes it for a variable that was forgotten
        return '"' + re.sub(r'(["$`\\])', r"\\\1", text) + '"'
    return f"'{text}'" if "'" not in text else shlex.quote(text)


def yaml(text: str) -> str:
    """Return ``text`` as one YAML scalar that is a string in YAML 1.1 and 1.2."""
    if _PLAIN_YAML.match(text) and text.lower() not in _YAML_WORDS:
        return text
    if text.isprintable() and any(char in text for char in '"\\'):
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(_yaml_character(char) for char in text) + '"'


def _yaml_character(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    code = ord(char)
    if char.isprintable() and code != 0xFEFF:
        return char
    if code < 0x100:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def compose(text: str) -> str:
    """Return ``text`` for a compose file: a YAML scalar in which ``$`` names no variable."""
    return yaml(text.replace("$", "$$"))


def kubernetes(text: str) -> str:
    """Return ``text`` for a container's args or env: a YAML scalar without ``$(NAME)``."""
    return yaml(text.replace("$", "$$"))


def systemd(text: str) -> str:
    """Return ``text`` as one word of ``ExecStart=``: no specifier, no variable, C escapes."""
    if _PLAIN_SYSTEMD.match(text):
        return text
    return '"' + "".join(_systemd_character(char) for char in text) + '"'


def _systemd_character(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char in "%$":
        return char * 2
    if ord(char) < 0x20 or ord(char) == 0x7F:
        return f"\\x{ord(char):02x}"
    return char


def words(line: tuple[str, ...], quote: Callable[[str], str]) -> str:
    """Return the words of one line, each quoted by ``quote``."""
    return " ".join(quote(word) for word in line)


def csv_field(text: str) -> str:
    """Return ``key=value`` as one field of Docker's ``--mount``, which is read as CSV."""
    if any(char in text for char in ',"'):
        return '"' + text.replace('"', '""') + '"'
    return text


def comment(text: str) -> str:
    """Return ``text`` on one line, without control characters or a trailing backslash."""
    words = "".join(char if char.isprintable() else " " for char in text).split()
    return " ".join(words).rstrip("\\ ")
