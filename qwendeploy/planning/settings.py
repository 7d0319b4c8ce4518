"""The server's flags and variables: those that spell out the option, then those that rules set."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from qwendeploy.documents import Option
from qwendeploy.planning.scene import Scene
from qwendeploy.rulebook.book import Fired

SERVED_NAME = "qwen3.6-27b"
OPTION = "option"
"""Stands where a rule's id would: the flag spells out the chosen option."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A flag or variable while options are compared; becomes a ``Setting`` of the plan."""

    name: str
    value: str | None
    rule: str
    reason: str


def base_flags(option: Option, scene: Scene) -> list[Chosen]:
    """Return the flags that spell out an option, in the order they are emitted."""
    flags = [
        _flag("--served-model-name", SERVED_NAME, "model name that clients request"),
        _flag("--tensor-parallel-size", option.tp, "GPUs that share one copy of the weights"),
        _flag("--max-model-len", option.max_model_len, "longest request of the workload"),
        _flag(
            "--gpu-memory-utilization",
            option.gpu_memory_utilization,
            "fraction of GPU memory the engine may use",
        ),
        _flag("--max-num-seqs", option.max_num_seqs, "maximum concurrent sequences"),
        _flag(
            "--max-num-batched-tokens",
            option.max_num_batched_tokens,
            "maximum tokens per scheduler step; decoding pauses while a step prefills a prompt",
        ),
    ]
    if option.kv_cache_dtype == "fp8":
        flags.append(_flag("--kv-cache-dtype", "fp8", "halves the KV cache bytes per token"))
    if option.spec_method != "none":
        flags.append(
            _flag("--speculative-config", _draft_config(option, scene), "draft method and length")
        )
    if option.capture_size is not None:
        flags.append(
            _flag(
                "--max-cudagraph-capture-size",
                option.capture_size,
                "largest step that uses a CUDA graph, in tokens",
            )
        )
    caching = "--enable-prefix-caching" if option.prefix_cache else "--no-enable-prefix-caching"
    flags.append(
        Chosen(
            name=caching,
            value=None,
            rule=OPTION,
            reason="set explicitly: the engine's default changed between versions",
        )
    )
    return flags


def _flag(name: str, value: object, reason: str) -> Chosen:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return Chosen(name, text, OPTION, reason)


def _draft_config(option: Option, scene: Scene) -> str:
    config: dict[str, object] = {"method": option.spec_method}
    drafter = scene.knowledge.drafter(option)
    if drafter is not None:
        config["model"] = drafter.name
    config["num_speculative_tokens"] = option.spec_tokens
    return json.dumps(config, separators=(",", ":"))


def merge_settings(
    base: Iterable[Chosen], fired: Iterable[Fired]
) -> tuple[tuple[Chosen, ...], tuple[Chosen, ...]]:
    """Return flags and environment: the option's own, then what the fired rules set.

    A rule that sets the flag of the option itself replaces its value and becomes its reason;
    dotted keys (``--speculative-config.attention_backend``) go into the JSON value.
    """
    flags = {setting.name: setting for setting in base}
    env: dict[str, Chosen] = {}
    for result in fired:
        for effect in result.effects:
            if effect.kind not in ("flag", "env") or effect.name is None:
                continue
            value = None if effect.value is None else _text(effect.value)
            setting = Chosen(effect.name, value, result.rule.id, result.reason)
            if effect.kind == "env":
                env[effect.name] = setting
            elif effect.name.startswith("--") and "." in effect.name:
                _set_key(flags, effect.name, setting)
            else:
                flags[effect.name] = setting
    return tuple(flags.values()), tuple(env.values())


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _set_key(flags: dict[str, Chosen], name: str, setting: Chosen) -> None:
    stem, _, key = name.partition(".")
    holder = flags.get(stem)
    if holder is None or not (holder.value or "").startswith("{"):
        flags[name] = setting
        return
    config = json.loads(holder.value or "{}")
    config[key] = setting.value
    flags[stem] = replace(
        holder,
        value=json.dumps(config, separators=(",", ":")),
        reason=f"{holder.reason}; {key} by {setting.rule}: {setting.reason}",
    )
