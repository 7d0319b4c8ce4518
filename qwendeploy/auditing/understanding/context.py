"""What is known beside the launch: the machine, the engine installed there, what is sent to it.

``machine.yaml`` may be a machine document, or a description of a few lines: ``gpu``, ``count``,
``vram_mib``, ``driver``, ``interconnect``, ``os``, ``arch``, ``cards``, ``unified_memory_gib``,
``vllm_version``, ``p2p``, ``display``, ``max_context``, ``content``, ``tools``, ``vision``,
``files_present``, ``container_runtime``, ``hf_cache``, ``network``; free text under ``workload``
and ``notes`` is searched for the same facts where the keys do not say them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from qwendeploy.auditing.reading.text import read_text
from qwendeploy.documents import Gpu, Machine
from qwendeploy.errors import UserError
from qwendeploy.hardware.memory import serving_memory_mib
from qwendeploy.tables.gpus import GpuModel, find_gpu

_INTERCONNECTS = ("nvlink", "pcie", "unified", "none")
_SYSTEMS = ("linux", "wsl2", "windows", "container")
_DESCRIPTION_KEYS = {"gpu", "cards", "gpus"}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s?k\b", re.IGNORECASE)
_ARCHES = {"x86_64": "linux-x86_64", "amd64": "linux-x86_64", "aarch64": "linux-aarch64"}


@dataclass(frozen=True)
class Hints:
    """What somebody said of the use; ``None`` is not said."""

    max_context: int | None = None
    content: Literal["agent", "code"] | None = None
    tools: bool | None = None
    vision: bool | None = None
    files_present: str | None = None
    runtime_passes_gpus: bool | None = None
    """The container runtime hands the cards in by default; ``None`` is not known."""
    cache_on_host: bool | None = None
    open_network: bool | None = None
    display_gib: float | None = None
    """Memory that a desktop was said to hold on the card."""
    p2p_hangs: bool = False
    """Transfers between the cards were said to hang."""
    p2p_redirected: bool = False
    """The host was said to send transfers between cards through its IOMMU."""


@dataclass(frozen=True)
class Context:
    """Everything that the launch itself does not say. ``machine`` is ``None`` if not known."""

    machine: Machine | None = None
    engine_version: str | None = None
    """Of the engine installed on the host, for launches without an image."""
    hints: Hints = field(default_factory=Hints)
    vendor: str = "nvidia"
    local: bool = False
    """The launch's paths are those of this computer and may be looked at."""


def read_context(path: Path) -> Context | None:
    """Return the context that a description file gives, ``None`` if it is another kind of file.

    Raises:
        UserError: the file cannot be read, is not YAML, or a value is of the wrong kind.
    """
    if path.is_dir():
        return None
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        content = YAML(typ="safe", pure=True).load(read_text(path))
    except YAMLError as problem:
        raise UserError(f"not valid YAML: {problem}".splitlines()[0], where=str(path)) from None
    if not isinstance(content, dict) or not _DESCRIPTION_KEYS & content.keys():
        return None
    if "schema" in content or "machine" in content:
        return None
    return described(content, str(path))


def described(content: dict[str, Any], origin: str = "machine") -> Context:
    """Return the context of a description. Raises UserError as ``read_context``."""
    machine, vendor = _machine(content, origin)
    said = " ".join(str(content.get(key) or "") for key in ("workload", "notes"))
    return Context(
        machine=machine,
        engine_version=str(content["vllm_version"]) if content.get("vllm_version") else None,
        hints=_hints(content, said),
        vendor=vendor,
    )


