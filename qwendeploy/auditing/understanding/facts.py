"""The facts of a launch that rules read; unknown facts are left out."""

from __future__ import annotations

import json
import re

from qwendeploy.auditing.reading.text import whole_number
from qwendeploy.auditing.understanding.memory import PoolView
from qwendeploy.auditing.understanding.settings import scalar
from qwendeploy.auditing.understanding.understand import Understood, draft_path
from qwendeploy.documents import Machine
from qwendeploy.errors import QwendeployError
from qwendeploy.evidence.box import describe
from qwendeploy.planning.facts import machine_facts
from qwendeploy.rulebook.book import setting_facts
from qwendeploy.rulebook.fields import FactValue, find_field

Facts = dict[str, FactValue]


def launch_facts(understood: Understood, pool: PoolView | None) -> Facts:
    """Return every fact of the closed list that the launch and its context give."""
    facts: Facts = {
        **_machine(understood),
        **_workload(understood),
        **_option(understood),
        **_resolved(understood),
        **_settings(understood),
        **_exposure(understood),
        **_container(understood),
    }
    if pool is not None:
        facts.update(pool.facts())
    return {name: value for name, value in facts.items() if find_field(name) is not None}


def _machine(understood: Understood) -> Facts:
    machine = understood.context.machine
    if machine is None:
        return {}
    facts: Facts
    try:
        facts = machine_facts(describe(machine))
    except QwendeployError:
        facts = _bare_machine(machine)
    facts["machine.vendor"] = understood.context.vendor
    facts["machine.mig"] = any(gpu.mig for gpu in machine.gpus)
    hints = understood.context.hints
    if hints.display_gib is not None:
        facts["machine.display_gib"] = hints.display_gib
    if hints.p2p_hangs or (hints.p2p_redirected and facts.get("machine.card_p2p") == "yes"):
        facts["machine.p2p_hangs"] = True
    if understood.gpu_count is not None:
        facts["machine.gpu_count"] = understood.gpu_count
    if understood.context.vendor != "nvidia":
        for name in ("machine.driver", "machine.cuda", "machine.compute_capability"):
            facts.pop(name, None)
    return {name: value for name, value in facts.items() if value != "unknown"}


def _bare_machine(machine: Machine) -> Facts:
    facts: Facts = {"machine.gpu_count": len(machine.gpus), "machine.os": machine.os}
    first = machine.gpus[0] if machine.gpus else None
    if first is not None and first.name:
        facts["machine.gpu"] = first.name
    if first is not None and first.memory_mib:
        facts["machine.vram_mib"] = first.memory_mib
    if machine.driver:
        facts["machine.driver"] = machine.driver
    return facts


def _workload(understood: Understood) -> Facts:
    hints = understood.context.hints
    facts: Facts = {}
    if hints.max_context is not None:
        facts["workload.max_context"] = hints.max_context
        facts["workload.typical_context"] = hints.max_context
    if hints.content is not None:
        facts["workload.content"] = hints.content
    if hints.tools is not None:
        facts["workload.tools"] = hints.tools
    if hints.vision is not None:
        facts["workload.vision"] = hints.vision
    return facts


def _option(understood: Understood) -> Facts:
    launch = understood.launch
    facts: Facts = {
        "option.engine": launch.engine,
        "option.fork": understood.fork,
        "option.spec_method": understood.spec_method,
    }
    if understood.image is not None:
        facts["option.image"] = understood.image
    if understood.engine_version is not None:
        facts["option.engine_version"] = understood.engine_version
    if understood.spec_tokens is not None:
        facts["option.spec_tokens"] = understood.spec_tokens
    for name in ("tp", "pp", "prefix_cache"):
        value = understood.value(name)
        if value is not None:
            facts[f"option.{name}"] = value
    replicas = understood.number("dp"), understood.number("pp")
    here = whole_number(understood.arguments.value("--data-parallel-size-local") or "")
    if here is not None:
        replicas = here, replicas[1]
    if None not in replicas:
        facts["option.replicas"] = int((replicas[0] or 1) * (replicas[1] or 1))
    if understood.spec.symbolic:
        facts.pop("option.spec_method")
        facts.pop("option.spec_tokens", None)
    checkpoint = understood.checkpoint
    if checkpoint is not None and "$" not in checkpoint.name:
        facts["option.checkpoint"] = checkpoint.name
        if checkpoint.model is not None:
            facts["option.model"] = checkpoint.model
            facts["option.quant"] = checkpoint.quant
    kv = understood.value("kv_cache_dtype")
    if isinstance(kv, str):
        facts["option.kv_cache_dtype"] = kv_name(kv)
    return facts


