"""llama-server launches: does the file with its cache fit, and what does each slot get."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from qwendeploy.auditing.findings import Finding
from qwendeploy.auditing.text import Place, Word
from qwendeploy.auditing.understand import Understood
from qwendeploy.documents import Option
from qwendeploy.documents.option import KvDtype
from qwendeploy.errors import UserError
from qwendeploy.models.gguf_memory import GgufMemory, gguf_memory, largest_context
from qwendeploy.planning.gguf import CACHE_TYPES, PHYSICAL_BATCH, SMALL_SLOT
from qwendeploy.tables.checkpoints import checkpoint_rows
from qwendeploy.units import GIB

_LONG = {
    "-m": "--model",
    "-hf": "--hf-repo",
    "-c": "--ctx-size",
    "-np": "--parallel",
    "-ctk": "--cache-type-k",
    "-ctv": "--cache-type-v",
    "-ngl": "--n-gpu-layers",
    "--gpu-layers": "--n-gpu-layers",
    "-ub": "--ubatch-size",
}
ALL_LAYERS = 65
"""64 layers and the output: with fewer on the GPU the rest stays in host memory."""
TEXT_PARAMETERS = 26.895e9
"""Parameters that a GGUF of this model holds (text part; the image projector is a file apart)."""
_BITS = {
    "q8_0": 8.5,
    "q6_k": 6.56,
    "q5_k": 5.6,
    "q5_0": 5.5,
    "q4_k": 4.85,
    "q4_0": 4.55,
    "iq4": 4.4,
    "q3_k": 3.95,
    "iq3": 3.5,
    "q2_k": 3.0,
    "iq2": 2.6,
    "bf16": 16.0,
    "f16": 16.0,
}
"""Bits a weight of llama.cpp's formats, mixtures included (llama.cpp quantize documentation)."""
FREE_GIB = 0.3
_OUR_CACHES: dict[str, KvDtype] = {
    **{theirs: ours for ours, theirs in CACHE_TYPES.items()},
    "f16": "bf16",
    "bf16": "bf16",
}
"""llama.cpp's cache types that the design has a word for."""


@dataclass(frozen=True)
class GgufLaunch:
    """The options of a llama-server that decide its memory."""

    options: Mapping[str, Word]

    def text(self, name: str) -> str | None:
        """Return an option's value."""
        word = self.options.get(name)
        return word.text if word is not None else None

    def number(self, name: str, default: int) -> int | None:
        """Return a whole number, the default where the option is absent, ``None`` if it is not."""
        text = self.text(name)
        if text is None:
            return default
        return int(text) if re.fullmatch(r"\d+", text) else None


def read_gguf(arguments: tuple[Word, ...]) -> GgufLaunch:
    """Return the options of llama-server's arguments."""
    options: dict[str, Word] = {}
    for index, word in enumerate(arguments):
        if not re.match(r"^-{1,2}[A-Za-z]", word.text):
            continue
        name, equals, value = word.text.partition("=")
        name = _LONG.get(name, name)
        if equals:
            options[name] = Word(value, word.place)
        elif index + 1 < len(arguments):
            options[name] = arguments[index + 1]
    return GgufLaunch(options)


def file_gib(name: str) -> float | None:
    """Return what a GGUF of this model takes on the card, by the format in its name.

    ``None`` if the name does not tell. Where it is known, the part that stays on the host (the
    embedding) is not counted.
    """
    text = name.lower().replace("-", "_")
    best: tuple[int, float] | None = None
    for row in checkpoint_rows():
        if not row.quant.startswith("gguf-") or row.gib_on_disk is None:
            continue
        form = row.quant.removeprefix("gguf-").removeprefix("i1-").replace("-", "_")
        if form in text and (best is None or len(form) > best[0]):
            best = len(form), row.gib_loaded or row.gib_on_disk
    if best is not None:
        return best[1]
    bits = next((bits for form, bits in _BITS.items() if form in text), None)
    return TEXT_PARAMETERS * bits / 8 / GIB if bits is not None else None


