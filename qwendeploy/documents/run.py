"""Run and verdict: what was measured on a live server and what it says about the plan.

A run document is valid at every moment of the measurement: ``status`` says how far it got. Times
of one run are seconds since its start on a clock that does not jump.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from qwendeploy.documents.base import Document, Model
from qwendeploy.documents.plan import Plan
from qwendeploy.figures import Figure

Outcome = Literal["confirmed", "refuted", "inconclusive"]
RunStatus = Literal["complete", "incomplete", "interrupted", "failed"]
Level = Literal["quick", "standard", "thorough"]


class Cause(Model):
    """A likely cause of a deviation: the signature, the evidence, what to do."""

    id: str
    text: str
    evidence: str
    fix: str


class Verdict(Model):
    """One quantity: predicted, measured, outcome."""

    quantity: str
    predicted: Figure | None
    measured: Figure | None
    outcome: Outcome
    reason: str = ""
    wide: bool = False
    """The predicted band is wider than ±20 %."""
    decisive: bool = False
    """The overall outcome depends on this quantity."""
    causes: tuple[Cause, ...] = ()


class Gate(Model):
    """A functional check: passed, failed, or not run with the reason."""

    id: str
    outcome: Literal["passed", "failed", "not_run"]
    reason: str = ""
    transcript: tuple[dict[str, Any], ...] = ()


def boot_name(starts: Iterable[float]) -> str | None:
    """Return the name of a boot from the start times of its processes, ``None`` without any.

    The name holds every one of them: two sets of replicas never share it by a sum.
    """
    return "+".join(f"{start:.2f}" for start in sorted(starts)) or None


class ServerFacts(Model):
    """What the server says of itself; ``None`` is *not offered*."""

    base_url: str
    """Without credentials."""
    model: str
    root: str | None = None
    served_models: tuple[str, ...] = ()
    version: str | None = None
    engine: Literal["vllm", "llama.cpp", "unknown"] = "unknown"
    max_model_len: int | None = None
    boot_id: str | None = None
    """Start times of the server's processes: two runs with one boot id are not independent."""
    cache_config: dict[str, str] = Field(default_factory=dict)
    kv_pool_blocks: int | None = None
    kv_pool_tokens: int | None = None
    drafting: bool | None = None
    continuous_usage: bool = False
    """Usage on every chunk: tokens are counted where they arrive."""
    metrics: bool = False
    """Counters of all that serve can be read."""
    replicas: int = 1
    """Engines behind the address, as planned or seen."""
    replicas_told: int = 0
    """Engines of which ``/metrics`` tells."""
    tokenize: bool = False
    accepted_fields: tuple[str, ...] = ()
    """Sampling fields beyond the standard that the server accepted."""
    not_offered: tuple[str, ...] = ()


class ClientFacts(Model):
    """What the measuring side was able to do during this run."""

    loop: str
    cpu_share: float | None = None
    """CPU seconds of this process per second, 1.0 = one core."""
    lag_p99_ms: float | None = None
    """How late the event loop woke, 99th percentile."""
    lag_max_ms: float | None = None
    limited: bool = False
    """The client may have been the limit; the run then decides nothing."""
    limited_reason: str = ""
    load_average: float | None = None
    proxy: bool = False


class RequestCounts(Model):
    """Requests of one step; only the succeeded ones are in any latency."""

    sent: int = 0
    succeeded: int = 0
    cancelled: int = 0
    """Stopped by this client when the step was over, counted as far as they came."""
    failed: int = 0
    failures: dict[str, int] = Field(default_factory=dict)
    """Failed requests by kind."""
    examples: tuple[str, ...] = ()
    """First message of some failures."""


class Distribution(Model):
    """Spread of one latency over requests."""

    name: str
    unit: str
    n: int
    mean: float
    sd: float
    low: float
    high: float
    percentiles: dict[str, float]
    too_small: tuple[str, ...] = ()
    """Percentiles that n is too small to claim as an upper bound at 95 % confidence."""


class Window(Model):
    """One stretch of steady decoding."""

    start_s: float
    duration_s: float
    tokens: float
    aggregate_tps: float
    tpot_ms: float | None
    running_low: int
    """Fewest streams seen to be decoding at once."""
    server_running_low: float | None = None
    server_running_high: float | None = None
    waiting_high: float | None = None
    preemptions: float | None = None
    acceptance_length: float | None = None
    kv_usage: float | None = None
    clean: bool = True
    """All streams ran, none waited, none started or ended inside."""
    turnover: bool = False
    """A stream of ours ended inside, though the server kept none waiting: no rate of all streams.
    """
    others: bool = False
    """The server worked for others too: more ran than ours, or requests ended that were not."""
    note: str = ""


