"""The engine's arguments as settings: canonical flag, value, place and original spelling."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qwendeploy.auditing.reading.text import Place, Word
from qwendeploy.engines.vllm.flags import FlagStatus, ReleaseStatus, flag_status

SPEC = "--speculative-config"
SHORTCUTS = {
    "--spec-method": "method",
    "--spec-tokens": "num_speculative_tokens",
    "--spec-model": "model",
}
"""Flags of vLLM 0.22.0 and later that each set one key of the speculative configuration."""


@dataclass(frozen=True)
class ReadSetting:
    """One flag as written; ``value`` is ``None`` for a switch, ``status`` the release's answer."""

    name: str
    value: str | None
    place: Place
    spelt: str
    status: FlagStatus
    values: tuple[str, ...] = ()
    """The words of the value; ``value`` joins those of a list."""

    @property
    def known(self) -> bool:
        """Whether the release takes the flag."""
        return self.status.status is ReleaseStatus.KNOWN

    @property
    def lacking(self) -> bool:
        """Whether the flag takes a value and none is given."""
        row = self.status.row
        return self.value is None and row is not None and row.takes_value

    @property
    def symbolic(self) -> bool:
        """Whether the value is a variable that is not known here."""
        return self.value is not None and "$" in self.value


@dataclass(frozen=True)
class Arguments:
    """All settings in order, and the positional model."""

    settings: tuple[ReadSetting, ...]
    model: Word | None
    strays: tuple[Word, ...] = ()
    """Positional words after the model, which the engine refuses."""

    def last(self, name: str) -> ReadSetting | None:
        """Return the setting that counts: the last of its name."""
        found = [setting for setting in self.settings if setting.name == name]
        return found[-1] if found else None

    def value(self, name: str) -> str | None:
        """Return the value that counts; ``true`` and ``false`` for switches."""
        setting = self.last(name)
        if setting is None:
            return None
        return "true" if setting.value is None else setting.value

    def switched_on(self, name: str) -> bool:
        """Say whether a switch is given and on."""
        value = self.value(name)
        return value is not None and value.lower() not in ("false", "0")


def read_arguments(words: tuple[Word, ...], engine_version: str | None, *, fork: bool) -> Arguments:
    """Return vLLM's arguments; a flag nobody knows takes the next word if that is no flag."""
    settings: list[ReadSetting] = []
    model: Word | None = None
    strays: list[Word] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.text:
            continue
        if not re.match(r"^-{1,2}[A-Za-z]", word.text):
            if model is None:
                model = word
            else:
                strays.append(word)
            continue
        spelt, equals, attached = word.text.partition("=")
        if not spelt.startswith("--"):
            spelt, attached, equals = _short(spelt, attached, equals)
        status = flag_status(spelt, engine_version, fork)
        meant = _meant(status, engine_version, fork)
        values: list[str] = [attached] if equals else []
        if not equals and _takes_value(meant, words, index):
            taken = 1
            if meant.row is not None and meant.row.type == "list":
                while index + taken < len(words) and not _is_flag(words[index + taken]):
                    taken += 1
            values = [following.text for following in words[index : index + taken]]
            index += taken
        settings.append(_setting(spelt, values, word.place, status, meant))
    named = next((setting for setting in reversed(settings) if setting.name == "--model"), None)
    if named is not None and named.value is not None:
        model = Word(named.value, named.place)
    return Arguments(tuple(settings), model, tuple(strays))


_MISSPELT = 0.8
"""Likeness (difflib) from which a flag nobody knows is read as the one that it resembles, so that
the rest is judged as it was meant; that it is misspelt stays a finding."""


def _meant(status: FlagStatus, engine_version: str | None, fork: bool) -> FlagStatus:
    """Return the status of the flag that was meant: the nearest one where the name is a slip."""
    near = status.nearest
    if status.status is not ReleaseStatus.UNKNOWN or near is None or "." in status.asked:
        return status
    name = status.asked.replace("_", "-").lower()
    if difflib.SequenceMatcher(None, name, near).ratio() < _MISSPELT:
        return status
    return flag_status(near, engine_version, fork)


def _short(spelt: str, attached: str, equals: str) -> tuple[str, str, str]:
    """Return a short flag with its attached value: ``-O3`` is ``-O`` with 3."""
    match = re.match(r"^-O(\S+)$", spelt)
    if match:
        return "-O", match[1], "="
    return spelt, attached, equals


def _is_flag(word: Word) -> bool:
    return bool(re.match(r"^-{1,2}[A-Za-z]", word.text))


def _takes_value(status: FlagStatus, words: tuple[Word, ...], index: int) -> bool:
    following = words[index] if index < len(words) else None
    if following is None:
        return False
    if status.row is not None:
        if "." in status.asked and not status.row.takes_value:
            return True
        return status.row.takes_value and not status.negative and not _is_flag(following)
    return not _is_flag(following)


def _setting(
    spelt: str, values: list[str], place: Place, status: FlagStatus, meant: FlagStatus
) -> ReadSetting:
    name = spelt.replace("_", "-") if spelt.startswith("--") else spelt
    value = " ".join(values) if values else None
    row = meant.row
    if row is not None:
        dotted = re.match(r"^--[A-Za-z0-9-]+(\..+)$", spelt) or re.match(
            r"^-[A-Za-z]+(\..+)$", spelt
        )
        name = row.name + (dotted[1] if dotted else "")
        if meant.negative and value is None:
            value = "false"
    return ReadSetting(name, value, place, spelt, status, tuple(values))


@dataclass(frozen=True)
class SpecKey:
    """One key of the speculative configuration with its place."""

    key: str
    value: Any
    place: Place


@dataclass(frozen=True)
class SpecConfig:
    """The speculative configuration from JSON, dotted flags and shortcuts together."""

    keys: tuple[SpecKey, ...] = ()
    problem: str | None = None
    """Why the JSON cannot be read."""
    place: Place | None = None
    symbolic: bool = False

    @property
    def values(self) -> Mapping[str, Any]:
        """Keys to values; the last one counts."""
        return {key.key: key.value for key in self.keys}

    def __bool__(self) -> bool:
        return bool(self.keys) or self.symbolic or self.problem is not None


def read_spec_config(arguments: Arguments) -> SpecConfig:
    """Return the speculative configuration of the arguments; empty if there is none."""
    keys: list[SpecKey] = []
    problem = None
    place = None
    symbolic = False
    for setting in arguments.settings:
        if setting.name == SPEC and setting.value is not None:
            place = setting.place
            parsed, problem = _json_object(setting.value)
            if parsed is None and "$" in setting.value:
                symbolic, problem = True, None
            keys.extend(SpecKey(key, value, place) for key, value in (parsed or {}).items())
        elif setting.name.startswith(f"{SPEC}.") and setting.value is not None:
            place = setting.place
            key = setting.name.removeprefix(f"{SPEC}.")
            keys.append(SpecKey(key, scalar(setting.value), place))
        elif setting.name in SHORTCUTS and setting.value is not None and setting.known:
            place = setting.place
            keys.append(SpecKey(SHORTCUTS[setting.name], scalar(setting.value), place))
    return SpecConfig(tuple(keys), problem, place, symbolic)


def _json_object(text: str) -> tuple[dict[str, Any] | None, str | None]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as problem:
        return None, f"not valid JSON: {problem}"
    if not isinstance(parsed, dict):
        return None, "not a JSON object"
    return parsed, None


def json_keys(text: str) -> Mapping[str, Any]:
    """Return the keys of a JSON object; empty for every other text."""
    return _json_object(text)[0] or {}


def scalar(text: str) -> Any:
    """Return the JSON value that a text is, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