def gguf_option(understood: Understood) -> Option | None:
    """Return a llama-server as an option of the design.

    ``None`` without stated weights and context, or with a cache type that the design has no word
    for.
    """
    launch = read_gguf(understood.launch.arguments)
    context, slots = launch.number("--ctx-size", 0), launch.number("--parallel", 1)
    batch = launch.number("--ubatch-size", PHYSICAL_BATCH)
    checkpoint, quant = _named(launch)
    keys = _OUR_CACHES.get(launch.text("--cache-type-k") or "f16")
    values = _OUR_CACHES.get(launch.text("--cache-type-v") or "f16")
    if not checkpoint or not context or not slots or keys is None or keys != values:
        return None
    by_tensors = launch.text("--split-mode") in ("tensor", "row")
    return Option(
        engine="llama.cpp",
        image=understood.image,
        engine_version=understood.engine_version,
        fork=understood.fork,
        checkpoint=checkpoint,
        quant=quant,
        kv_cache_dtype=keys,
        tp=(understood.gpu_count or 1) if by_tensors else 1,
        max_model_len=context // slots,
        max_num_seqs=slots,
        max_num_batched_tokens=batch,
    )


def _named(launch: GgufLaunch) -> tuple[str, str]:
    """Return repository or path of the weights and their format, ``gguf`` where it is not told."""
    repository, _, tag = (launch.text("--hf-repo") or "").partition(":")
    name = launch.text("--model") or repository
    known = {row.quant for row in checkpoint_rows() if row.name == repository}
    if tag:
        return name, f"gguf-{tag.lower()}"
    if len(known) == 1:
        return name, known.pop()
    file = name.lower().replace("-", "_")
    forms = {row.quant for row in checkpoint_rows() if row.quant.startswith("gguf-")}
    told = [form for form in forms if form[5:].replace("-", "_") in file]
    return name, max(told, key=len, default="gguf")


def gguf_findings(understood: Understood) -> Iterator[Finding]:
    """Yield whether a llama-server fits its cards, and what its slots share."""
    if understood.launch.engine != "llama.cpp":
        return
    launch = read_gguf(understood.launch.arguments)
    context, slots = launch.number("--ctx-size", 0), launch.number("--parallel", 1)
    if not context or not slots:
        return
    place = launch.options["--ctx-size"].place
    if slots > 1:
        small = context // slots < SMALL_SLOT
        yield Finding(
            "slots-share-context",
            "warning" if small else "info",
            f"--ctx-size {context} with {slots} slots",
            place,
            f"the slots share the context: {context // slots:,} tokens each"
            + (", which a single answer with its reasoning fills" if small else ""),
            f"--ctx-size {context * slots} gives every slot {context:,}",
            "degraded" if small else None,
        )
    yield from _fit(understood, launch, context, slots, place)


def _fit(
    understood: Understood, launch: GgufLaunch, context: int, slots: int, place: Place
) -> Iterator[Finding]:
    machine = understood.context.machine
    name = launch.text("--model") or launch.text("--hf-repo") or ""
    size = file_gib(name)
    layers = launch.number("--n-gpu-layers", ALL_LAYERS)
    if machine is None or size is None or layers is None or layers < ALL_LAYERS:
        return
    sizes = [gpu.memory_mib or machine.host_memory_mib or 0 for gpu in machine.gpus]
    count = understood.gpu_count or len(sizes)
    memory_mib = float(sum(sorted(sizes)[:count]))
    if not memory_mib:
        return
    keys, values = launch.text("--cache-type-k") or "f16", launch.text("--cache-type-v") or "f16"
    try:
        need = gguf_memory(
            size, context=context, slots=slots, cache_type_k=keys, cache_type_v=values
        )
    except UserError as problem:
        yield _bad_cache_type(launch, problem, place)
        return
    free = memory_mib / 1024 - FREE_GIB
    if need.total.low <= free and need.total.high <= free:
        return
    longest = largest_context(
        size, memory_mib=memory_mib, slots=slots, cache_type_k=keys, cache_type_v=values
    )
    yield _too_large(need, free, longest, context, place)


def _too_large(need: GgufMemory, free: float, longest: int, context: int, place: Place) -> Finding:
    sure = need.total.low > free
    fix = f"--ctx-size {longest}" if longest else "a smaller quantisation, or fewer -ngl layers"
    return Finding(
        "gguf-does-not-fit",
        "error" if sure else "warning",
        f"--ctx-size {context}",
        place,
        f"weights {need.weights_gib:.1f}, cache {need.cache_gib + need.states_gib:.1f} and buffers "
        f"{need.workspace.low:.1f} to {need.workspace.high:.1f} GiB against {free:.1f} GiB",
        fix,
        "fails_at_start" if sure else None,
    )


def _bad_cache_type(launch: GgufLaunch, problem: UserError, place: Place) -> Finding:
    word = launch.options.get("--cache-type-k") or launch.options.get("--cache-type-v")
    return Finding(
        "bad-flag-value",
        "error",
        "--cache-type-k/-v",
        word.place if word is not None else place,
        problem.what,
        problem.hint or "use q8_0",
        "fails_at_start",
    )
