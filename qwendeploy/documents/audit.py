"""The audit document: outcome, findings with places, what is in effect, figures, changes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from qwendeploy.documents.base import Document, Model
from qwendeploy.documents.option import Content, Option
from qwendeploy.documents.plan import Predictions
from qwendeploy.figures import Figure

SeverityName = Literal["error", "warning", "info"]
OutcomeName = Literal[
    "works", "fails_at_start", "fails_under_load", "degraded", "insecure", "wasteful"
]


class AuditFinding(Model):
    """One finding; ``place`` is ``file:line``."""

    id: str
    severity: SeverityName
    about: str
    place: str
    text: str
    fix: str
    rule: str | None = None
    """Rule behind it; ``qwendeploy explain RULE`` prints its page."""


class EffectiveValue(Model):
    """A value in effect; ``stated`` is false where the engine's default fills it in."""

    name: str
    value: str | int | float | bool
    stated: bool
    place: str | None = None
    why: str = ""


class AuditChange(Model):
    """One difference to our plan for this machine."""

    what: str
    current: str
    proposed: str
    why: str
    gain: Figure | None = None
    """Factor on the rate at the operating point, where the models give both."""


class Exposure(Model):
    """Who reaches the port, and whether a key is asked for."""

    listen: str
    network: Literal["loopback", "host", "all", "unknown"]
    api_key: bool


class AuditedLaunch(Model):
    """One server of the file."""

    name: str
    place: str
    runtime: str
    engine: str
    image: str | None
    engine_version: str | None
    outcome: OutcomeName
    binds: str
    """What limits it: weights, max_model_len, max_num_seqs, blocks, or not known."""
    findings: tuple[AuditFinding, ...]
    effective: tuple[EffectiveValue, ...]
    option: Option | None
    exposure: Exposure
    predictions: Predictions
    concurrency: int | None = None
    context: int | None = None
    """Requests in flight, and tokens of each, that the predictions are of."""
    point_assumed: bool = False
    content: Content = Content.MIXED
    contexts: Literal["shared", "separate"] = "separate"
    engines: int = 1
    """Alike engines of the file that share ``concurrency``; figures and changes are of them all."""
    first_engine: str | None = None
    """Of such engines the first one, for those that follow it."""
    doubt: str | None = None
    """What speaks against a start that nothing surely prevents."""
    changes: tuple[AuditChange, ...] = ()
    unread: tuple[str, ...] = ()
    """Files and parts that the launch names and that were not read."""


class AuditDocument(Document):
    """Everything found in a file; the head repeats the worst launch."""

    schema_id: str = Field(default="qwendeploy/audit", alias="schema")
    outcome: OutcomeName
    findings: tuple[AuditFinding, ...]
    option: Option | None
    predictions: Predictions
    changes: tuple[AuditChange, ...]
    launches: tuple[AuditedLaunch, ...]
