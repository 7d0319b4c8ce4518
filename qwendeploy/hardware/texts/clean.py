"""From bytes to plain text of bounded size: encodings and escape codes.

Saved output has often been through a terminal, a log collector, an issue form or PowerShell.
"""

from __future__ import annotations

import itertools
import re

from qwendeploy.errors import UserError
from qwendeploy.hardware.texts.collapsed import expanded
from qwendeploy.hardware.texts.unescape import unescaped
from qwendeploy.hardware.texts.wrapped import unwrapped

MAX_BYTES = 8 * 2**20
"""Largest text that is read. 16 GPUs with 230 queried columns or a full ``-q -x`` of an 8-GPU
node with thousands of processes stay below 2 MiB."""

MAX_LINES = 100_000
MAX_LINE = 20_000
"""Longest line that is looked at; the 230-column query prints about 5,000 characters."""

_ESCAPE = re.compile(
    r"\x1b\[[0-9;?:]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b[@-Z\\-_]"
)
_RESIDUE = re.compile(
    r"(?:\^\[|␛|\\(?:x1b|u001b|033|e))\[(?:\d{1,3}(?:;\d{1,3}){0,8})?[mK]"
    r"|\[\d{1,3}(?:;\d{1,3}){0,8}m|\[[mK](?![a-zA-Z\]])"
)
"""Escape codes printed as text, and those that lost their ESC byte on the way (``[4mGPU0``)."""

_PREFIX = re.compile(
    r"^(?:[\w.-]{1,40}-\d{1,4} {1,20}\| | {0,8}[\w.-]{1,40} {1,20}\| (?=[|+])|(?:> ?){1,4}"
    r"|(?:\d{4}-\d\d-\d\d[T ][\d:.,]{8,18}(?:Z|[+-]\d\d:?\d\d)?:?"
    r"|\[\d{4}[-/]\d\d[-/]\d\d[T ][\d:.,]{8,18}Z?\]) "
    r"(?:(?:stdout|stderr) [FP] )?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} [\w./@-]{1,40}(?:\[\d{1,9}\])?: "
    r"|\[pod/[^\]\s]{1,120}\] |(?:DEBUG|INFO|WARNING|ERROR):[\w.]{1,60}:)"
)
_NUMBER = re.compile(r"^ {0,8}(\d{1,6})(?:\t| ?\| |:(?=\S)| {2})")
MIN_NUMBERED = 5
_HOST = re.compile(r"^(?:[\w.-]{1,64}: |\[[\w./-]{1,64}\] )")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BOX = str.maketrans(dict.fromkeys("│┃║¦｜", "|") | dict.fromkeys("─━═", "-"))
_UNSEEN = "\u00ad\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\ufeff"
"""Marks that web pages and chat programs leave between characters."""
_SPACES = str.maketrans(
    {"\u00a0": " ", "\u2007": " ", "\u202f": " ", **dict.fromkeys(_UNSEEN, None)}
)


def decode(data: bytes, origin: str) -> str:
    """Return the text of a file in UTF-8, UTF-16 or, failing that, with replaced characters.

    Raises:
        UserError: the data is larger than ``MAX_BYTES`` or is binary.
    """
    if len(data) > MAX_BYTES:
        raise UserError(
            f"larger than {MAX_BYTES // 2**20} MiB: not an output of nvidia-smi",
            where=origin,
            hint="pass only the saved output of nvidia-smi",
        )
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    if b"\x00" in data:
        text = _without_bom_utf16(data)
        if text is None:
            raise UserError(
                "binary data, not text", where=origin, hint="save the output of nvidia-smi as text"
            )
        return text
    return data.decode("utf-8-sig", errors="replace")


def _without_bom_utf16(data: bytes) -> str | None:
    """Return UTF-16 text without a byte order mark, or ``None`` if the data is not that."""
    for encoding, zeros in (("utf-16-le", data[1::2]), ("utf-16-be", data[0::2])):
        if zeros and zeros.count(0) >= 0.9 * len(zeros):
            return data.decode(encoding, errors="replace")
    return None


def clean(text: str) -> str:
    """Return the text with unix line ends, plain bars and blanks, and no escape codes."""
    text = unescaped(text.replace("\r\n", "\n").replace("\r", "\n")).replace("\r", "")
    text = _ESCAPE.sub("", text)
    text = _RESIDUE.sub("", text)
    text = _CONTROL.sub("", text)
    return text.translate(_BOX).translate(_SPACES)


def lines_of(text: str) -> list[str]:
    """Return the lines of a cleaned text, at most ``MAX_LINES`` of at most ``MAX_LINE``.

    What log collectors and forms put before a line (``vllm-1  | ``, ``> ``, a timestamp) is taken
    off, and what a narrow window broke is joined.
    """
    lines = text.split("\n", MAX_LINES)[:MAX_LINES]
    lines = [line.rstrip() if len(line) <= MAX_LINE else "" for line in lines]
    lines = _without_host(_unnumbered(lines))
    bare = [_PREFIX.sub("", line).removesuffix(" \\") for line in lines]
    return unwrapped(expanded(bare))


def _without_host(lines: list[str]) -> list[str]:
    """Return the lines without the name that ``pdsh`` or ``srun -l`` put before each of them."""
    shown = [line for line in lines if line.strip()]
    match = _HOST.match(shown[0]) if len(shown) > 2 else None
    if match is None or not all(line.startswith(match[0].rstrip()) for line in shown):
        return lines
    bare = [line[len(match[0]) :] for line in lines]
    return bare if any(line.startswith("+-") or "GPU0" in line for line in bare) else lines


def _unnumbered(lines: list[str]) -> list[str]:
    """Return the lines without the numbers that an editor, ``cat -n`` or ``grep -n`` gave them.

    Every line must bear one, each greater than the last, and a table must begin behind one.
    """
    matches = [_NUMBER.match(line) for line in lines if line.strip()]
    numbers = [int(match[1]) for match in matches if match]
    if len(matches) < MIN_NUMBERED or len(numbers) < len(matches):
        return lines
    rises = all(a < b for a, b in itertools.pairwise(numbers))
    bare = [_NUMBER.sub("", line, count=1) for line in lines]
    return bare if rises and any(line.startswith(("+-", "|", "\tGPU0")) for line in bare) else lines
