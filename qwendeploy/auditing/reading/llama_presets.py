"""``llama-server --models-preset FILE``: every section of the file is a separate server.

Keys are options with or without their dashes, or the names of their variables; ``[*]`` holds for
every section, and what the command itself says counts more (llama.cpp ``tools/server/README.md``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from qwendeploy.auditing.reading.config_file import UNREAD, Reader
from qwendeploy.auditing.reading.launch import ForeignLaunch, mount_of
from qwendeploy.auditing.reading.text import Place, Word
from qwendeploy.engines.llama_cpp.flags import LlamaFlag, find_llama_flag, flags_by_variable

FLAGS = ("--models-preset", "--models-dir")
MOST_MODELS = 40
_SECTION = re.compile(r"^\s*\[([^\]]+)\]\s*$")
_OFF = {"false", "off", "0", "no", "disabled"}


def with_presets(launch: ForeignLaunch, read: Reader) -> list[ForeignLaunch]:
    """Return a launch for each model of the preset file, the launch itself where there is none."""
    if launch.engine != "llama.cpp":
        return [launch]
    words = launch.arguments
    at = next((index for index, word in enumerate(words) if word.text in FLAGS), None)
    if at is None or at + 1 >= len(words):
        return [launch]
    name = words[at + 1]
    mounted = launch.container.volumes if launch.container is not None else ()
    folders = [mount_of(volume.text) for volume in mounted]
    inside = next((pair for pair in folders if pair[1] and name.text.startswith(pair[1])), None)
    path = name.text.replace(inside[1], inside[0], 1) if inside is not None else name.text
    text = read(path) if words[at].text == FLAGS[0] else None
    if text is None:
        return [replace(launch, unread=(*launch.unread, f"{UNREAD} {name.text}"))]
    own = (*words[:at], *words[at + 2 :])
    common, models = _sections(text, name.text)
    found = [
        replace(launch, arguments=(*common, *given, *own), name=model, stays=False)
        for model, given in list(models.items())[:MOST_MODELS]
    ]
    return found or [launch]


def _sections(text: str, file: str) -> tuple[list[Word], dict[str, list[Word]]]:
    """Return the words that hold for all models and those of each."""
    common: list[Word] = []
    models: dict[str, list[Word]] = {}
    words = common
    for number, line in enumerate(text.split("\n"), start=1):
        section = _SECTION.match(line)
        if section is not None:
            name = section[1].strip()
            words = common if name == "*" else models.setdefault(name, [])
            continue
        key, equals, value = line.partition("=")
        if not equals or line.lstrip().startswith(("#", ";")):
            continue
        words.extend(_words(key.strip(), value.strip(), Place(file, number)))
    return common, models


def _option(key: str) -> tuple[str, LlamaFlag] | None:
    """Return how an option of a key is spelt on the command line, and the option."""
    variable = flags_by_variable().get(key)
    if variable is not None:
        return variable.flag, variable
    for name in (key, f"--{key}", f"-{key}"):
        row = find_llama_flag(name)
        if row is not None and name.startswith("-"):
            return name, row
    return None


def _words(key: str, value: str, place: Place) -> Iterator[Word]:
    if key in ("version", "load-on-startup", "stop-timeout"):
        # Keys of the file, which are no options.
        return
    found = _option(key)
    spelt = found[0] if found is not None else f"--{key}"
    if found is not None and found[1].takes == "none":
        off = value.lower() in _OFF
        opposite = next((name for name in found[1].spellings if "no-" in name), None)
        if not off or opposite is not None:
            yield Word(opposite if off and opposite else spelt, place)
        return
    yield Word(spelt, place)
    yield Word(value, place)