def _machine(content: dict[str, Any], origin: str) -> tuple[Machine, str]:
    cards = content.get("cards") or [content] * _whole(content.get("count", 1), origin, "count")
    gpus = []
    vendors = set()
    said = str(content.get("notes") or "")
    display = _display(content, said)
    shared = False
    for index, card in enumerate(cards):
        gpu, model = _card(card, origin, index, display)
        vendors.add(_vendor(gpu.name or "", model.vendor if model else None))
        shared |= model is not None and model.unified
        gpus.append(gpu)
    unified = content.get("unified_memory_gib")
    system = str(content.get("os") or "unknown").lower()
    interconnect = str(content.get("interconnect") or "unknown").lower()
    if interconnect not in _INTERCONNECTS:
        interconnect = "unknown"
    machine = Machine(
        gpus=tuple(gpus),
        count=len(gpus),
        driver=_driver(content.get("driver")),
        interconnect=cast(Any, interconnect if len(gpus) > 1 or unified else "none"),
        p2p=_stated_p2p(content, said, interconnect),
        unified_memory=shared or unified is not None or interconnect == "unified",
        host_memory_mib=round(float(unified) * 1024) if unified else None,
        os=cast(Any, system if system in _SYSTEMS else "unknown"),
        platform=_ARCHES.get(str(content.get("arch") or "x86_64"), "unknown"),
        usable=True,
        usable_gpu_indices=tuple(range(len(gpus))),
        chosen_gpu_indices=tuple(range(len(gpus))),
        origin="stated",
    )
    return machine, vendors.pop() if len(vendors) == 1 else "nvidia"


def _card(
    card: dict[str, Any], origin: str, index: int, display: bool | None
) -> tuple[Gpu, GpuModel | None]:
    """Return a described card and its model; a slice has no memory but what is stated."""
    name = str(card.get("gpu") or "")
    memory = card.get("vram_mib")
    sliced = _SLICE.search(name) is not None
    whole = _SLICE.sub("", name)
    model = find_gpu(whole, memory_mib=None if sliced else memory) if name else None
    memory_mib = model.memory_mib if model and not sliced else None
    if memory:
        memory_mib = _whole(memory, origin, "vram_mib")
    gpu = Gpu(
        index=index,
        name=name or None,
        model=model.name if model else None,
        memory_mib=memory_mib,
        compute_capability=model.compute_capability if model else None,
        compute_capability_by_name=model is not None,
        mig=sliced,
        display=display,
    )
    return gpu, model


def card_sizes(machine: Machine) -> list[int]:
    """Return what each card offers a server, MiB; 0 if unknown.

    Of a card in MIG mode that is its slice; a described slice states its memory as the card's.
    """
    return [
        (serving_memory_mib(machine, gpu) or (gpu.memory_mib or 0, ""))[0] for gpu in machine.gpus
    ]


