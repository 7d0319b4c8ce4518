"""llama-server launches: does the file with its cache fit, and what does each slot get.

Facts of the server: the layers are offloaded as stated, or as many as fit where they are not
stated (``--fit``, on by default in every build that knows this model); the context is split over
the slots unless the cache is unified, which it is where the slots are not stated either
(llama.cpp ``tools/server/README.md``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qwendeploy.auditing.judging.findings import Finding
from qwendeploy.auditing.reading.text import Place
from qwendeploy.auditing.understanding.gguf_files import file_gib, only_form
from qwendeploy.auditing.understanding.llama_settings import FORK_CACHE_TYPES, LlamaSettings
from qwendeploy.auditing.understanding.understand import Understood
from qwendeploy.documents import Option
from qwendeploy.documents.option import KvDtype
from qwendeploy.engines.llama_cpp.memory import (
    CACHE_TYPES,
    PHYSICAL_BATCH,
    GgufMemory,
    LlamaServer,
    reserve_gib,
)
from qwendeploy.errors import UserError
from qwendeploy.evidence.memory_view import Slots
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.planning.gguf import SMALL_SLOT
from qwendeploy.tables.checkpoints import checkpoint_rows

LAYERS, NATIVE = QWEN_27B.layers, QWEN_27B.native_context
AUTO_SLOTS = 4
"""Slots where none are stated; they share the whole context."""
BY_TENSORS = ("tensor", "row")
"""Ways of splitting that put a part of every layer on every card."""
LEAST_FITTED = 4096
"""Tokens down to which the server shortens a context that is not stated (``--fit-ctx``)."""
_OUR_CACHES: dict[str, KvDtype] = {
    **{theirs: ours for ours, theirs in CACHE_TYPES.items()},
    "f16": "bf16",
    "bf16": "bf16",
}
"""llama.cpp's cache types that the design has a word for."""


@dataclass(frozen=True)
class GgufLaunch:
    """What decides the memory of a llama-server; ``None`` is not known."""

    settings: LlamaSettings
    context: int | None
    """Tokens stated, 0 where the server chooses."""
    slots: int | None
    unified: bool
    layers: int | None
    """Layers on the cards, ``LAYERS`` at most."""
    fitted: bool
    """The server lowers what is not stated until it fits."""
    size_gib: float | None
    cache_types: tuple[str, str]

    @property
    def place(self) -> Place | None:
        """Where the context stands."""
        setting = self.settings.last("--ctx-size")
        return setting.place if setting is not None else None

    @property
    def slot_context(self) -> int | None:
        """Return the tokens of one request."""
        if not self.context or not self.slots:
            return None
        return self.context if self.unified else self.context // self.slots


def read_gguf(settings: LlamaSettings) -> GgufLaunch:
    """Return what the settings of a llama-server make of its memory."""
    stated = settings.last("--parallel") is not None
    slots = settings.whole("--parallel", AUTO_SLOTS)
    if slots is not None and slots < 1:
        slots, stated = AUTO_SLOTS, False
    unified = settings.on("--kv-unified")
    setting = settings.last("--n-gpu-layers")
    text = (settings.text("--n-gpu-layers") or "auto").lower()
    automatic = setting is None or text in ("auto", "-1")
    layers = LAYERS if automatic or text in ("all", "-2") else settings.whole("--n-gpu-layers", 0)
    repository, _, tag = (settings.text("--hf-repo") or "").partition(":")
    name = settings.text("--model") or settings.text("--hf-file") or tag
    name = name or only_form(repository) or "Q4_K_M"
    named = settings.last("--model") or settings.last("--hf-repo") or settings.last("--hf-file")
    return GgufLaunch(
        settings=settings,
        context=settings.whole("--ctx-size", 0),
        slots=slots,
        unified=unified if unified is not None else not stated,
        layers=None if layers is None else max(0, min(layers, LAYERS)),
        fitted=automatic and settings.text("--fit") != "off",
        size_gib=file_gib(name, repository) if named is not None else None,
        cache_types=(
            _cache_type(settings, "--cache-type-k"),
            _cache_type(settings, "--cache-type-v"),
        ),
    )


def _cache_type(settings: LlamaSettings, flag: str) -> str:
    """Return the cache type, of a misspelt one the type that was meant: it decides the memory."""
    setting = settings.last(flag)
    kind = settings.text(flag) or "f16"
    if setting is None or setting.row is None or kind in setting.row.values:
        return kind
    return kind if FORK_CACHE_TYPES.match(kind) else setting.row.nearest(kind) or "f16"


