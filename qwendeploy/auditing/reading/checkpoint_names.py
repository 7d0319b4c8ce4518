"""Properties of a checkpoint from its name or path: model, weight format, size, contents."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from qwendeploy.auditing.reading.launch import mount_of
from qwendeploy.auditing.reading.text import Word
from qwendeploy.family.names import MODELS
from qwendeploy.tables.checkpoints import CheckpointRow, checkpoint_rows
from qwendeploy.tables.memory_budget import budget_rows

_MODEL = re.compile(
    r"qwen[-_ ]?3[._]?([0-9])?[-_ ](\d+(?:\.\d+)?b(?:-a\d+(?:\.\d+)?b)?)", re.IGNORECASE
)
_OTHER_FAMILY = re.compile(
    r"(?:^|[-_./])(llama|codellama|mistral|mixtral|ministral|devstral|codestral|gemma|deepseek|phi"
    r"|gpt-oss|kimi|minimax|granite|nemotron|falcon|yi|command-r|internlm|internvl|olmo|hunyuan"
    r"|ernie|smollm|seed-oss|jamba|opt|bloom|(?:chat)?glm|qwen(?=-\d)|qwen[12](?:\.5)?)"
    r"(?=[-_.\d]|$)",
    re.IGNORECASE,
)
"""Families of models in names of repositories; a distilled 27B has its own name as well."""
_FORMATS = (
    (re.compile(r"nvfp4", re.I), "nvfp4"),
    (re.compile(r"auto-?round", re.I), "int4-autoround"),
    (re.compile(r"awq[-_ ]?6|6bit[-_]awq", re.I), "awq-6bit"),
    (re.compile(r"awq", re.I), "awq-4bit"),
    (re.compile(r"gptq[-_ ](?:int)?8|8bit.*gptq|gptq.*8[-_]?bit", re.I), "gptq-8bit"),
    (re.compile(r"gptq", re.I), "gptq-int4"),
    (re.compile(r"bnb|bitsandbytes", re.I), "bnb-4bit"),
    (re.compile(r"gguf", re.I), "gguf"),
    (re.compile(r"mxfp4", re.I), "mxfp4"),
    (re.compile(r"w8a8|int8", re.I), "int8"),
    (re.compile(r"w4a16|int4", re.I), "int4"),
    (re.compile(r"fp8", re.I), "fp8"),
)
_ONLINE = {"fp8": "fp8", "bitsandbytes": "bnb-4bit", "experts_int8": "bf16"}
"""``--quantization`` values that quantise a 16-bit checkpoint while it loads."""
_TYPICAL_GIB = {
    "bf16": (51.75, 0.3),
    "fp8": (28.8, 0.4),
    "int8": (28.8, 1.5),
    "gptq-8bit": (28.8, 1.5),
    "int4-autoround": (18.1, 0.6),
    "int4": (18.5, 1.5),
    "mxfp4": (19.0, 2.0),
    "awq-4bit": (20.0, 2.0),
    "awq-6bit": (27.7, 1.0),
    "gptq-int4": (19.0, 2.0),
    "bnb-4bit": (18.0, 2.0),
    "nvfp4": (20.5, 2.5),
}
"""Size of a format's files and its half width over publishers, GiB (benchdata/checkpoints.csv and
arithmetic on 27.78 B parameters with embeddings, head, vision and MTP left in 16 bit)."""

_METHODS: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = (
    (re.compile(r"nvidia/.*nvfp4", re.I), frozenset({"modelopt"})),
    (re.compile(r"(unsloth|redhatai)/.*nvfp4", re.I), frozenset({"compressed-tensors"})),
    (re.compile(r"^cyankiwi/.*awq", re.I), frozenset({"compressed-tensors"})),
    (re.compile(r"nvfp4", re.I), frozenset({"modelopt", "compressed-tensors"})),
    (re.compile(r"auto-?round", re.I), frozenset({"auto-round", "inc", "gptq", "awq"})),
    (re.compile(r"gptq", re.I), frozenset({"gptq", "compressed-tensors", "auto-round"})),
    (re.compile(r"awq", re.I), frozenset({"awq", "compressed-tensors", "auto-round"})),
    (re.compile(r"^qwen/.*-fp8$", re.I), frozenset({"fp8"})),
)
"""What the configurations of a publisher or format name as their method, families taken as one
(vLLM: a method that is given has to be the checkpoint's own or convert it; club-3090 compose
single/nvfp4: modelopt on a compressed-tensors checkpoint is refused)."""
_NEEDS_OWN_FILES = frozenset({"awq", "gptq", "modelopt", "compressed-tensors", "auto-round"})
"""Methods that read scales which a 16-bit checkpoint does not have."""


@dataclass(frozen=True)
class NamedCheckpoint:
    """What is known of the weights."""

    name: str
    """As a repository where it is known as one, else the path as written."""
    model: str | None
    quant: str
    files_gib: float | None
    files_band_gib: float
    vision: bool | None
    mtp: bool | None
    forces_fp8_kv: bool
    third_party: bool
    """A hub repository of neither Qwen nor NVIDIA."""

    @property
    def like_27b(self) -> bool:
        """The memory model applies."""
        return self.model in MODELS


def refused_quantization(model: str, given: str) -> str | None:
    """Return why a repository does not support ``--quantization``, ``None`` if it may."""
    method = _method_family(given)
    for pattern, methods in _METHODS:
        if pattern.search(model):
            if method is None or method in methods:
                return None
            return f"the checkpoint is quantized with {' or '.join(sorted(methods))}, not {given}"
    if re.fullmatch(r"Qwen/Qwen3\.[568]-27B", model, re.I) and method in _NEEDS_OWN_FILES:
        return f"the checkpoint is 16-bit and has no {given} scales"
    return None


def _method_family(given: str) -> str | None:
    text = given.lower().replace("_", "-")
    for name in ("modelopt", "compressed-tensors", "auto-round", "gptq", "awq", "inc"):
        if text.startswith(name):
            return name
    return "fp8" if text == "fp8" else None


def is_path(model: str) -> bool:
    """Say whether a model is named by a path or a variable, not as a repository."""
    return model.startswith(("/", ".", "~", "$"))


def host_path(path: str, volumes: Iterable[Word]) -> str:
    """Return a container path as it is on the host; unchanged if no volume covers it."""
    best, answer = -1, path
    for volume in volumes:
        source, target = mount_of(volume.text)
        folder = target.rstrip("/")
        covers = target and (path == folder or path.startswith(f"{folder}/"))
        if covers and len(folder) > best:
            best, answer = len(folder), source.rstrip("/") + path[len(folder) :]
    return answer


def name_checkpoint(
    model: str, volumes: Iterable[Word] = (), quantization: str | None = None
) -> NamedCheckpoint:
    """Return what name, mounted folder and ``--quantization`` say of the weights."""
    local = is_path(model)
    text = host_path(model, volumes) if local else model
    row = _row(text, model)
    match = _MODEL.search(text)
    named = f"qwen3.{match[1]}-{match[2].lower()}" if match and match[1] else None
    if match and not match[1]:
        named = f"qwen3-{match[2].lower()}"
    if match is None and row is None and not local and _OTHER_FAMILY.search(model):
        named = model.rpartition("/")[2].lower()
    quant = row.quant if row is not None else _format(text, quantization)
    if row is not None and row.quant == "bf16" and quantization in _ONLINE:
        quant, row = _ONLINE[quantization], None
    size, band = _size(row, quant)
    owner = model.partition("/")[0].lower() if "/" in model and not local else ""
    return NamedCheckpoint(
        name=row.name if row is not None else model,
        model=named,
        quant=quant,
        files_gib=size,
        files_band_gib=band,
        vision=row.vision if row is not None else ("text" not in text.lower() or None),
        mtp=row.mtp if row is not None else None,
        forces_fp8_kv=quant == "nvfp4" and "nvidia" in text.lower(),
        third_party=bool(owner) and owner not in ("qwen", "nvidia", "$model"),
    )


def _row(text: str, model: str) -> CheckpointRow | None:
    rows = [row for row in checkpoint_rows() if row.role == "target" and row.engine == "vllm"]
    for row in rows:
        if row.name == model:
            return row
    base = text.rstrip("/").rsplit("/", 1)[-1].lower()
    owned = []
    for row in rows:
        owner, _, repository = row.name.lower().partition("/")
        if base in (f"{owner}-{repository}", f"{owner}_{repository}"):
            return row
        if base == repository:
            owned.append(row)
    # A folder named like several publishers' repositories tells the format, not the publisher.
    return owned[0] if len({row.gib_on_disk for row in owned}) == 1 else None


def _format(text: str, quantization: str | None) -> str:
    for pattern, quant in _FORMATS:
        if pattern.search(text):
            return quant
    told = {
        "auto_round": "int4-autoround",
        "auto-round": "int4-autoround",
        "awq": "awq-4bit",
        "awq_marlin": "awq-4bit",
        "gptq": "gptq-int4",
        "gptq_marlin": "gptq-int4",
        "modelopt_fp4": "nvfp4",
        "gguf": "gguf",
    } | _ONLINE
    return told.get(quantization or "", "bf16")


def _size(row: CheckpointRow | None, quant: str) -> tuple[float | None, float]:
    if row is not None and row.gib_on_disk is not None:
        return row.gib_on_disk, 0.0
    if row is not None:
        for budget in budget_rows():
            if budget.checkpoint == row.name:
                return budget.files_gib, 0.5
    typical = _TYPICAL_GIB.get(quant)
    return typical if typical is not None else (None, 0.0)
