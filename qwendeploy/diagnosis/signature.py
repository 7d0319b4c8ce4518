"""One signature: a pattern in logs or measurements that identifies a cause after the start.

Log patterns are searched in the joined lines of a log. So that a log of any size is read in time
that grows with its length only, a pattern may not repeat a group or a dot without bound; it says
``.{0,80}`` instead. Named groups of the patterns fill the texts (``{needed}``).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from qwendeploy.documents.base import Model
from qwendeploy.errors import DataError
from qwendeploy.resources import data_dir
from qwendeploy.rulebook.files import Item, read_items

METRICS = {
    "concurrency": "requests that the client keeps in flight",
    "running": "requests running at once",
    "waiting": "requests waiting for max-num-seqs or KV blocks",
    "seats": "max_num_seqs of the server",
    "kv_usage": "share of the pool's blocks in use, 0 to 1",
    "preemptions": "requests preempted over the window",
    "spec_tokens": "configured draft tokens per step; 0 without drafting",
    "drafts": "drafting steps over the window",
    "acceptance_rate": "accepted over drafted tokens, 0 to 1",
    "generation_tokens": "tokens generated over the window",
    "tokens_per_s": "tokens generated per second",
    "prefix_hit_rate": "share of prompt tokens found in the prefix cache, 0 to 1",
    "p99_gap_ms": "99th percentile of the time between stream chunks, ms",
    "ttft_ms": "median time to the first token, ms",
    "length_share": "share of responses cut at their token limit, 0 to 1",
    "empty_share": "share of responses without content, 0 to 1",
    "gpu_utilization": "lowest utilisation of the serving GPUs, percent",
    "gpu_memory_growth_mib": "growth of GPU memory over the last minute of a start, MiB",
    "healthy": "1 if /health succeeds, else 0",
}
"""The closed list of measurements that a condition may read."""

_UNBOUNDED = re.compile(r"(?<!\\)(?:\)|\.)(?:[*+]|\{\d+,\})")
_OPERATORS = ("gt", "ge", "lt", "le", "eq", "ne")
_TEXT_GROUP = re.compile(r"\{([a-z_][a-z0-9_]*)\}")


class SignatureExample(Model):
    """Lines and measurements that the signature recognises, or does not."""

    lines: tuple[str, ...] = ()
    metrics: dict[str, float] = Field(default_factory=dict)
    matches: bool


class Signature(Item):
    """Symptom, cause and fix of one runtime fault."""

    title: str
    stage: Literal["start", "load", "any"]
    severity: Literal["fatal", "degraded", "info"]
    any_of: tuple[str, ...] = ()
    """Log patterns; one of them must be found."""
    all_of: tuple[str, ...] = ()
    """Log patterns that must all be found as well."""
    extract: tuple[str, ...] = ()
    """Log patterns that only supply values for the texts."""
    metrics: dict[str, dict[str, float | str]] = Field(default_factory=dict)
    """Measurements; all conditions must hold, and an unknown measurement fails its condition."""
    cause: str
    fix: str
    sources: tuple[str, ...] = Field(min_length=1)
    certainty: Literal["observed", "documented", "computed"]
    beats: tuple[str, ...] = ()
    """Less specific signatures of the same fault, not reported if this one matches."""
    consequence: bool = False
    """Whether it is only a consequence of other faults, and not reported beside them."""
    rules: tuple[str, ...] = ()
    """Rules that predict the fault before the start."""
    examples: tuple[SignatureExample, ...]

    @model_validator(mode="after")
    def _sound(self) -> Self:
        patterns = (*self.any_of, *self.all_of, *self.extract)
        if not (self.any_of or self.metrics):
            raise ValueError("needs log patterns (any_of) or metrics")
        groups: set[str] = set(METRICS)
        for pattern in patterns:
            if _UNBOUNDED.search(pattern):
                raise ValueError(f"{pattern!r} has an unbounded repetition of a group or a dot")
            try:
                groups |= set(re.compile(pattern).groupindex)
            except re.error as problem:
                raise ValueError(f"{pattern!r} is not a regular expression: {problem}") from None
        for name, condition in self.metrics.items():
            if name not in METRICS:
                raise ValueError(f"unknown measurement {name}")
            for operator, operand in condition.items():
                if operator not in _OPERATORS:
                    raise ValueError(f"unknown operator {operator}")
                if isinstance(operand, str) and operand.strip("{}") not in METRICS:
                    raise ValueError(f"unknown measurement {operand}")
        for name in _TEXT_GROUP.findall(self.cause + self.fix):
            if name not in groups:
                raise ValueError(f"{{{name}}} is neither a pattern group nor a measurement")
        if {example.matches for example in self.examples} != {True, False}:
            raise ValueError("needs an example that matches and one that does not")
        return self


def load_signatures(directory: Path | None = None) -> tuple[Signature, ...]:
    """Return every signature of ``rules/signatures/``, validated, in order of id.

    Raises:
        DataError: as for rules; names file and key.
    """
    return _load(directory or data_dir("rules") / "signatures")


def read_signatures(directory: Path) -> tuple[list[Signature], list[DataError]]:
    """Return a folder's valid signatures and every problem that ``load_signatures`` would raise."""
    return read_items(directory, Signature, ("beats",))


@cache
def _load(directory: Path) -> tuple[Signature, ...]:
    found, problems = read_signatures(directory)
    if problems:
        raise problems[0]
    return tuple(sorted(found, key=lambda signature: signature.id))
