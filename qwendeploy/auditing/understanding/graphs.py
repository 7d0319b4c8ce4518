"""CUDA graph settings of a launch: mode and capture sizes."""

from __future__ import annotations

import re

from qwendeploy.auditing.understanding.settings import Arguments, ReadSetting, json_keys

_LEVELS = ("-O", "--optimization-level")


def graph_mode(arguments: Arguments) -> tuple[str, ReadSetting] | None:
    """Return the CUDA graph mode that is asked for and where, ``None`` for the engine's own.

    Level 0 neither compiles nor captures (vLLM documentation, optimization levels).
    """
    for setting in reversed(arguments.settings):
        mode: object = None
        if setting.name == "--compilation-config.cudagraph_mode":
            mode = setting.value
        elif setting.name == "--compilation-config" and setting.value is not None:
            mode = json_keys(setting.value).get("cudagraph_mode")
        if isinstance(mode, str) and "$" not in mode:
            return mode.upper(), setting
    for name in _LEVELS:
        level = arguments.last(name)
        if level is not None and (level.value or "").upper().removeprefix("O") == "0":
            return "NONE", level
    return None


def capture_sizes(setting: ReadSetting) -> list[int]:
    """Return the step sizes that a setting names for capture, none if it names no sizes."""
    text = setting.value or ""
    if setting.name.startswith("--compilation-config") and "capture_size" not in (
        setting.name + text
    ):
        return []
    if text.startswith("{"):
        found = re.search(r'"(?:max_)?cudagraph_capture_sizes?"\s*:\s*(\[[^\]]*\]|\d+)', text)
        text = found[1] if found else ""
    return [int(number) for number in re.findall(r"\d+", text)[:500]]
