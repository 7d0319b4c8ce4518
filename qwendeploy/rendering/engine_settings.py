"""The plan's flags and variables as an engine gets them; what cannot be true is refused by key.

A plan edited by hand may hold anything. Refused is what the engine's release does not take, what
contradicts the option that was predicted, and what must not stand in a file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from qwendeploy.documents import Option, Plan, Setting
from qwendeploy.engines.interface import Flags
from qwendeploy.engines.registry import ENGINES
from qwendeploy.engines.vllm.engine import speculation
from qwendeploy.errors import DataError

SECONDS_TO_END = 50
"""What running requests get to end when the server is told to stop; vLLM's default is none of it:
it aborts them at once (vllm-project/vllm#36666)."""

_FLAG = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9._-]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SECRET = re.compile(r"(_API_KEY|_TOKEN|_SECRET|_PASSWORD|_SECRET_KEY|_ACCESS_KEY)\Z")
_ANEW = "make the plan anew with `qwendeploy recommend` instead of editing it"


def flags_of(plan: Plan) -> Flags:
    """Return the plan's flags with dashes, without the number of replicas.

    Raises:
        DataError: a flag is none, is set twice, holds a secret, is not taken by the engine's
            release, or contradicts the option.
    """
    found: dict[str, str | None] = {}
    keys: dict[str, str] = {}
    for position, setting in enumerate(plan.flags):
        key = f"flags.{position}"
        name = _flag_name(setting, key)
        if name in found or _opposite(name) in found:
            raise DataError(f"{name} is set twice", key=key, hint="keep one of them")
        if setting.value is not None:
            check_text(setting.value, f"{key}.value")
        found[name] = setting.value
        keys[name] = key
    for name, value in found.items():
        _check_agrees(plan, name, value, f"{keys[name]}.value")
        _check_taken(plan.option, name, value, keys[name])
    _check_complete(plan.option, found)
    return tuple((name, value) for name, value in found.items() if name != "--data-parallel-size")


def _check_complete(option: Option, flags: Mapping[str, str | None]) -> None:
    """Refuse an option that differs from the engine's defaults without the flag that says so."""
    for name in ENGINES[option.engine].needed(option):
        if name not in flags:
            raise DataError(
                f"there is no {name}, which the plan's option needs", key="flags", hint=_ANEW
            )


def _flag_name(setting: Setting, key: str) -> str:
    if not _FLAG.match(setting.name):
        raise DataError(f"{setting.name!r} is not a flag", key=f"{key}.name")
    name = setting.name if setting.name.startswith("-") else f"--{setting.name}"
    if name in {"--api-key", "--hf-token"} and setting.value:
        raise DataError(
            f"{name} would put the secret into artefact and process list",
            key=key,
            hint="remove it; the key belongs in secrets.env",
        )
    if name == "--trust-remote-code":
        raise DataError(
            "--trust-remote-code runs code that comes with the checkpoint",
            key=key,
            hint="remove it: no engine here needs it for Qwen3.6-27B",
        )
    return name


def _opposite(name: str) -> str:
    return "--" + name[5:] if name.startswith("--no-") else "--no-" + name.lstrip("-")


def _check_agrees(plan: Plan, name: str, value: str | None, key: str) -> None:
    """Refuse a flag that contradicts the plan: what was predicted would not be what runs."""
    option = plan.option
    engine = ENGINES[option.engine]
    number = engine.stated(option).get(name)
    stated, agrees = "", True
    if number is not None:
        stated = f"{number:.12g}"
        agrees = value is not None and _is_number(value, number)
    elif name == "--kv-cache-dtype":
        stated = option.kv_cache_dtype
        agrees = ("fp8" if (value or "").startswith("fp8") else "bf16") == stated
    elif name in ("--enable-prefix-caching", "--no-enable-prefix-caching"):
        stated = f"prefix caching {'on' if option.prefix_cache else 'off'}"
        agrees = (name == "--enable-prefix-caching") == option.prefix_cache
    elif name == "--speculative-config":
        stated = f"{option.spec_method}, {option.spec_tokens} tokens"
        tokens = speculation(value).get("num_speculative_tokens", option.spec_tokens)
        agrees = option.spec_method != "none" and str(tokens) == str(option.spec_tokens)
    elif name == engine.served_name:
        stated = f"served_model_name {plan.served_model_name!r}"
        agrees = value == plan.served_model_name
    if not agrees:
        words = name if value is None else f"{name} {value}"
        raise DataError(f"{words} contradicts the plan, which says {stated}", key=key, hint=_ANEW)


def _is_number(text: str, wanted: float) -> bool:
    try:
        return math.isclose(float(text), wanted)
    except ValueError:
        return False


def _check_taken(option: Option, name: str, value: str | None, key: str) -> None:
    """Refuse what the release's parser would refuse; of a release that was not read, nothing."""
    refusal = ENGINES[option.engine].refusal(option, name, value)
    if refusal is not None:
        raise DataError(refusal.text, key=f"{key}.{refusal.at}", hint=_ANEW)


def with_place(plan: Plan, flags: Flags) -> Flags:
    """Return the flags with the served name, and with the time that running requests get to end.

    The latter only where the release was read and has it: an engine refuses unknown flags.
    """
    option = plan.option
    engine = ENGINES[option.engine]
    names = {name for name, _ in flags}
    served = engine.served_name
    if served not in names:
        check_text(plan.served_model_name, "served_model_name")
        if not plan.served_model_name.strip():
            raise DataError("is empty", key="served_model_name", hint="write the model's name")
        flags = ((served, plan.served_model_name), *flags)
    ending = engine.ending(option, SECONDS_TO_END)
    return (*flags, *(pair for pair in ending if pair[0] not in names))


def variables_of(plan: Plan, *, offline: bool) -> tuple[tuple[str, str], ...]:
    """Return the plan's variables, with the hub switched off if ``offline``.

    Raises:
        DataError: a variable is none, is set twice or holds a secret.
    """
    found: dict[str, str] = {}
    for position, setting in enumerate(plan.env):
        key = f"env.{position}"
        if not _VARIABLE.match(setting.name):
            raise DataError(f"{setting.name!r} is not a variable's name", key=f"{key}.name")
        if setting.name in found:
            raise DataError(f"{setting.name} is set twice", key=key, hint="keep one of them")
        if _SECRET.search(setting.name):
            raise DataError(
                f"{setting.name} would put a secret into the artefact",
                key=key,
                hint="remove it; secrets belong in secrets.env",
            )
        check_text(setting.value or "", f"{key}.value")
        found[setting.name] = setting.value or ""
    if offline:
        found.setdefault("HF_HUB_OFFLINE", "1")
    return tuple(found.items())


def check_text(text: str, key: str) -> None:
    """Refuse what no argument vector or UTF-8 file can hold."""
    if "\x00" in text or any(0xD800 <= ord(char) <= 0xDFFF for char in text):
        raise DataError("holds a NUL or half of a surrogate pair", key=key)
