"""vLLM as an engine: how an option is spelled in its flags, and what its releases refuse."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from qwendeploy.documents import Option
from qwendeploy.engines.interface import Engine, Flags, Refusal, Spelled
from qwendeploy.engines.vllm.flags import (
    ReleaseStatus,
    flag_status,
    spec_config_problems,
    value_problem,
)
from qwendeploy.engines.vllm.metrics import METRICS

SPECULATION = "--speculative-config"


def _stated(option: Option) -> Mapping[str, float]:
    """Return sizes, lengths and the memory share."""
    found = {
        "--tensor-parallel-size": option.tp,
        "--data-parallel-size": option.replicas,
        "--max-model-len": option.max_model_len,
        "--max-num-seqs": option.max_num_seqs,
        "--max-num-batched-tokens": option.max_num_batched_tokens,
        "--gpu-memory-utilization": option.gpu_memory_utilization,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def _needed(option: Option) -> tuple[str, ...]:
    """Return the flags of what differs from the engine's own defaults."""
    differs = {
        "--tensor-parallel-size": option.tp > 1,
        SPECULATION: option.spec_method != "none",
        "--kv-cache-dtype": option.kv_cache_dtype != "bf16",
    }
    return tuple(name for name, is_needed in differs.items() if is_needed)


def _refusal(option: Option, name: str, value: str | None) -> Refusal | None:
    """Return what the release's parser or configuration would say."""
    found = flag_status(name, option.engine_version, option.fork)
    if not found.checked:
        return None
    version = f"vLLM {option.engine_version}"
    if found.status is not ReleaseStatus.KNOWN or found.row is None:
        near = f"; nearest: {found.nearest}" if found.nearest else ""
        return Refusal("name", f"{version} has no {name}{near}")
    problem = value_problem(found.row, value)
    if problem is None and name == SPECULATION:
        problem = "".join(
            f"{entry}: {reason if isinstance(reason, str) else reason.message}"
            for entry, reason in spec_config_problems(speculation(value), option.engine_version)[:1]
        )
    return Refusal("value", f"{version} refuses it: {problem}") if problem else None


def _ending(option: Option, seconds: int) -> Flags:
    """Return ``--shutdown-timeout`` where the release was read and has it."""
    known = flag_status("--shutdown-timeout", option.engine_version, option.fork)
    has = known.checked and known.status is ReleaseStatus.KNOWN
    return (("--shutdown-timeout", str(seconds)),) if has else ()


VLLM = Engine(
    name="vllm",
    served_name="--served-model-name",
    path_flag=None,
    repository_flag=None,
    replicas_flag="--data-parallel-size",
    api_key_variable="VLLM_API_KEY",
    default_port=8000,
    owner="vllm",
    metrics=METRICS,
    stated=_stated,
    needed=_needed,
    refusal=_refusal,
    ending=_ending,
)


def spelled(option: Option, drafter: str | None) -> list[Spelled]:
    """Return the flags that spell out an option, in the order they are emitted.

    ``drafter`` is the repository of a separate draft model.
    """
    flags = [
        _spelled("--tensor-parallel-size", option.tp, "GPUs that share one copy of the weights"),
        _spelled("--max-model-len", option.max_model_len, "longest request of the workload"),
        _spelled(
            "--gpu-memory-utilization",
            option.gpu_memory_utilization,
            "fraction of GPU memory the engine may use",
        ),
        _spelled("--max-num-seqs", option.max_num_seqs, "maximum concurrent sequences"),
        _spelled(
            "--max-num-batched-tokens",
            option.max_num_batched_tokens,
            "maximum tokens per scheduler step; decoding pauses while a step prefills a prompt",
        ),
    ]
    if option.kv_cache_dtype == "fp8":
        flags.append(_spelled("--kv-cache-dtype", "fp8", "halves the KV cache bytes per token"))
    if option.spec_method != "none":
        flags.append(_spelled(SPECULATION, _draft(option, drafter), "draft method and length"))
    if option.capture_size is not None:
        flags.append(
            _spelled(
                "--max-cudagraph-capture-size",
                option.capture_size,
                "largest step that uses a CUDA graph, in tokens",
            )
        )
    caching = "--enable-prefix-caching" if option.prefix_cache else "--no-enable-prefix-caching"
    why = "set explicitly: the engine's default changed between versions"
    return [*flags, Spelled(caching, None, why)]


def _spelled(name: str, value: object, reason: str) -> Spelled:
    return Spelled(name, f"{value:g}" if isinstance(value, float) else str(value), reason)


def _draft(option: Option, drafter: str | None) -> str:
    config: dict[str, object] = {"method": option.spec_method}
    if drafter is not None:
        config["model"] = drafter
    config["num_speculative_tokens"] = option.spec_tokens
    return json.dumps(config, separators=(",", ":"))


def speculation(value: str | None) -> dict[str, Any]:
    """Return the content of ``--speculative-config``, empty if it is no mapping."""
    try:
        content = json.loads(value or "")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
