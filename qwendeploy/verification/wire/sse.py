"""Server-sent events, parsed incrementally from bytes as the network cuts them.

Lines end with LF, CRLF or CR alone, and are split before anything is decoded, so a UTF-8 character
cut between two reads is whole again when its event is complete. Comments (keep-alives) vanish. A
line or an event longer than ``limit`` is an error, not a reason to fill the memory.
"""

from __future__ import annotations

LINE_LIMIT = 8 * 2**20
"""Bytes of one line; a chunk of tokens is below 10 kB, so this is a fault, not a limit in use."""


BOM = b"\xef\xbb\xbf"
"""May stand before the first line."""


class SseError(ValueError):
    """The bytes are not an event stream within bounds."""


class SseParser:
    """Turns bytes into the ``data`` of events, in order."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._rest = b""
        self._begin = True
        self._returned = False
        """The last byte ended a line as CR; a LF after it belongs to it."""
        self._data: list[bytes] = []
        self._held = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of every event that ``piece`` completes.

        Raises:
            SseError: a line or an event grows beyond the limit.
        """
        if self._begin:
            piece = self._rest + piece
            self._rest = b""
            if len(piece) < len(BOM) and BOM.startswith(piece):
                self._rest = piece
                return []
            piece, self._begin = piece.removeprefix(BOM), False
        if self._returned and piece:
            piece, self._returned = piece.removeprefix(b"\n"), False
        if b"\r" in piece:
            self._returned = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > self._limit:
            raise SseError(f"a line of more than {self._limit} bytes")
        events: list[bytes] = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                    self._data.clear()
                    self._held = 0
            elif line.startswith(b"data:"):
                value = line[5:]
                self._data.append(value[1:] if value.startswith(b" ") else value)
                self._held += len(value)
                if self._held > self._limit:
                    raise SseError(f"an event of more than {self._limit} bytes")
        return events

    def finish(self) -> list[bytes]:
        """Return the data of an event that the end of the stream completes."""
        return self.feed(b"\n\n") if self._rest or self._data else []