def kv_name(flag: str) -> str:
    """Return the design's word for a value of ``--kv-cache-dtype``."""
    text = flag.lower()
    if text in ("auto", "bfloat16", "float16", "bf16", "half"):
        return "bf16"
    return "fp8" if re.fullmatch(r"fp8(_e4m3|_e5m2|_inc)?", text) else text


def _resolved(understood: Understood) -> Facts:
    facts: Facts = {}
    for name in (
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "gpu_memory_utilization",
        "capture_size",
    ):
        value = understood.number(name)
        if value is not None and value >= 0:
            facts[f"resolved.{name}"] = value
    backend = understood.value("attention_backend")
    if isinstance(backend, str):
        facts["resolved.attention_backend"] = backend.upper()
    return facts


_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Variables that mostly stand in a file of their own: not read is not absent."""


def _settings(understood: Understood) -> Facts:
    given = understood.arguments.settings
    flags = [(setting.name, setting.value) for setting in given if not setting.lacking]
    env = {name: word.text for name, word in understood.launch.env.items()}
    if understood.launch.variables_open:
        env = {name: f"${name}" for name in _SECRETS} | env
    facts = setting_facts([*_whole_values(flags), *flags], env)
    for key, value in understood.spec.values.items():
        name = f"resolved.flag.speculative-config.{key}"
        if isinstance(value, bool):
            facts[name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            facts[name] = str(value)
    if understood.spec and "resolved.flag.speculative-config" not in facts:
        facts["resolved.flag.speculative-config"] = "given"
    return facts


def _whole_values(flags: list[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Return the JSON that dotted flags (``--kv-transfer-config.kv_role kv_both``) add up to."""
    parts: dict[str, dict[str, object]] = {}
    for name, value in flags:
        base, dot, key = name.partition(".")
        if dot and value is not None:
            parts.setdefault(base, {})[key] = scalar(value)
    return [(base, json.dumps(keys)) for base, keys in parts.items()]


def _exposure(understood: Understood) -> Facts:
    facts: Facts = {"exposure.listen": understood.listen}
    if understood.api_key or not understood.launch.variables_open:
        facts["exposure.api_key"] = understood.api_key
    if understood.network != "unknown":
        facts["exposure.network"] = understood.network
    return facts


def _container(understood: Understood) -> Facts:
    launch = understood.launch
    facts: Facts = {"container.runtime": launch.runtime}
    container = launch.container
    hints = understood.context.hints
    if container is not None and container.gpus is not None:
        facts["container.gpus_passed"] = container.gpus.passed or bool(hints.runtime_passes_gpus)
    if container is not None and container.shared_memory is not None:
        facts["container.shared_memory"] = container.shared_memory
    present = _draft_present(understood)
    if present is not None:
        facts["container.draft_present"] = present
    checkpoint = understood.checkpoint
    if checkpoint is not None and checkpoint.third_party:
        revision = understood.arguments.last("--revision")
        facts["container.revision_pinned"] = revision is not None
    return facts


def _draft_present(understood: Understood) -> bool | None:
    path = draft_path(understood)
    if path is None:
        return None
    if understood.context.local:
        from pathlib import Path

        return Path(path.text).exists()
    said = understood.context.hints.files_present
    if said is None:
        return None
    listed = [part.rstrip(".,;") for part in re.findall(r"/[^\s,;]+", said)]
    if any(path.text.startswith(part) for part in listed):
        return True
    closed = re.search(r"\bonly\b|\bno draft|\bmissing\b|\bnot there\b", said)
    return False if closed else None