def gguf_option(understood: Understood) -> Option | None:
    """Return a llama-server as an option of the design.

    ``None`` without stated weights and context, or with a cache type that the design has no word
    for.
    """
    if understood.llama is None:
        return None
    launch = read_gguf(understood.llama)
    batch = launch.settings.whole("--ubatch-size", PHYSICAL_BATCH)
    checkpoint, quant = _named(launch.settings)
    keys, values = (_OUR_CACHES.get(kind) for kind in launch.cache_types)
    if not checkpoint or not launch.context or not launch.slots or keys is None or keys != values:
        return None
    by_tensors = launch.settings.text("--split-mode") in BY_TENSORS
    return Option(
        engine="llama.cpp",
        image=understood.image,
        engine_version=understood.engine_version,
        fork=understood.fork,
        checkpoint=checkpoint,
        quant=quant,
        kv_cache_dtype=keys,
        tp=(understood.gpu_count or 1) if by_tensors else 1,
        max_model_len=launch.slot_context,
        max_num_seqs=launch.slots,
        max_num_batched_tokens=batch,
    )


def _named(settings: LlamaSettings) -> tuple[str, str]:
    """Return repository or path of the weights and their format, ``gguf`` where it is not told."""
    repository, _, tag = (settings.text("--hf-repo") or "").partition(":")
    name = settings.text("--model") or repository
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
    """Yield whether a llama-server fits its GPUs, and whether its slots get enough context."""
    if understood.llama is None:
        return
    launch = read_gguf(understood.llama)
    place = launch.place or understood.launch.place
    context, slots = launch.context, launch.slots
    if context and slots and slots > 1 and not launch.unified:
        small = context // slots < SMALL_SLOT
        yield Finding(
            "slots-share-context",
            "warning" if small else "info",
            f"--ctx-size {context} with {slots} slots",
            place,
            f"the slots share the context: {context // slots:,} tokens each"
            + (", too short for one response with reasoning" if small else ""),
            f"--ctx-size {context * slots} gives every slot {context:,}",
            "degraded" if small else None,
        )
    if context is not None and slots is not None:
        yield from _length(launch, place)
        yield from _fit(understood, launch, place)


def _length(launch: GgufLaunch, place: Place) -> Iterator[Finding]:
    length = launch.slot_context or 0
    if length <= NATIVE or launch.settings.text("--rope-scaling") == "yarn":
        return
    yield Finding(
        "context-above-native",
        "warning",
        f"--ctx-size {launch.context}",
        place,
        f"llama-server limits a slot to the model's native {NATIVE:,} tokens; the rest of "
        "the cache is allocated and never used",
        f"--ctx-size {NATIVE}, or --rope-scaling yarn with --rope-scale and "
        f"--yarn-orig-ctx {NATIVE}",
        "wasteful",
    )


def _cards(understood: Understood, settings: LlamaSettings) -> tuple[float, int]:
    """Return what each card in use gives the server on average, GiB, and how many there are."""
    machine = understood.context.machine
    if machine is None:
        return 0.0, 0
    sizes = [gpu.memory_mib or machine.host_memory_mib or 0 for gpu in machine.gpus]
    count = len(sizes) if understood.gpu_count is None else understood.gpu_count
    devices = settings.text("--device")
    if settings.text("--split-mode") == "none":
        count = min(count, 1)
    elif devices and devices != "none":
        count = min(count, len(devices.split(",")))
    used = sorted(sizes)[:count]
    if not used or not all(used):
        return 0.0, count
    # Layers are split by what each card has free; a split by tensors is held back by the smallest.
    each = used[0] if settings.text("--split-mode") in BY_TENSORS else sum(used) / len(used)
    display = any(bool(gpu.display) for gpu in machine.gpus)
    return each / 1024 - reserve_gib(machine, display), count


_HELD_BACK = ("--override-tensor", "--n-cpu-ffn", "--cpu-moe", "--rpc")
"""Options with which a part of the weights lies elsewhere, by rules that are not followed here."""


