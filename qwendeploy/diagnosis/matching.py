"""Signatures evaluated over log lines and measurements: symptom, cause, fix."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice

from qwendeploy.diagnosis.signature import METRICS, Signature, load_signatures
from qwendeploy.documents.run import Cause

FIRST_LINES = 2000
"""Lines from the start of a log that are read: arguments, engine configuration, loading."""
LAST_LINES = 8000
"""Lines from its end: where a server died."""
LONGEST_LINE = 1000
"""Characters of a line that are read; a line of a request may hold a whole prompt."""

_EVIDENCE_LENGTH = 240
_SECRETS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_\-]{8,})|(?<=Bearer )\S{4,}"
    r"|(?<=api[_-]key[=:])\s?['\"]?[^\s'\",]{4,}",
    re.IGNORECASE,
)
_PREFIX = re.compile(
    r"^(?:\([^)]{1,60}\)\s*)?(?:(?:INFO|WARNING|ERROR)\s+\S+\s+\S+\s+)?(?:\[[^\]]{1,60}\]\s*)?"
)
_ANSI = re.compile(r"\x1b\[[0-9;]{0,12}[A-Za-z]")

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
}

_ORDER = {"fatal": 0, "degraded": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Match:
    """A signature found, with the values and the evidence."""

    signature: Signature
    values: Mapping[str, str]
    evidence: str
    position: int
    """Where in the log it was first seen; measurements come after every line."""

    @property
    def cause(self) -> Cause:
        """The match as a document part."""
        return Cause(
            id=self.signature.id,
            text=_filled(self.signature.cause, self.values),
            evidence=self.evidence,
            fix=_filled(self.signature.fix, self.values),
        )


def match(
    lines: Iterable[str] = (),
    metrics: Mapping[str, float] | None = None,
    *,
    signatures: tuple[Signature, ...] | None = None,
) -> tuple[Match, ...]:
    """Return what the log and the measurements show: worst first, then in order of appearance.

    ``metrics`` uses the names of ``signature.METRICS``; one that is missing is unknown and holds no
    condition. Secrets are removed from the evidence. Only the first 2,000 and the last 8,000 lines
    are read, 1,000 characters of each.

    Raises:
        KeyError: a measurement outside the closed list.
    """
    known = dict(metrics or {})
    for name in known:
        if name not in METRICS:
            raise KeyError(f"{name} is not a measurement of signatures")
    text = _joined(lines)
    found = [
        result
        for signature in (load_signatures() if signatures is None else signatures)
        if (result := _match_one(signature, text, known)) is not None
    ]
    beaten = {other for result in found for other in result.signature.beats}
    left = [result for result in found if result.signature.id not in beaten]
    if any(_is_root(result) for result in left):
        left = [result for result in left if not result.signature.consequence]
    return tuple(
        sorted(left, key=lambda r: (_ORDER[r.signature.severity], r.position, r.signature.id))
    )


_ERROR = re.compile(
    r"^[ |+]{0,8}(?P<error>(?:[A-Za-z_][\w.]{0,80})?(?:Error|Exception|OutOfResources)"
    r"(?:: .{1,300})?)$"
)
"""How Python ends a traceback: the exception's name at the start of a line, and what it says."""


_HARMLESS = re.compile(r"^(?:\([^)]{1,60}\)\s*)?(?:DEBUG|INFO|WARNING)\b")


def first_error(lines: Iterable[str]) -> str | None:
    """Return the exception that a log shows first, ``None`` where it shows none.

    Of tracebacks that follow from each other Python prints the root first, and of processes that
    follow each other into the end the first to write is the one that failed.
    """
    for line in lines:
        text = _ANSI.sub("", line.rstrip("\r\n"))[:LONGEST_LINE]
        if _HARMLESS.match(text):
            continue
        if found := _ERROR.match(_PREFIX.sub("", text)):
            return _SECRETS.sub("[removed]", found["error"])
    return None


def _is_root(result: Match) -> bool:
    return result.signature.severity == "fatal" and not result.signature.consequence


def causes(
    lines: Iterable[str] = (), metrics: Mapping[str, float] | None = None
) -> tuple[Cause, ...]:
    """Return the causes that log and measurements name, without mere information."""
    return tuple(
        result.cause for result in match(lines, metrics) if result.signature.severity != "info"
    )


@cache
def consequences() -> frozenset[str]:
    """Return the signatures that name no root of their own."""
    return frozenset(one.id for one in load_signatures() if one.consequence)


def _joined(lines: Iterable[str]) -> str:
    iterator = iter(lines)
    first = list(islice(iterator, FIRST_LINES))
    last: list[str] = []
    for line in iterator:
        last.append(line)
        if len(last) > 2 * LAST_LINES:
            del last[:-LAST_LINES]
    kept = chain(first, last[-LAST_LINES:])
    return "\n".join(_ANSI.sub("", line.rstrip("\r\n"))[:LONGEST_LINE] for line in kept)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _match_one(signature: Signature, text: str, metrics: dict[str, float]) -> Match | None:
    values = {name: f"{value:g}" for name, value in metrics.items()}
    if not _metrics_hold(signature, metrics):
        return None
    first = None
    for pattern in signature.any_of:
        found = _compiled(pattern).search(text)
        if found and (first is None or found.start() < first.start()):
            first = found
    if signature.any_of and first is None:
        return None
    further = [_compiled(pattern).search(text) for pattern in signature.all_of]
    if not all(further):
        return None
    extracted = [_compiled(pattern).search(text) for pattern in signature.extract]
    for hit in (*extracted, *further, first):
        if hit is not None:
            values |= {name: _clean(value) for name, value in hit.groupdict().items() if value}
    if first is None:
        shown = ", ".join(f"{name} {values[name]}" for name in signature.metrics)
        return Match(signature, values, shown, len(text))
    return Match(signature, values, _line_around(text, first), first.start())


def _metrics_hold(signature: Signature, metrics: dict[str, float]) -> bool:
    for name, condition in signature.metrics.items():
        value = metrics.get(name)
        for symbol, operand in condition.items():
            other = metrics.get(operand.strip("{}")) if isinstance(operand, str) else operand
            if value is None or other is None or not _COMPARE[symbol](value, other):
                return False
    return True


def _line_around(text: str, found: re.Match[str]) -> str:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    line = _PREFIX.sub("", text[start : end if end >= 0 else len(text)].strip(), count=1)
    line = _clean(line.replace("\n", " "))
    return line if len(line) <= _EVIDENCE_LENGTH else line[: _EVIDENCE_LENGTH - 1] + "…"


def _clean(text: str) -> str:
    return _SECRETS.sub("[removed]", text)


def _filled(template: str, values: Mapping[str, str]) -> str:
    return re.sub(
        r"\{([a-z_][a-z0-9_]*)\}", lambda group: values.get(group[1], "unknown"), template
    )