def _whole(value: object, origin: str, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 10**8:
        raise UserError(f"{key}: {value!r} is not a positive whole number", where=origin)
    return value


def _driver(value: object) -> str | None:
    text = str(value or "")
    return text if re.match(r"^\d{3}(\.\d+)*$", text) else None


def _vendor(name: str, known: str | None) -> str:
    if known:
        return known.lower()
    if re.search(r"\b(AMD|Radeon|Instinct|MI\d{2,3}X?)\b", name):
        return "amd"
    if re.search(r"\b(Ascend|910[ABC]\d?|TPU|Trainium|Inferentia|Apple|MTT)\b", name):
        return "other"
    return "intel" if re.search(r"\b(Intel|Arc|Gaudi)\b", name) else "nvidia"


_SLICE = re.compile(r"\s+MIG\b.*$", re.IGNORECASE)
"""What nvidia-smi -L writes behind a card's name for a slice of it: ``MIG 3g.40gb``."""
_DESKTOP = re.compile(r"\b(desktop|monitors?|displays?|xorg|gnome|kde|wayland)\b", re.IGNORECASE)
_NO_DESKTOP = re.compile(
    r"\b(headless|no (?:desktop|monitor|display)|without (?:a )?(?:desktop|monitor|display)"
    r"|on (?:another|the other|a second|an integrated) (?:card|gpu)|on the (?:igpu|cpu|onboard)\b)",
    re.IGNORECASE,
)
_GIB = re.compile(r"(\d+(?:\.\d+)?)\s?Gi?B\b", re.IGNORECASE)


def _display(content: dict[str, Any], said: str) -> bool | None:
    """Say whether a desktop runs on the cards: as stated, else as the notes say."""
    stated = content.get("display")
    if isinstance(stated, bool):
        return stated
    if _NO_DESKTOP.search(said):
        return False
    return True if _DESKTOP.search(said) else None


def _display_gib(content: dict[str, Any], said: str) -> float | None:
    """Return the memory that the notes say a desktop holds: the size in the same sentence."""
    if _display(content, said) is not True:
        return None
    told = [part for part in re.split(r"[.;]\s", said) if _DESKTOP.search(part)]
    sizes = [float(size) for part in told for size in _GIB.findall(part)]
    return next((size for size in sizes if size < _LARGEST_DESKTOP), None)


_LARGEST_DESKTOP = 6.0
"""A size above this in the notes is the card's, not the desktop's."""


def _stated_p2p(
    content: dict[str, Any], said: str, interconnect: str
) -> Literal["yes", "no", "unknown"]:
    stated = content.get("p2p")
    if stated is None:
        return _p2p(said, interconnect)
    text = {True: "yes", False: "no"}.get(stated, str(stated))
    return "yes" if text == "yes" else ("no" if text == "no" else "unknown")


def _p2p(said: str, interconnect: str) -> Literal["yes", "no", "unknown"]:
    text = said.lower()
    if re.search(r"no p2p|no (?:nvlink|bridge)[^.;]*no p2p|p2p (?:is )?(?:broken|off)|hang", text):
        return "no"
    if interconnect == "nvlink" or re.search(r"p2p (?:works|is on|between)", text):
        return "yes"
    return "unknown"


_P2P_HANGS = re.compile(
    r"(?:p2p|peer|transfers?|all-?reduce|nccl)\b[^.;]*"
    r"(?<!no )(?<!not )(?<!never )\b(?:hangs?\b(?! off)|stalls?\b|broken)"
)
_IOMMU = re.compile(r"\b(?:iommu|amd-vi|vt-d)\b[^.;,]*\btranslat")
_ACS = re.compile(r"\bacs\b[^.;]{0,20}\b(?:on|enabled|active)\b")


def _hints(content: dict[str, Any], said: str) -> Hints:
    text = said.lower()
    workload = str(content.get("workload") or "")
    lengths = [float(match) for match in _LENGTH.findall(workload or said)]
    agent = "agent" in text
    runtime = str(content.get("container_runtime") or "")
    cache = content.get("hf_cache")
    network = content.get("network")
    stated = content.get("content")
    tools, vision = content.get("tools"), content.get("vision")
    present = content.get("files_present")
    if isinstance(present, list):
        present = " ".join([*map(str, present), "only"])
    return Hints(
        max_context=content.get("max_context") or (round(max(lengths) * 1024) if lengths else None),
        content=cast(Any, stated)
        or ("agent" if agent else ("code" if re.search(r"\bcod(?:e|ing)\b", text) else None)),
        tools=tools if isinstance(tools, bool) else (True if agent or "tool" in text else None),
        vision=vision
        if isinstance(vision, bool)
        else (True if re.search(r"\b(image|vision|screenshot)s?\b", text) else None),
        files_present=str(present) if present else None,
        runtime_passes_gpus=("nvidia" in runtime and "runc" not in runtime) if runtime else None,
        cache_on_host=None if cache is None else "already" in str(cache).lower(),
        open_network=None if network is None else True,
        display_gib=_display_gib(content, str(content.get("notes") or "")),
        p2p_hangs=_P2P_HANGS.search(text) is not None,
        p2p_redirected=_IOMMU.search(text) is not None and _ACS.search(text) is not None,
    )