class TimelinePoint(Model):
    """State at one moment; ``None`` is not offered."""

    t_s: float
    streams: int
    tokens: float
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    preemptions: float | None = None
    acceptance_length: float | None = None
    gpu: tuple[dict[str, float | str | None], ...] = ()


class Step(Model):
    """One load put on the server and what came of it."""

    name: str
    shape: Literal["decode", "prompt", "mixed", "chat", "fill", "full_length", "soak"]
    concurrency: int
    context: int
    contexts: Literal["shared", "separate"]
    status: RunStatus = "incomplete"
    start_s: float = 0.0
    duration_s: float = 0.0
    prompt_tokens: float | None = None
    """Mean prompt length by the server's count."""
    prompt_asked: float | None = None
    """Prompt length that was asked for."""
    client_limit: str = ""
    """Why the client may have been the limit of this load; empty if it was not."""
    texts: dict[str, int] = Field(default_factory=dict)
    """Streams by the kind of text that they were given and continue."""
    context_mean: float | None = None
    """Mean context of the streams in the windows."""
    counted: Literal["continuous", "final", "chunk_ratio", "metrics", "none"] = "none"
    """How tokens inside windows were counted."""
    steady: bool | None = None
    drift_per_minute: float | None = None
    """Relative change of the rate per minute over the windows."""
    cv: float | None = None
    requests: RequestCounts = RequestCounts()
    windows: tuple[Window, ...] = ()
    figures: dict[str, Figure | None] = Field(default_factory=dict)
    reasons: dict[str, str] = Field(default_factory=dict)
    distributions: tuple[Distribution, ...] = ()
    server: dict[str, float | None] = Field(default_factory=dict)
    """Differences of the server's own counters over the step."""
    notes: tuple[str, ...] = ()


class FillCheck(Model):
    """One part of the fill check."""

    id: str
    outcome: Outcome
    text: str


class Fill(Model):
    """Whether what the plan says fits was really filled."""

    tested: bool = False
    outcome: Outcome = "inconclusive"
    reason: str = ""
    concurrency: int | None = None
    context: int | None = None
    running: float | None = None
    waiting: float | None = None
    preemptions: float | None = None
    blocks_held: Figure | None = None
    blocks_predicted: Figure | None = None
    full_length_tokens: int | None = None
    checks: tuple[FillCheck, ...] = ()


class RunDocument(Document):
    """One measurement of a live server."""

    schema_id: str = Field(default="qwendeploy/run", alias="schema")
    run_id: str
    status: RunStatus = "incomplete"
    stage: str = "started"
    """What was being done when the document was written."""
    level: Level = "standard"
    plan_id: str | None = None
    machine_id: str | None = None
    """Digest of the serving machine, from the plan; unlike machines are not compared."""
    plan: Plan | None = None
    """The plan that was measured, without the options that lost."""
    gpus: tuple[str, ...] = ()
    """Names of the GPUs that were watched, if the server ran beside the client."""
    operating_point: dict[str, Any] = Field(default_factory=dict)
    server: ServerFacts | None = None
    client: ClientFacts | None = None
    figures: dict[str, Figure | None] = Field(default_factory=dict)
    reasons: dict[str, str] = Field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    fill: Fill = Fill()
    gates: tuple[Gate, ...] = ()
    timeline: tuple[TimelinePoint, ...] = ()
    warnings: tuple[str, ...] = ()
    requests: tuple[dict[str, Any], ...] = ()
    """Per-request arrays, kept only if asked."""


class VerifyReport(Document):
    """Plan versus run: one outcome per quantity and one overall."""

    schema_id: str = Field(default="qwendeploy/verify", alias="schema")
    outcome: Outcome | None
    """``None`` when there was no plan to judge."""
    statement: str
    """The outcome in one sentence."""
    wide: bool = False
    exit_code: int
    plan_id: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    causes: tuple[Cause, ...] = ()
    gates: tuple[Gate, ...] = ()
    accepted: str = ""
    """What the plan assumes of accepted drafts, in words; empty where none were counted."""
    fill: Fill
    run: RunDocument
