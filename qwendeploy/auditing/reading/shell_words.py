"""Splitting of shell text into words with line numbers, unquoted with ``shlex``."""

from __future__ import annotations

import shlex

from qwendeploy.auditing.reading.text import LONGEST_WORD, MOST_WORDS, Place, Word
from qwendeploy.errors import UserError


def split_words(text: str, file: str, line: int = 1) -> list[Word]:
    """Return the words of one command that no shell expands, as compose and systemd split it.

    Raises:
        UserError: a quote is never closed.
    """
    chars = []
    for char in text.replace("\\\n", " \n"):
        chars.append((char, line))
        line += char == "\n"
    return Splitter(file).words(chars, line)


class Splitter:
    """Cuts the commands of one text into words, of which there must not be too many."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.count = 0

    def words(self, chars: list[tuple[str, int]], end: int) -> list[Word]:
        """Return the words of characters with their lines; ``end`` is the line behind them.

        Raises:
            UserError: a quote is never closed, a word is too long, or there are too many.
        """
        stream = _Counted(chars)
        lexer = shlex.shlex(stream, posix=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        words: list[Word] = []
        while True:
            start = stream.at
            while start < len(chars) and chars[start][0].isspace():
                start += 1
            line = chars[start][1] if start < len(chars) else end
            where = f"{self.file}:{line}"
            try:
                token = lexer.get_token()
            except ValueError as problem:
                raise UserError(f"quoting: {str(problem).lower()}", where=where) from None
            if token is None:
                return words
            if len(token) > LONGEST_WORD:
                raise UserError(f"an argument of {len(token):,} characters", where=where)
            self.count += 1
            if self.count > MOST_WORDS:
                raise UserError(
                    f"more than {MOST_WORDS:,} words: not a launch command", where=where
                )
            words.append(Word(token, Place(self.file, line)))


class _Counted:
    """A character stream that knows how far it was read, so that words get their line."""

    def __init__(self, chars: list[tuple[str, int]]) -> None:
        self.chars = chars
        self.at = 0

    def read(self, size: int) -> str:
        taken = "".join(char for char, _ in self.chars[self.at : self.at + size])
        self.at += len(taken)
        return taken

    def readline(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing is held open."""
