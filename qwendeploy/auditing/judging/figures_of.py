"""Figures of an audited launch: KV pool and rates from the memory and speed models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from qwendeploy.auditing.judging.findings import Finding
from qwendeploy.auditing.judging.gguf import gguf_option, read_gguf, slots_of
from qwendeploy.auditing.understanding.facts import kv_name
from qwendeploy.auditing.understanding.memory import PoolView, why_no_pool
from qwendeploy.auditing.understanding.understand import Understood
from qwendeploy.documents import Machine, Option, Predictions, Workload
from qwendeploy.documents.option import Content
from qwendeploy.documents.request import Pins, Request
from qwendeploy.errors import NoPlan, QwendeployError
from qwendeploy.evidence.memory_view import Load, Servers
from qwendeploy.figures import Figure
from qwendeploy.versions import release_of

DEFAULT_CONCURRENCY = 8
"""Assumed concurrency where neither the launch nor the caller states one; printed as assumed."""
SHORTEST_CONTEXT = 1024

REFUSED = "planning rejects this option: "
"""Prefix of the reason where planning gives no rate."""
_RATES = (
    "aggregate_decode_tps",
    "aggregate_decode_tps_over_content",
    "per_user_decode_tps",
    "tpot_ms",
    "ttft_warm_ms",
    "ttft_cold_ms",
    "stall_ms",
    "output_tps_end_to_end",
    "ttft_end_to_end_ms",
    "tpot_end_to_end_ms",
)


OF_SEATS = ("max_running_requests", "max_typical_context_tokens")
MEMORY_NAMES = (
    *("kv_pool_blocks", "kv_pool_tokens", "blocks_per_request", "max_full_length_requests"),
    *OF_SEATS,
)


@dataclass(frozen=True)
class AuditLoad:
    """The load that a launch is predicted for."""

    concurrency: int
    context: int
    assumed: bool
    content: Content = Content.MIXED
    contexts: Literal["shared", "separate"] = "separate"
    all_seats: bool = False
    """Nobody said how many requests there are: what the memory holds is told for all seats."""


@dataclass(frozen=True)
class RequestedLoad:
    """The load that the caller states; ``None`` means not stated."""

    concurrency: int | None = None
    context: int | None = None
    content: Content = Content.MIXED
    contexts: Literal["shared", "separate"] = "separate"


def point_of(
    understood: Understood, view: PoolView | None, option: Option | None, requested: RequestedLoad
) -> AuditLoad:
    """Return the operating point: as requested, else what the launch's seats and use suggest."""
    concurrency, context = requested.concurrency, requested.context
    assumed = concurrency is None or context is None
    known = option.max_num_seqs if option is not None else understood.number("max_num_seqs")
    seats = int(known or DEFAULT_CONCURRENCY)
    if concurrency is None:
        concurrency = min(seats, DEFAULT_CONCURRENCY)
    length = (option.max_model_len if option is not None else None) or 32768
    length = view.pool.max_model_len if view is not None else length
    if context is None:
        hinted = understood.context.hints.max_context
        context = hinted if hinted is not None else max(SHORTEST_CONTEXT, length // 8)
    context = min(context, length)
    everyone = requested.concurrency is None
    return AuditLoad(concurrency, context, assumed, requested.content, requested.contexts, everyone)


def option_of(understood: Understood) -> Option | None:
    """Return the launch as an option of the design, ``None`` where it is not one."""
    checkpoint = understood.checkpoint
    engine = understood.launch.engine
    if engine == "llama.cpp":
        return gguf_option(understood)
    if checkpoint is None or engine != "vllm":
        return None
    kv = str(understood.value("kv_cache_dtype") or "auto")
    fp8 = kv.startswith("fp8") or (kv == "auto" and checkpoint.forces_fp8_kv)
    length = understood.number("max_model_len")
    capture = understood.number("capture_size")
    try:
        return Option.model_validate(
            {
                "engine": engine,
                "image": understood.image,
                "engine_version": understood.engine_version,
                "fork": understood.fork,
                "checkpoint": checkpoint.name,
                "quant": checkpoint.quant,
                "kv_cache_dtype": "fp8" if fp8 else "bf16",
                "spec_method": understood.spec_method,
                "spec_tokens": understood.spec_tokens or 0,
                "tp": int(understood.number("tp") or 1),
                "replicas": int(understood.number("dp") or 1),
                "prefix_cache": bool(understood.value("prefix_cache")),
                "gpu_memory_utilization": understood.number("gpu_memory_utilization"),
                "max_model_len": int(length) if length and length > 0 else None,
                "max_num_seqs": _whole(understood.number("max_num_seqs")),
                "max_num_batched_tokens": _whole(understood.number("max_num_batched_tokens")),
                "capture_size": _whole(capture),
            }
        )
    except ValueError:
        return None


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None else None


def workload_of(point: AuditLoad, option: Option, *, vision: bool) -> Workload:
    """Return the workload of a point as planning asks for it."""
    return Workload(
        concurrency=point.concurrency,
        max_context=option.max_model_len or max(point.context, 32768),
        typical_context=point.context,
        contexts=point.contexts,
        content=point.content,
        vision=vision,
        prefix_cache="on" if option.prefix_cache else "off",
    )


def predictions_of(
    understood: Understood,
    view: PoolView | None,
    option: Option | None,
    point: AuditLoad,
    findings: tuple[Finding, ...],
    *,
    rates: bool = True,
) -> Predictions:
    """Return the figures; one that cannot be given is null with its reason."""
    reasons: dict[str, str] = {}
    figures = _memory_figures(understood, view, option, point, reasons)
    figures.update(_rate_figures(understood, view, option, point, findings, reasons, rates=rates))
    return Predictions(reasons=reasons, **figures)


def _memory_figures(
    understood: Understood,
    view: PoolView | None,
    option: Option | None,
    point: AuditLoad,
    reasons: dict[str, str],
) -> dict[str, Figure]:
    """Return what the memory holds, as plans say it: at the point, of all servers together."""
    memory = view.pool if view is not None else slots_of(understood)
    if isinstance(memory, str):
        why = why_no_pool(understood) if understood.llama is None else memory
        reasons.update(dict.fromkeys(MEMORY_NAMES, why))
        return {}
    seats = understood.number("max_num_seqs") if option is None else option.max_num_seqs
    replicas = option.replicas if option is not None else int(understood.number("dp") or 1)
    cached = bool(understood.value("prefix_cache"))
    servers = Servers(memory, int(seats or 1), replicas, cached)
    together = servers.all_seats if point.all_seats else point.concurrency
    figures, absent = servers.capacity(Load(together, point.context, point.contexts))
    if not seats:
        absent |= dict.fromkeys(OF_SEATS, "--max-num-seqs is not known")
        figures = {name: figure for name, figure in figures.items() if name not in OF_SEATS}
    reasons.update(absent)
    return figures


def _rate_figures(
    understood: Understood,
    view: PoolView | None,
    option: Option | None,
    point: AuditLoad,
    findings: tuple[Finding, ...],
    reasons: dict[str, str],
    *,
    rates: bool,
) -> dict[str, Figure]:
    machine = understood.context.machine
    why = None
    if any(finding.outcome == "fails_at_start" for finding in findings):
        why = "the server does not start"
    elif machine is None or option is None or understood.context.vendor != "nvidia":
        why = "the speed models do not cover this machine or option"
    elif (understood.number("pp") or 1) > 1:
        why = "the speed models do not cover pipeline parallelism"
    elif kv_name(str(understood.value("kv_cache_dtype") or "auto")) not in ("bf16", "fp8"):
        why = "the speed models do not cover this cache type"
    elif not rates:
        why = "not requested"
    if why is not None or machine is None or option is None:
        reasons.update({name: why or "" for name in _RATES})
        return {}
    option = _that_runs(option, understood, view, point)
    predicted, refusal = _predicted(
        machine, option, point, vision=not understood.value("text_only")
    )
    if predicted is None:
        reasons.update({name: refusal for name in _RATES})
        return {}
    found = {name: getattr(predicted, name) for name in _RATES}
    reasons.update({name: predicted.reasons.get(name, "not predicted") for name in _RATES})
    for name, figure in found.items():
        if figure is not None:
            reasons.pop(name)
    return {name: figure for name, figure in found.items() if figure is not None}


def _that_runs(
    option: Option, understood: Understood, view: PoolView | None, point: AuditLoad
) -> Option:
    """Return the option with the seats that run at the point.

    Seats beyond the blocks wait where nothing refuses them, and slots of one unified cache take of
    it what each needs; planning knows neither.
    """
    seats, length = option.max_num_seqs or 0, option.max_model_len or 0
    if view is not None and seats and not view.lacks_seats and seats > view.pool.count > 0:
        return option.model_copy(update={"max_num_seqs": view.pool.count})
    if understood.llama is not None and seats and length and read_gguf(understood.llama).unified:
        running = max(1, min(seats, length // max(1, point.context)))
        return option.model_copy(
            update={"max_num_seqs": running, "max_model_len": length // running}
        )
    return option


def _pins(option: Option) -> Pins:
    """Return what leaves nothing open: a release without an image runs as its own image does."""
    pins = Pins.of(option)
    release = release_of(option.engine_version)
    if option.engine != "vllm" or option.image is not None or release is None:
        return pins
    return replace(pins, image=f"vllm/vllm-openai:v{release}")


def _predicted(
    machine: Machine, option: Option, point: AuditLoad, *, vision: bool
) -> tuple[Predictions | None, str]:
    from qwendeploy.planning.predict import Grid, predict

    try:
        document = predict(
            machine,
            workload_of(point, option, vision=vision),
            Request(pins=_pins(option)),
            Grid((point.concurrency,), (point.context,)),
        )
    except NoPlan as refusal:
        return None, f"{REFUSED}{refusal.what.removeprefix('this option cannot run: ')}"
    except QwendeployError as refusal:
        return None, f"no rate: {refusal.what}"
    return document.cells[0].figures, ""
