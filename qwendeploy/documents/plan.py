"""The plan: chosen option, every flag with its rule, frozen predictions, alternatives, trace."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qwendeploy.documents.base import Document, Model
from qwendeploy.documents.machine import Machine
from qwendeploy.documents.option import OperatingPoint, Option, Workload
from qwendeploy.figures import Figure

Whole = Annotated[int, Field(strict=True)]
"""A whole number and nothing that stands for one: YAML's ``true`` is no port 1."""


class Setting(Model):
    """A flag or variable of the server with the rule that set it and why.

    ``value`` is ``None`` for a switch. Settings are emitted in order.
    """

    name: str
    value: str | None = None
    rule: str
    reason: str


PREDICTION_NAMES = (
    "aggregate_decode_tps",
    "per_user_decode_tps",
    "tpot_ms",
    "ttft_warm_ms",
    "ttft_cold_ms",
    "kv_pool_blocks",
    "kv_pool_tokens",
    "blocks_per_request",
    "max_full_length_requests",
    "max_running_requests",
    "max_typical_context_tokens",
    "output_tps_end_to_end",
)


class Predictions(Model):
    """Figures at one (concurrency, context); a missing one is null with its reason."""

    aggregate_decode_tps: Figure | None = None
    per_user_decode_tps: Figure | None = None
    tpot_ms: Figure | None = None
    ttft_warm_ms: Figure | None = None
    ttft_cold_ms: Figure | None = None
    kv_pool_blocks: Figure | None = None
    kv_pool_tokens: Figure | None = None
    blocks_per_request: Figure | None = None
    max_full_length_requests: Figure | None = None
    max_running_requests: Figure | None = None
    max_typical_context_tokens: Figure | None = None
    output_tps_end_to_end: Figure | None = None
    ttft_end_to_end_ms: Figure | None = None
    """Mean time to the first token in the closed loop, the wait for other prompts included."""
    tpot_end_to_end_ms: Figure | None = None
    """Time per token in the closed loop, the pauses for other prompts included."""
    stall_ms: Figure | None = None
    """Longest pause of a decoding stream while another prompt is prefilled."""
    aggregate_decode_tps_over_content: Figure | None = None
    """The decode rate of text of any kind, prose to code; a run has one kind: it never decides."""
    reasons: dict[str, str] = Field(default_factory=dict)
    """Why a figure above is null, by its name."""


class Cell(Model):
    """Predictions at one concurrency and context."""

    concurrency: int
    context: int
    figures: Predictions


class Alternative(Model):
    """A feasible option that lost, with the reason."""

    option: Option
    predictions: Predictions
    why_not: str


class TraceEntry(Model):
    """What happened to one option: the rule, its effect, by how much it missed, what would help."""

    option: str
    """Short label of the option (``fp8 · mtp3 · tp2 · vllm v17``)."""
    rule: str
    effect: Literal["rejected", "changed", "warned", "preferred", "ranked", "chosen"]
    reason: str
    missed_by: str | None = None
    would_return: str | None = None


class PlanWarning(Model):
    """Something true that the user should know before starting."""

    rule: str
    text: str


class Plan(Document):
    """Chosen option with every flag, frozen predictions, alternatives and trace."""

    schema_id: str = Field(default="qwendeploy/plan", alias="schema")
    plan_id: str
    """Digest of option, settings and operating point; equal plans have equal ids."""
    seal: str | None = None
    """Digest of machine and predictions as frozen; ``None`` where none was made."""
    machine: Machine
    workload: Workload
    operating_point: OperatingPoint
    option: Option
    flags: tuple[Setting, ...]
    env: tuple[Setting, ...]
    predictions: Predictions
    cells: tuple[Cell, ...] = ()
    """The rows beside the operating point: one request, and full length."""
    gpu_indices: tuple[Whole, ...] = ()
    listen: str = "127.0.0.1"
    port: Whole = 8000
    served_model_name: str = "qwen3.6-27b"
    download_gib: Figure | None = None
    boot_first_s: Figure | None = None
    boot_warm_s: Figure | None = None
    gated_repositories: tuple[str, ...] = ()
    """Checkpoints that need an accepted licence and HF_TOKEN."""
    headlines: tuple[str, ...] = ()
    """Lines that must come first: assumed machine, third-party image, lowered quality class."""
    reasons: tuple[str, ...] = ()
    """The decisive reasons, most decisive first."""
    capacity: tuple[str, ...] = ()
    """How many requests of which length run, what happens beyond, and what would change it."""
    assumptions: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    trace: tuple[TraceEntry, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()


class PredictDocument(Document):
    """Figures of one stated option over a grid."""

    schema_id: str = Field(default="qwendeploy/predict", alias="schema")
    machine: Machine
    option: Option
    contexts: Literal["shared", "separate"]
    cells: tuple[Cell, ...]
    memory: dict[str, Figure | None]
    """Pool figures, the same for every cell."""
    warnings: tuple[PlanWarning, ...] = ()
