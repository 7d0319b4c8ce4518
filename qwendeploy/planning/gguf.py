"""llama.cpp where vLLM cannot go: options from GGUF files, their memory and their flags.

llama-server splits ``--ctx-size`` evenly over its slots, so every slot gets the longest context
that was asked for and as many slots are taken as the memory holds. Everything is on the GPUs; there
is no plan with layers on the host.
"""

from __future__ import annotations

from collections.abc import Iterator

from qwendeploy.documents import Option, Workload
from qwendeploy.documents.request import Pins
from qwendeploy.engines.llama_cpp.memory import (
    CACHE_TYPES,
    CONTEXT_STEP,
    PHYSICAL_BATCH,
    LlamaServer,
    reserve_gib,
)
from qwendeploy.evidence.box import Box
from qwendeploy.evidence.knowledge import Knowledge
from qwendeploy.evidence.memory_view import Slots
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.family.names import SERVED_NAME
from qwendeploy.planning.candidate import Candidate, Rejection, refusal_of
from qwendeploy.planning.facts import Facts, option_facts, resolved_facts
from qwendeploy.planning.scene import Scene
from qwendeploy.planning.settings import OPTION, Chosen, merge_settings
from qwendeploy.rulebook.fields import Pass
from qwendeploy.tables.checkpoints import CheckpointRow
from qwendeploy.units import GIB

ENGINE = "llama.cpp"
NATIVE = QWEN_27B.native_context
SMALL_SLOT = 8192
"""Below it a slot does not hold a prompt and an answer: the model's card asks for answers of 32,768
tokens for most questions (Qwen3.6-27B model card, best practices)."""


