"""The server's flags and variables: those that spell out the option, then those that rules set."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from qwendeploy.documents import Option
from qwendeploy.engines.vllm.engine import VLLM, spelled
from qwendeploy.family.names import SERVED_NAME
from qwendeploy.planning.scene import Scene
from qwendeploy.rulebook.book import Fired

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
    drafter = scene.knowledge.drafter(option)
    name = Chosen(VLLM.served_name, SERVED_NAME, OPTION, "model name that clients request")
    flags = spelled(option, drafter.name if drafter is not None else None)
    return [name, *(Chosen(flag.name, flag.value, OPTION, flag.reason) for flag in flags)]


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
