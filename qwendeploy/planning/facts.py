"""Machine, workload and option as the facts that rules read; what is unknown is left out."""

from __future__ import annotations

from qwendeploy.documents import Option, Workload
from qwendeploy.evidence.box import Box
from qwendeploy.family.names import MODEL, model_of
from qwendeploy.rulebook.fields import FactValue

Facts = dict[str, FactValue]

_ARCH = {"linux-x86_64": "x86_64", "linux-aarch64": "aarch64", "linux-ppc64le": "ppc64le"}


def machine_facts(box: Box) -> Facts:
    """Return ``machine.*`` of the serving GPUs."""
    machine = box.machine
    facts: Facts = {
        "machine.gpu": box.name,
        "machine.gpu_count": box.count,
        "machine.vram_mib": box.vram_mib,
        "machine.compute_capability": box.compute_capability,
        "machine.architecture": box.architecture,
        "machine.interconnect": "none" if box.count == 1 else machine.interconnect,
        "machine.p2p": machine.p2p,
        "machine.card_p2p": box.model.p2p if box.model and not box.unlike else "unknown",
        "machine.display": box.display,
        "machine.unlike_cards": box.unlike,
        "machine.os": machine.os,
        "machine.unified_memory": machine.unified_memory,
        "machine.host_arch": _ARCH.get(machine.platform, "unknown"),
        "machine.vendor": (box.model.vendor.lower() if box.model else "nvidia"),
    }
    if machine.driver:
        facts["machine.driver"] = machine.driver
    if machine.cuda:
        facts["machine.cuda"] = machine.cuda
    return facts


def workload_facts(workload: Workload, typical_context: int) -> Facts:
    """Return ``workload.*`` with the typical context as resolved."""
    return {
        "workload.concurrency": workload.concurrency,
        "workload.max_context": workload.max_context,
        "workload.typical_context": typical_context,
        "workload.contexts": workload.contexts,
        "workload.content": workload.content.value,
        "workload.vision": workload.vision,
        "workload.tools": workload.tools,
        "workload.thinking": workload.thinking,
        "workload.quality": workload.quality.value,
        "workload.objective": workload.objective.value,
    }


def option_facts(option: Option) -> Facts:
    """Return ``option.*``."""
    facts: Facts = {
        "option.engine": option.engine,
        "option.fork": option.fork,
        "option.checkpoint": option.checkpoint,
        "option.quant": option.quant,
        "option.kv_cache_dtype": option.kv_cache_dtype,
        "option.spec_method": option.spec_method,
        "option.spec_tokens": option.spec_tokens,
        "option.tp": option.tp,
        "option.pp": 1,
        "option.replicas": option.replicas,
        "option.prefix_cache": option.prefix_cache,
    }
    if option.image:
        facts["option.image"] = option.image
    if option.engine_version:
        facts["option.engine_version"] = option.engine_version
    # a folder does not say what is in it: a plan is one of this model
    facts["option.model"] = model_of(option.checkpoint) or MODEL
    return facts


SHARED = (
    "option.engine",
    "option.fork",
    "option.image",
    "option.engine_version",
    "option.checkpoint",
    "option.model",
    "option.quant",
    "option.spec_method",
)


def shared_facts(option: Option) -> Facts:
    """Return the part of ``option.*`` that options of one image, checkpoint and draft share."""
    facts = option_facts(option)
    return {name: facts[name] for name in SHARED if name in facts}


def resolved_facts(option: Option) -> Facts:
    """Return ``resolved.*`` for the scheduler limits that are known so far."""
    found: Facts = {}
    for name in (
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "gpu_memory_utilization",
        "capture_size",
    ):
        value = getattr(option, name)
        if value is not None:
            found[f"resolved.{name}"] = value
    return found
