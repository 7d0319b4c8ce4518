"""``explain``: what a name means: a rule, a fault, a signature, a flag, a figure, an image, a card.

Several things may share a name (the rule that foresees a fault and the signature that recognises
it); all are shown. An unknown name is an error with the nearest known ones.
"""

from __future__ import annotations

import difflib
from functools import cache

from qwendeploy.diagnosis import load_signatures
from qwendeploy.engines.vllm.flags import flag_rows
from qwendeploy.errors import UserError
from qwendeploy.reporting.explain_engine import engine_names
from qwendeploy.reporting.explain_parts import Explanation, Fact
from qwendeploy.reporting.explain_plan import explain_plan
from qwendeploy.reporting.explain_rules import (
    rule_explanation,
    rules_named,
    signature_explanation,
    signatures_named,
)
from qwendeploy.reporting.explain_tables import listed_names, table_names
from qwendeploy.reporting.explain_topics import topics, topics_named
from qwendeploy.rulebook.book import load_rules

__all__ = [
    "Explanation",
    "Fact",
    "explain",
    "explain_plan",
    "known_names",
    "rule_explanation",
    "signature_explanation",
    "topic_groups",
]


def explain(name: str) -> tuple[Explanation, ...]:
    """Return everything that ``name`` means.

    Raises:
        UserError: nothing has this name; the nearest names are given.
    """
    wanted = name.strip()
    found = [
        *rules_named(wanted),
        *signatures_named(wanted),
        *topics_named(wanted),
        *engine_names(wanted),
        *table_names(wanted),
    ]
    if found:
        return tuple(found)
    known = {known.lower(): known for known in (*known_names(), *listed_names())}
    close = difflib.get_close_matches(wanted.lower(), known, n=3, cutoff=0.5)
    near = [known[name] for name in close]
    hint = f"did you mean {' or '.join(near)}?" if near else "qwendeploy explain lists the topics"
    raise UserError(f"no explanation for {name!r}", where="explain", hint=hint)


@cache
def known_names() -> tuple[str, ...]:
    """Return every name that ``explain`` answers, but images, checkpoints and cards."""
    names = [rule.id for rule in load_rules().rules]
    names += [rule.finding.id for rule in load_rules().rules if rule.finding and rule.finding.id]
    names += [signature.id for signature in load_signatures()]
    names += [*topics(), *(row.name for row in flag_rows())]
    return tuple(dict.fromkeys(names))


def topic_groups() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the names by group; flags and variables are too many to list."""
    figures = tuple(name for name, topic in topics().items() if topic.unit)
    words = tuple(
        name for name, topic in topics().items() if not topic.unit and not name.startswith("-")
    )
    return (
        ("figures", figures),
        ("words", words),
        ("rules", tuple(rule.id for rule in load_rules().rules)),
        ("signatures", tuple(signature.id for signature in load_signatures())),
        ("and every flag, speculative key and variable of", _engines()),
        (
            "and every image, checkpoint, weight format and card of",
            tuple(f"data show {table}" for table in ("images", "checkpoints", "gpus")),
        ),
    )


def _engines() -> tuple[str, ...]:
    from qwendeploy.engines.vllm.flags import releases

    return (*(f"vLLM {release}" for release in releases()),)