def _server(launch: GgufLaunch, context: int, cards: int, share: float = 1.0) -> LlamaServer:
    """Return what decides the memory of a share of the layers."""
    settings = launch.settings
    images = settings.images if settings.on("--mmproj-offload") is not False else "off"
    return LlamaServer(
        (launch.size_gib or 0.0) * share,
        cards=max(1, cards),
        context=0 if settings.on("--kv-offload") is False else round(context * share),
        slots=1 if launch.unified else launch.slots or 1,
        cache_types=launch.cache_types,
        physical_batch=settings.whole("--ubatch-size", PHYSICAL_BATCH) or PHYSICAL_BATCH,
        projector=images,
        drafts="draft-mtp" in (settings.text("--spec-type") or ""),
    )


def slots_of(understood: Understood) -> Slots | str:
    """Return what the slots of a llama-server hold, or why that is not known."""
    if understood.llama is None:
        return "the launch is no llama-server"
    launch = read_gguf(understood.llama)
    if not launch.context or not launch.slots or not launch.slot_context:
        return "the server chooses how many tokens its slots hold"
    if launch.size_gib is None:
        return "the size of the weights is not known"
    try:
        parts = _server(launch, launch.context, _cards(understood, launch.settings)[1]).card()
    except UserError as unknown:
        return str(unknown)
    return Slots(launch.slots, launch.slot_context, parts, unified=launch.unified)


def _fit(understood: Understood, launch: GgufLaunch, place: Place) -> Iterator[Finding]:
    settings = launch.settings
    free, count = _cards(understood, settings)
    layers = launch.layers
    no_card = layers == 0 or settings.text("--device") == "none"
    if launch.size_gib is None or layers is None or (not count and not no_card):
        return
    if any(FORK_CACHE_TYPES.match(kind) for kind in launch.cache_types):
        return
    length = launch.context or (LEAST_FITTED if settings.text("--fit") != "off" else NATIVE)
    try:
        need = _server(launch, length, count, layers / LAYERS).card()
        whole = _server(launch, length, count)
        whole_high = whole.card().total.high
    except UserError:
        return
    if no_card or layers < LAYERS:
        yield _on_host(launch, layers, whole_high <= free)
    elif any(settings.last(name) is not None for name in _HELD_BACK):
        return
    elif launch.fitted and need.total.low > free:
        yield _fitted(launch, need, free, length, place)
        return
    elif launch.fitted:
        return
    if no_card or not free or need.total.high <= free:
        return
    sure = need.total.low > free
    longest = whole.longest(free, sure=True) if layers == LAYERS and sure else 0
    yield _too_large(launch, need, free, longest, place)


def _on_host(launch: GgufLaunch, layers: int, fits: bool) -> Finding:
    setting = launch.settings.last("--n-gpu-layers") or launch.settings.last("--device")
    assert setting is not None
    spelt = f"{setting.spelt}{' ' if not setting.of_variable else '='}{setting.value}"
    return Finding(
        "layers-on-host",
        "warning",
        spelt,
        setting.place,
        f"{layers} of {LAYERS} layers are on the GPU: the rest runs on the CPU, limited by host "
        "memory bandwidth, for every token",
        "--n-gpu-layers 99, all layers fit" if fits else "a smaller quantization, or more GPUs",
        "degraded",
    )


def _fitted(
    launch: GgufLaunch, need: GgufMemory, free: float, length: int, place: Place
) -> Finding:
    named = launch.settings.last("--model") or launch.settings.last("--hf-repo")
    return Finding(
        "layers-on-host",
        "warning",
        f"--ctx-size {length}" if launch.context else "the weights",
        named.place if named is not None and not launch.context else place,
        f"weights {need.weights_gib:.1f} and cache {need.cache_gib + need.states_gib:.1f} GiB do "
        f"not fit {free:.1f} GiB per GPU: without --n-gpu-layers the server keeps layers on the "
        "CPU until the rest fits, and is limited by host memory bandwidth",
        "a smaller quantization, a shorter context or an 8-bit cache",
        "degraded",
    )


def _too_large(
    launch: GgufLaunch, need: GgufMemory, free: float, longest: int, place: Place
) -> Finding:
    sure = need.total.low > free
    shorter = longest and (not launch.context or longest < launch.context)
    return Finding(
        "gguf-does-not-fit",
        "error" if sure else "warning",
        f"--ctx-size {launch.context}" if launch.context else "the weights",
        place,
        need.room_text(free),
        f"--ctx-size {longest}" if shorter else "a smaller quantization, or fewer -ngl layers",
        "fails_at_start" if sure else None,
    )
