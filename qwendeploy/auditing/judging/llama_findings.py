"""Options that llama-server rejects or runs slowly."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qwendeploy.auditing.judging.findings import Finding
from qwendeploy.auditing.reading.text import Place
from qwendeploy.auditing.understanding.llama_settings import (
    FORK_CACHE_TYPES,
    LlamaSetting,
    LlamaSettings,
)
from qwendeploy.auditing.understanding.understand import Understood
from qwendeploy.engines.llama_cpp.flags import nearest_llama_flag
from qwendeploy.image_names import image_name

OLDEST_BUILD = 9246
"""The oldest build in the tables; an unknown build is assumed to be at least this new."""
LAST_SPLIT_GUARD = 9246
"""The last known build that rejects a quantized cache with --split-mode tensor (llama.cpp pull
request 23792 lifted this)."""
_VLLM_NAMES = {
    "--max-model-len": "--ctx-size",
    "--max-num-seqs": "--parallel",
    "--served-model-name": "--alias",
    "--tensor-parallel-size": "--split-mode tensor",
    "--kv-cache-dtype": "--cache-type-k and --cache-type-v",
    "--max-num-batched-tokens": "--batch-size",
    "--num-speculative-tokens": "--spec-draft-n-max",
    "--spec-tokens": "--spec-draft-n-max",
    "--download-dir": "LLAMA_CACHE in the environment",
}
_WITH_KERNELS = {"f16", "bf16", "q8_0", "q4_0"}
"""Cache types that the default CUDA build has attention kernels for, keys and values alike
(llama.cpp issue 28524)."""
_UNQUANTISED = {"f32", "f16", "bf16"}


def llama_findings(understood: Understood) -> Iterator[Finding]:
    """Yield options that llama-server rejects, and options without GPU kernels."""
    settings = understood.llama
    if settings is None:
        return
    build = image_name(understood.image or "").build
    pulled = image_name(understood.image or "").is_upstream
    for setting in settings.settings:
        yield from _of_setting(setting, settings, build, pulled=pulled)
    yield from _cache(understood, settings, build)
    yield from _image(understood)


def _of_setting(
    setting: LlamaSetting, settings: LlamaSettings, build: int | None, *, pulled: bool
) -> Iterator[Finding]:
    row = setting.row
    if row is None:
        if not settings.fork:
            yield _unknown(setting)
        return
    if setting.joined:
        yield Finding(
            "flag-and-value-in-one-argument",
            "error",
            setting.spelt,
            setting.place,
            f"llama-server does not accept {setting.spelt}=VALUE: error: invalid argument",
            f"{setting.spelt} {setting.value}",
            "fails_at_start",
        )
    if row.gone_from is not None and row.last_seen is not None and not settings.fork:
        yield from _removed(setting, row.last_seen, row.gone_from, build, pulled=pulled)
    elif not setting.symbolic and row.takes != "none":
        yield from _value(setting)


def _unknown(setting: LlamaSetting) -> Finding:
    name = setting.spelt
    near = _VLLM_NAMES.get(name.replace("_", "-")) or nearest_llama_flag(name, setting.value)
    text = f"llama-server has no {name}: error: invalid argument"
    if not name.startswith("-"):
        text = f"{name!r} is not the value of any option: error: invalid argument"
    return Finding(
        "unknown-flag" if name.startswith("-") else "stray-argument",
        "error",
        name,
        setting.place,
        text,
        f"use {near}" if near else "remove it",
        "fails_at_start",
    )


def _removed(
    setting: LlamaSetting, last_seen: int, gone_from: int, build: int | None, *, pulled: bool
) -> Iterator[Finding]:
    """Yield an option that newer builds reject: error if certain, warning or info otherwise."""
    if build is not None and build <= last_seen:
        return
    sure = gone_from <= (build or OLDEST_BUILD)
    row = setting.row
    successor = row.successor if row is not None else None
    yield Finding(
        "removed-flag",
        "error" if sure else ("warning" if pulled and build is None else "info"),
        setting.spelt,
        setting.place,
        f"{setting.spelt} was removed: b{last_seen} accepts it, b{gone_from} and later exit with "
        "an error",
        f"use {successor}" if successor else "remove it",
        "fails_at_start" if sure else None,
    )


def _value(setting: LlamaSetting) -> Iterator[Finding]:
    row, value = setting.row, setting.value
    assert row is not None
    problem, fix, stops = "", f"give {setting.spelt} a value", True
    if value is None:
        problem = "the value is missing: error: expected value for argument"
    elif row.chosen and (word := row.refused(value)) is not None:
        if FORK_CACHE_TYPES.match(value) and "cache" in row.flag:
            return
        told = ", ".join(row.values[:11])
        problem = f"{word!r} is not one of {told}"
        near = "on" if value.startswith("-") and "on" in row.values else row.nearest(word)
        fix = f"one of {told}" if near is None else f"{row.flag} {value.replace(word, near)}"
        if value.startswith("-"):
            fix = f"{row.flag} {near}" if near is not None else fix
            problem = f"it takes the next word as its value, but {problem}"
    elif row.takes in ("whole", "number"):
        digits = re.match(r"^[-+]?\d+(\.\d+)?", value)
        whole = digits is not None and digits[0] == value
        if digits is None:
            problem = f"{value!r} is not a number: llama-server exits"
        elif not whole and row.takes == "whole" and not re.fullmatch(r"[-+]?[\d.]+", value):
            stops = False
            problem = f"llama-server reads {value!r} as {digits[0]}: it does not accept suffixes"
            fix = f"{row.flag} {_meant(value) or 'without a suffix'}"
    if problem:
        yield Finding(
            "bad-flag-value",
            "error",
            setting.spelt,
            setting.place,
            problem,
            fix,
            "fails_at_start" if stops else "degraded",
        )


def _meant(value: str) -> str | None:
    match = re.fullmatch(r"(\d{1,9})([kKmM])i?[bB]?", value)
    if match is None:
        return None
    return str(int(match[1]) * {"k": 1024, "m": 1024**2}[match[2].lower()])


def _cache(understood: Understood, settings: LlamaSettings, build: int | None) -> Iterator[Finding]:
    keys = settings.last("--cache-type-k")
    values = settings.last("--cache-type-v")
    kinds = [(item.value if item is not None else None) or "f16" for item in (keys, values)]
    types = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"}
    if (
        settings.fork
        or any(item.symbolic for item in (keys, values) if item)
        or not set(kinds) <= types
    ):
        return
    place = (values or keys or settings.settings[0]).place if settings.settings else None
    if place is None:
        return
    attention = settings.text("--flash-attn") or "auto"
    if attention in ("off", "0", "disabled", "false") and kinds[1] not in _UNQUANTISED:
        yield Finding(
            "v-cache-needs-flash-attn",
            "error",
            f"--cache-type-v {kinds[1]}",
            place,
            "a quantized V cache needs flash attention, which is off: llama-server cannot create "
            "the context",
            "--flash-attn on",
            "fails_at_start",
        )
        return
    quantised = set(kinds) - _UNQUANTISED
    if not quantised:
        return
    if settings.text("--split-mode") == "tensor" and build and build <= LAST_SPLIT_GUARD:
        yield Finding(
            "split-tensor-quantised-cache",
            "error",
            "--split-mode tensor",
            place,
            f"b{build} does not support a quantized cache with --split-mode tensor",
            "--cache-type-k f16 --cache-type-v f16, or a build from June 2026 or later",
            "fails_at_start",
        )
    yield from _kernels(understood, settings, kinds, place)


def _kernels(
    understood: Understood, settings: LlamaSettings, kinds: list[str], place: Place
) -> Iterator[Finding]:
    """Yield cache types without attention kernels on CUDA: attention then runs on the CPU."""
    if kinds[0] == kinds[1] and kinds[0] in _WITH_KERNELS:
        return
    if understood.context.vendor != "nvidia" or settings.text("--n-gpu-layers") == "0":
        return
    own = image_name(understood.image or "").is_upstream
    kind = kinds[0] if kinds[0] in _WITH_KERNELS - _UNQUANTISED else "q8_0"
    yield Finding(
        "cache-types-unlike",
        "warning" if own else "info",
        f"--cache-type-k {kinds[0]} --cache-type-v {kinds[1]}",
        place,
        "the default CUDA build has attention kernels only where keys and values have the same "
        "type (f16, bf16, q8_0 or q4_0); otherwise attention runs on the CPU"
        + ("" if own else ", unless built with -DGGML_CUDA_FA_ALL_QUANTS=ON"),
        f"--cache-type-k {kind} --cache-type-v {kind}",
        "degraded" if own else None,
    )


_ACCELERATED = re.compile(r"cuda|rocm|vulkan|intel|sycl|musa|cann|openvino|hip", re.IGNORECASE)


def _image(understood: Understood) -> Iterator[Finding]:
    """Yield the project's CPU image in a container that has GPUs."""
    container = understood.launch.container
    name = image_name(understood.image or "")
    image, tag = name.repository, name.tag or ""
    if container is None or container.image is None or not name.is_upstream:
        return
    cards = container.gpus is None or container.gpus.passed
    if _ACCELERATED.search(tag) or not tag.startswith(("server", "full", "light")) or not cards:
        return
    if understood.context.machine is None or not understood.context.machine.gpus:
        return
    tag_of = {"nvidia": "cuda", "amd": "rocm", "intel": "intel"}.get(understood.context.vendor)
    yield Finding(
        "image-without-cuda",
        "warning",
        f"image {understood.image}",
        container.image.place,
        f"the tag {tag} is the CPU build: it does not use the GPUs, whatever --n-gpu-layers is",
        f"{image}:{tag.partition('-')[0]}-{tag_of or 'vulkan'}",
        "degraded",
    )