def gguf_options(
    box: Box, workload: Workload, pins: Pins, knowledge: Knowledge
) -> Iterator[Option]:
    """Yield every GGUF in every layout and cache type that the pins leave open."""
    image = knowledge.llama_image(pins)
    for row in knowledge.checkpoints:
        if row.engine != ENGINE or row.role != "target" or row.mtp:
            continue
        if row.quant.startswith("gguf-i1-") and pins.checkpoint is None:
            continue  # how a server is told these files apart is not on record
        if pins.checkpoint not in (None, row.name) or pins.quant not in (None, row.quant):
            continue
        for tp in QWEN_27B.tensor_parallel_sizes if pins.tp is None else (pins.tp,):
            replicas = pins.replicas or max(1, min(box.count // tp, workload.concurrency))
            if tp * replicas > box.count:
                continue
            for dtype in (pins.kv_cache_dtype,) if pins.kv_cache_dtype else CACHE_TYPES:
                yield Option(
                    engine="llama.cpp",
                    image=image.name,
                    engine_version=image.engine_version,
                    checkpoint=row.name,
                    quant=row.quant,
                    kv_cache_dtype=dtype,
                    tp=tp,
                    replicas=replicas,
                )


def resolve_gguf(option: Option, scene: Scene) -> Candidate | Rejection:
    """Return the option with slots and flags, or the first reason why it cannot run."""
    facts: Facts = {**scene.facts, **option_facts(option)}
    fired = list(scene.rules.fire(Pass.ADMIT, facts))
    refusal = refusal_of(fired)
    if refusal is not None:
        return refusal
    row = scene.knowledge.checkpoint(option.checkpoint, option.quant)
    memory = _slots(option, row, scene)
    if isinstance(memory, Rejection):
        return memory
    option = option.model_copy(
        update={
            "max_model_len": memory.max_model_len,
            "max_num_seqs": memory.slots,
            "max_num_batched_tokens": scene.pins.max_num_batched_tokens or PHYSICAL_BATCH,
        }
    )
    facts = {**facts, **resolved_facts(option)}
    fired += scene.rules.fire(Pass.RESOLVE, facts)
    memory_facts: Facts = {
        "memory.weights_gib": memory.parts.weights_gib,
        "memory.budget_gib": budget_gib(scene),
    }
    fired += scene.rules.fire(Pass.CHECK, {**facts, **memory_facts, **scene.exposure})
    refusal = refusal_of(fired)
    if refusal is not None:
        return refusal
    flags, env = merge_settings(_flags(option, scene), fired)
    return Candidate(option, memory, flags, env, tuple(fired))


def budget_gib(scene: Scene) -> float:
    """Return what one card gives a server, GiB."""
    return scene.box.memory_bytes / GIB - reserve_gib(scene.box.machine, scene.box.display)


def _slots(option: Option, row: CheckpointRow, scene: Scene) -> Slots | Rejection:
    """Return the most slots of the longest context that fit, up to the requests in flight."""
    length = scene.pins.max_model_len or scene.workload.max_context
    length = -(-length // CONTEXT_STEP) * CONTEXT_STEP
    if length > NATIVE:
        # lifted by YaRN only from August 2026 on (https://github.com/ggml-org/llama.cpp/pull/28030)
        return Rejection(
            "context-above-native",
            f"the server cuts a slot of {length:,} tokens to the model's own {NATIVE:,}",
            missed_by=f"{length - NATIVE:,} tokens",
            would_return=f"--ctx {NATIVE} or less",
        )
    wanted = scene.pins.max_num_seqs or -(-scene.workload.concurrency // option.replicas)
    budget = budget_gib(scene)

    def of(slots: int) -> LlamaServer:
        cache = CACHE_TYPES[option.kv_cache_dtype]
        return LlamaServer(
            row.gib_loaded or scene.knowledge.files_gib(row),
            cards=option.tp,
            context=slots * length,
            slots=slots,
            cache_types=(cache, cache),
            physical_batch=scene.pins.max_num_batched_tokens or PHYSICAL_BATCH,
            projector="on" if scene.workload.vision else "off",
        )

    fitting = next((n for n in range(wanted, 0, -1) if of(n).card().total.value <= budget), 0)
    if fitting and scene.pins.max_num_seqs and fitting < wanted:
        short = of(wanted).card().total.value - budget
        return Rejection(
            "memory-seats",
            f"{wanted} slots of {length:,} tokens need {short + budget:.1f} GiB per GPU, "
            f"{budget:.1f} GiB may be used",
            missed_by=f"{short:.1f} GiB per GPU",
            would_return=f"--max-num-seqs {fitting} or less",
        )
    if fitting:
        parts = of(fitting).card()
        return Slots(fitting, length, parts, may_refuse=parts.total.high > budget)
    return _no_room(of(1), scene)


def _no_room(server: LlamaServer, scene: Scene) -> Rejection:
    one, budget = server.card(), budget_gib(scene)
    short = one.total.value - budget
    empty = one.total.value - one.cache_gib
    if empty > budget:
        return Rejection(
            "memory-weights",
            f"the GGUF ({one.weights_gib:.1f} GiB per GPU) and working memory leave no KV cache in "
            f"{budget:.1f} GiB; plans keep all layers on the GPU",
            missed_by=f"{empty - budget:.1f} GiB per GPU",
            would_return="more GPUs, a smaller GGUF or a larger card",
        )
    longest = server.longest(budget, sure=False) // 1024
    return Rejection(
        "memory-length",
        f"one slot of {scene.workload.max_context:,} tokens needs {one.total.value:.1f} GiB per "
        f"GPU, {budget:.1f} GiB may be used",
        missed_by=f"{short:.1f} GiB per GPU",
        would_return=f"--ctx {longest}k or less",
    )


def _repository(option: Option, scene: Scene) -> list[Chosen]:
    """Return the flag that names the file: a repository of several needs the format as tag."""
    if option.checkpoint.startswith(("/", ".", "~")):
        return []
    files = [row for row in scene.knowledge.checkpoints if row.name == option.checkpoint]
    tag = f":{option.quant.removeprefix('gguf-').upper()}" if len(files) > 1 else ""
    why = "repository and file of the weights" if tag else "repository of the weights"
    return [Chosen("--hf-repo", option.checkpoint + tag, OPTION, why)]


def _flags(option: Option, scene: Scene) -> list[Chosen]:
    """Return llama-server's flags in the order they are emitted."""
    cache = CACHE_TYPES[option.kv_cache_dtype]
    slots = option.max_num_seqs or 1

    def flag(name: str, value: object, reason: str) -> Chosen:
        return Chosen(name, None if value is None else str(value), OPTION, reason)

    flags = [
        *_repository(option, scene),
        flag("--alias", SERVED_NAME, "model name that clients request"),
        flag(
            "--ctx-size",
            slots * (option.max_model_len or 0),
            f"{slots} slot{'s' if slots > 1 else ''} of the longest request",
        ),
        flag("--parallel", slots, "slots: concurrent requests"),
        flag("--n-gpu-layers", 99, "all layers on the GPU"),
        flag("--flash-attn", "on", "required for an 8-bit cache; smaller buffers otherwise"),
        flag("--cache-type-k", cache, "data type of cached keys"),
        flag("--cache-type-v", cache, "data type of cached values"),
        flag("--ubatch-size", option.max_num_batched_tokens, "maximum tokens per step"),
        flag("--jinja", None, "the model's chat template, with tool calls"),
        flag("--metrics", None, "metrics that verify reads"),
    ]
    if option.tp > 1:
        flags.append(flag("--split-mode", "tensor", "splits every layer across all GPUs"))
    if not scene.workload.vision:
        flags.append(flag("--no-mmproj", None, "text only: no image projector"))
    return flags
