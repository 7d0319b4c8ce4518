"""The closed list of fields that a rule's condition may read, with their types.

A field outside the list is an error when rules are loaded and when facts are handed over. Flags
and variables are open families: ``resolved.flag.max-num-seqs`` is the engine's flag without its
dashes, ``resolved.flag.speculative-config.method`` a key of its JSON value, and
``resolved.env.NCCL_P2P_DISABLE`` a variable of the server. Their values are text; a switch that is
on reads ``true``, one that is off (``--no-x``) ``false``, and one that a completely known command
does not have ``absent``.

``computed.*`` are the named computations: each follows from other fields by one line of arithmetic,
so that rules need no expression language.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from qwendeploy.image_names import image_name
from qwendeploy.tables.releases import find_release, newest_release

FactValue = str | int | float | bool
"""A known fact; an unknown one is left out of the mapping."""


class FieldType(StrEnum):
    """How values of a field compare."""

    NUMBER = "number"
    VERSION = "version"
    TEXT = "text"
    BOOLEAN = "boolean"
    CHOICE = "choice"


class Pass(StrEnum):
    """The three passes over every option, in order; each reads more groups than the one before."""

    ADMIT = "admit"
    RESOLVE = "resolve"
    CHECK = "check"


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its type, what it means, and the choices of a choice field."""

    name: str
    type: FieldType
    meaning: str
    choices: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The part before the first dot."""
        return self.name.partition(".")[0]


N, V, T, B, C = (
    FieldType.NUMBER,
    FieldType.VERSION,
    FieldType.TEXT,
    FieldType.BOOLEAN,
    FieldType.CHOICE,
)
TRI = ("yes", "no", "unknown")

_FIELDS = (
    Field("machine.gpu", T, "catalogue name of the chosen cards"),
    Field("machine.gpu_count", N, "usable cards of the machine"),
    Field(
        "machine.vram_mib", N, "memory of the smallest chosen card as nvidia-smi reports it, MiB"
    ),
    Field("machine.compute_capability", V, "lowest compute capability of the chosen cards"),
    Field("machine.architecture", T, "GPU architecture: turing, ampere, ada, hopper, blackwell"),
    Field("machine.driver", V, "NVIDIA driver version"),
    Field("machine.cuda", V, "newest CUDA version that the driver serves"),
    Field(
        "machine.interconnect",
        C,
        "how the chosen cards are connected; none for a single card",
        ("nvlink", "pcie", "unified", "none", "unknown"),
    ),
    Field("machine.p2p", C, "whether the cards have peer access to each other's memory", TRI),
    Field(
        "machine.card_p2p", C, "whether the stock driver gives cards of this kind peer access", TRI
    ),
    Field("machine.p2p_hangs", B, "the driver reports peer access, but transfers hang"),
    Field("machine.display", B, "a desktop uses memory of a chosen card"),
    Field("machine.unlike_cards", B, "the chosen cards are of different kinds"),
    Field("machine.os", C, "host system", ("linux", "wsl2", "windows", "container", "unknown")),
    Field("machine.unified_memory", B, "GPU and operating system share one memory"),
    Field(
        "machine.host_arch", C, "processor of the host", ("x86_64", "aarch64", "ppc64le", "unknown")
    ),
    Field("machine.vendor", C, "GPU vendor", ("nvidia", "amd", "intel", "other", "unknown")),
    Field("machine.mig", B, "the cards are slices of a card in MIG mode"),
    Field("machine.display_gib", N, "memory that the desktop uses, as stated, GiB"),
    Field("workload.concurrency", N, "concurrent requests (in flight)"),
    Field("workload.max_context", N, "maximum context per request, tokens"),
    Field("workload.typical_context", N, "typical context per request, tokens"),
    Field("workload.contexts", C, "whether requests share their context", ("shared", "separate")),
    Field("workload.content", C, "generated content", ("prose", "code", "agent", "mixed")),
    Field("workload.vision", B, "requests contain images"),
    Field("workload.tools", B, "clients call tools"),
    Field("workload.thinking", B, "reasoning is enabled"),
    Field(
        "workload.quality",
        C,
        "lowest acceptable quality class",
        ("reference", "near", "relaxed", "any"),
    ),
    Field(
        "workload.objective",
        C,
        "ranking objective",
        ("throughput", "latency", "capacity"),
    ),
    Field("option.engine", C, "inference engine", ("vllm", "llama.cpp", "sglang", "other")),
    Field("option.image", T, "container image with tag or digest"),
    Field("option.engine_version", V, "engine version inside the image"),
    Field("option.fork", B, "the image contains a third-party fork of the engine"),
    Field("option.checkpoint", T, "repository or path of the weights"),
    Field("option.model", T, "model of the checkpoint: qwen3.6-27b, or another model"),
    Field("option.quant", T, "weight format: bf16, fp8, nvfp4, int4-autoround, awq-int4 …"),
    Field("option.kv_cache_dtype", T, "KV cache data type: bf16, fp8, or another type"),
    Field(
        "option.spec_method",
        C,
        "draft method",
        ("none", "mtp", "dflash", "draft_model", "ngram", "eagle3", "other"),
    ),
    Field("option.spec_tokens", N, "draft tokens per step; 0 without drafting"),
    Field("option.tp", N, "tensor-parallel size"),
    Field("option.pp", N, "pipeline-parallel size"),
    Field("option.replicas", N, "independent servers"),
    Field("option.prefix_cache", B, "effective prefix caching setting"),
    Field("resolved.max_model_len", N, "maximum length of a request, tokens"),
    Field("resolved.max_num_seqs", N, "maximum concurrent sequences"),
    Field("resolved.max_num_batched_tokens", N, "maximum tokens per scheduler step"),
    Field("resolved.gpu_memory_utilization", N, "fraction of GPU memory the engine may use"),
    Field("resolved.capture_size", N, "maximum CUDA graph capture size, tokens"),
    Field("resolved.attention_backend", T, "attention backend, upper case"),
    Field("memory.pool_blocks", N, "blocks of the KV pool of one replica"),
    Field("memory.blocks_per_request", N, "blocks that one full-length request reserves"),
    Field(
        "memory.full_length_requests",
        N,
        "pool blocks divided by the blocks of a full-length request",
    ),
    Field("memory.starts", B, "the memory model predicts that the server starts"),
    Field("memory.short_requests", N, "maximum concurrent requests of any length"),
    Field("memory.weights_gib", N, "weights on each card, GiB"),
    Field("memory.block_tokens", N, "tokens per block"),
    Field("memory.budget_gib", N, "memory the engine may use on each card, GiB"),
    Field("exposure.listen", T, "address that the port is reachable on"),
    Field("exposure.api_key", B, "requests need a key"),
    Field(
        "exposure.network",
        C,
        "who can reach the port",
        ("loopback", "host", "all", "unknown"),
    ),
    Field("container.runtime", C, "container runtime", ("docker", "podman", "kubernetes", "none")),
    Field("container.gpus_passed", B, "the container has access to the GPUs"),
    Field("container.shared_memory", B, "--ipc=host or an enlarged /dev/shm"),
    Field("container.draft_present", B, "the draft weights exist at their path"),
    Field("container.revision_pinned", B, "a third-party checkpoint is pinned to a revision"),
    Field("computed.gpus_used", N, "option.tp × option.replicas"),
    Field("computed.idle_gpus", N, "machine.gpu_count − option.tp × option.replicas"),
    Field("computed.capture_needed", N, "resolved.max_num_seqs × (1 + option.spec_tokens)"),
    Field("computed.step_tokens", N, "1 + option.spec_tokens"),
    Field("computed.seats_needed", N, "⌈workload.concurrency / option.replicas⌉"),
    Field("computed.image_cuda", V, "CUDA version of a vllm/vllm-openai tag, from its name"),
    Field("computed.capture_covered_seats", N, "⌊resolved.capture_size / (1 + spec_tokens)⌋"),
    Field("computed.draft_slots", N, "resolved.max_num_seqs × option.spec_tokens"),
    Field(
        "computed.memory_left_gib",
        N,
        "machine.vram_mib × (1 − resolved.gpu_memory_utilization), GiB",
    ),
)

FIELDS: Mapping[str, Field] = {field.name: field for field in _FIELDS}


def _image_cuda(image: FactValue, version: FactValue | None) -> str | None:
    """Return the CUDA version that a tag names, of upstream's bare tags that of their release.

    Tags that move are taken for the newest release; other images do not say it in their name.
    """
    name = image_name(str(image)[:_LONGEST_TAG])
    if name.cuda or not name.is_openai_server:
        return name.cuda
    moving = name.tag in ("latest", "nightly")
    row = newest_release() if moving else find_release(None if version is None else str(version))
    return row.cuda if row is not None else None


_LONGEST_TAG = 512
"""Characters of an image name that are looked at; a reference is at most 255 plus a digest."""

_MAY_BE_UNKNOWN = {"option.engine_version"}
"""Sources that a computation does without."""

_COMPUTED: Mapping[str, tuple[tuple[str, ...], Callable[..., FactValue | None]]] = {
    "computed.image_cuda": (("option.image", "option.engine_version"), _image_cuda),
    "computed.gpus_used": (("option.tp", "option.replicas"), lambda tp, n: tp * n),
    "computed.idle_gpus": (
        ("machine.gpu_count", "option.tp", "option.replicas"),
        lambda count, tp, n: count - tp * n,
    ),
    "computed.capture_needed": (
        ("resolved.max_num_seqs", "option.spec_tokens"),
        lambda seats, k: seats * (1 + k),
    ),
    "computed.step_tokens": (("option.spec_tokens",), lambda k: 1 + k),
    "computed.seats_needed": (
        ("workload.concurrency", "option.replicas"),
        lambda c, n: -(-c // max(n, 1)),
    ),
    "computed.capture_covered_seats": (
        ("resolved.capture_size", "option.spec_tokens"),
        lambda size, k: size // (1 + k),
    ),
    "computed.draft_slots": (
        ("resolved.max_num_seqs", "option.spec_tokens"),
        lambda seats, k: seats * k,
    ),
    "computed.memory_left_gib": (
        ("machine.vram_mib", "resolved.gpu_memory_utilization"),
        lambda mib, share: round(mib / 1024 * (1 - share), 2),
    ),
}

_FAMILY = re.compile(r"^resolved\.(?:env\.[A-Za-z_][A-Za-z0-9_]*|flag\.[a-z][A-Za-z0-9_.\-]*)$")

ABSENT = "absent"
"""Value of a flag or variable that a completely known command does not have."""

_READS = {
    Pass.ADMIT: {"machine", "workload", "option"},
    Pass.RESOLVE: {"machine", "workload", "option", "resolved"},
    Pass.CHECK: {
        "machine",
        "workload",
        "option",
        "resolved",
        "memory",
        "exposure",
        "container",
    },
}


def flag_field(flag: str) -> str:
    """Return the field of a flag as typed: ``--max-num-seqs`` is ``resolved.flag.max-num-seqs``."""
    return f"resolved.flag.{flag.lstrip('-')}"


def env_field(name: str) -> str:
    """Return the field of an environment variable."""
    return f"resolved.env.{name}"


@cache
def find_field(name: str) -> Field | None:
    """Return the field, a member of the flag and variable families included, or ``None``."""
    known = FIELDS.get(name)
    if known is None and _FAMILY.match(name):
        return Field(name, FieldType.TEXT, "flag or variable of the server")
    return known


def nearest_field(name: str) -> str | None:
    """Return the listed field that looks most like ``name``."""
    near = difflib.get_close_matches(name, FIELDS, n=1)
    return near[0] if near else None


def readable(pass_: Pass, field: str) -> bool:
    """Say whether a rule of this pass may read the field."""
    if field in _COMPUTED:
        return all(readable(pass_, source) for source in _COMPUTED[field][0])
    return field.partition(".")[0] in _READS[pass_]


def is_family(field: str) -> bool:
    """Say whether the field is a flag or a variable."""
    return field.startswith(("resolved.flag.", "resolved.env."))


def sources_of(field: str) -> tuple[str, ...]:
    """Return the facts that a field is read from: itself, or what it is computed from."""
    return _COMPUTED[field][0] if field in _COMPUTED else (field,)


def lookup(facts: Mapping[str, FactValue], field: str) -> FactValue | None:
    """Return the fact or what is computed from known facts; ``None`` is unknown."""
    value = facts.get(field)
    if value is not None or field not in _COMPUTED:
        return value
    sources, function = _COMPUTED[field]
    arguments = [facts.get(source) for source in sources]
    for source, argument in zip(sources, arguments, strict=True):
        if argument is None and source not in _MAY_BE_UNKNOWN:
            return None
    return function(*arguments)
