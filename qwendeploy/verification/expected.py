"""What a plan expects of the measured server: operating point, blocks, identity."""

from __future__ import annotations

import re
from collections.abc import Sequence

from qwendeploy.documents import Option, Plan, ServerFacts, identity
from qwendeploy.errors import UserError
from qwendeploy.figures import Figure, Kind, exact
from qwendeploy.models.kv_layout import KvLayout, kv_layout
from qwendeploy.models.memory import blocks_held, full_length_requests, pool_tokens


def layout_of(option: Option | None) -> KvLayout | None:
    """Return the cache layout of an option, ``None`` where the arithmetic is not known."""
    if option is None or option.engine != "vllm":
        return None
    try:
        return kv_layout(
            tp=option.tp,
            spec_method=option.spec_method,
            spec_tokens=option.spec_tokens,
            kv_cache_dtype=option.kv_cache_dtype,
            prefix_cache=option.prefix_cache,
            max_num_batched_tokens=option.max_num_batched_tokens or 8192,
            engine_version=option.engine_version,
            fork=option.fork,
        )
    except UserError:
        return None


def pool_figures(plan: Plan | None, facts: ServerFacts) -> dict[str, Figure]:
    """Return the pool's quantities as the server tells them, or as follows from its block count.

    The size in tokens and the full-length requests depend on the length that is served. Blocks and
    tokens are of one replica, requests of all.
    """
    found: dict[str, Figure] = {}

    def put(name: str, value: float, unit: str, source: str) -> None:
        found[name] = exact(value, unit, kind=Kind.MEASURED_HERE, source=source, n=1)

    blocks, length = facts.kv_pool_blocks, facts.max_model_len
    if blocks is not None:
        put("kv_pool_blocks", blocks, "blocks", "cache_config_info")
    layout = layout_of(plan.option if plan else None)
    all_told = facts.replicas_told in (0, facts.replicas)
    if blocks is not None and length is not None and layout is not None:
        source = "block arithmetic from the server's block count"
        put("kv_pool_tokens", pool_tokens(layout, blocks, length)[0], "tokens", source)
        full = full_length_requests(layout, blocks, length) * facts.replicas
        if all_told:
            put("max_full_length_requests", full, "requests", source)
    if facts.kv_pool_tokens is not None:
        put("kv_pool_tokens", facts.kv_pool_tokens, "tokens", "cache_config_info")
    concurrency = facts.cache_config.get("kv_cache_max_concurrency", "")
    if re.fullmatch(r"\d+(\.\d+)?", concurrency) and all_told:
        full = int(float(concurrency)) * facts.replicas
        put("max_full_length_requests", full, "requests", "cache_config_info")
    return found


def held_by(option: Option | None, contexts: Sequence[int]) -> tuple[float, float] | None:
    """Return fewest and most blocks that running requests of these contexts hold.

    A request at a block edge holds one state more per group with prefix caching, and its next
    attention block is taken with the step that needs it.
    """
    layout = layout_of(option)
    if option is None or layout is None:
        return None
    low = sum(blocks_held(layout, context) for context in contexts)
    ahead = 1 + option.spec_tokens
    high = sum(blocks_held(layout, context + ahead, crossing=True) for context in contexts)
    return float(low), float(high)


def machine_id(plan: Plan) -> str:
    """Return a digest of what must agree for two runs to be of one machine."""
    return identity.machine_id(plan.machine)


def applied_differences(plan: Plan, facts: ServerFacts) -> tuple[tuple[str, str, str], ...]:
    """Return (what, asked, applied) for every fact that the server tells otherwise."""
    option = plan.option
    found: list[tuple[str, str, str]] = []

    def differ(what: str, asked: object, applied: object) -> None:
        if asked is not None and applied is not None and str(asked) != str(applied):
            found.append((what, str(asked), str(applied)))

    config = facts.cache_config
    differ("max_model_len", option.max_model_len, facts.max_model_len)
    if option.engine == "vllm" and facts.engine == "llama.cpp":
        differ("engine", "vllm", "llama.cpp")
    if option.engine_version and not option.fork:
        differ("engine_version", option.engine_version, facts.version)
    if "enable_prefix_caching" in config:
        applied = config["enable_prefix_caching"] == "True"
        differ("prefix_cache", option.prefix_cache, applied)
    if config.get("gpu_memory_utilization") not in (None, "None"):
        asked = option.gpu_memory_utilization
        if asked is not None and abs(asked - float(config["gpu_memory_utilization"])) > 1e-6:
            differ("gpu_memory_utilization", asked, config["gpu_memory_utilization"])
    dtype = config.get("cache_dtype")
    if dtype is not None:
        applied_dtype = "fp8" if dtype.startswith("fp8") else "bf16"
        differ("kv_cache_dtype", option.kv_cache_dtype, applied_dtype)
    if facts.drafting is not None:
        differ("drafting", option.spec_method != "none", facts.drafting)
    differ("checkpoint", checkpoint_name(option.checkpoint), checkpoint_name(facts.root or ""))
    return tuple(found)


def decisive_differences(plan: Plan, facts: ServerFacts) -> tuple[tuple[str, str, str], ...]:
    """Return the differences that make another plan of it: all but the release of the engine."""
    found = applied_differences(plan, facts)
    return tuple(item for item in found if item[0] != "engine_version")


def checkpoint_name(text: str) -> str | None:
    """Return the name of a checkpoint in lower case, from a repository id or a cache path.

    ``None`` for a local path: a folder may be called anything.
    """
    match = re.search(r"models--[^/]+?--([^/]+)", text) or re.fullmatch(r"[^/]+/([^/]+)", text)
    return match[1].lower() if match else None
