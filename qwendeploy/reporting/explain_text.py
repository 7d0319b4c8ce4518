"""Explanations as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from qwendeploy.reporting.explain_parts import Explanation
from qwendeploy.reporting.width import text_width

_LABEL = 14


def explanations_text(explanations: Sequence[Explanation]) -> str:
    """Return each explanation as a page, separated by blank lines."""
    return "\n\n".join(_page(explanation) for explanation in explanations)


def _page(explanation: Explanation) -> str:
    head = f"{explanation.topic} ({explanation.kind})"
    if explanation.title.startswith(explanation.topic):
        head = f"{explanation.title} ({explanation.kind})"
    lines = _wrapped(head, "")
    if not explanation.title.startswith(explanation.topic):
        lines += _wrapped(explanation.title, "")
    for paragraph in explanation.text:
        lines += ["", *_wrapped(paragraph, "")]
    if explanation.facts:
        lines.append("")
        for fact in explanation.facts:
            lines += _labelled(fact.label, fact.value)
    if explanation.sources:
        lines.append("")
        for source in explanation.sources:
            lines += _labelled("source", source)
    if explanation.see_also:
        lines += _labelled("see also", ", ".join(explanation.see_also))
    return "\n".join(lines)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        text_width(),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _labelled(label: str, value: str) -> list[str]:
    if len(label) >= _LABEL:
        return [f"  {label}", *_wrapped(value, " " * (_LABEL + 2))]
    lines = _wrapped(value, " " * (_LABEL + 2)) or [""]
    return [f"  {label:<{_LABEL}}{lines[0].strip()}", *lines[1:]]


def topics_text(groups: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return the names that ``explain`` knows, by group."""
    lines = []
    for title, names in groups:
        lines.append(f"{title} ({len(names)})")
        lines += _wrapped(", ".join(names), "  ")
    lines.append("next: qwendeploy explain NAME")
    return "\n".join(lines)
