"""llama-server's arguments and variables as settings, parsed as llama-server does.

An argument is an option or refused; an option that takes a value takes the next word whatever it
looks like; there is no ``--option=value``; the last of an option counts, and an argument counts
more than its variable (llama.cpp ``common/arg.cpp``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from qwendeploy.auditing.reading.text import Place, Word
from qwendeploy.engines.llama_cpp.flags import LlamaFlag, find_llama_flag, flags_by_variable
from qwendeploy.image_names import image_name

_FLAG = re.compile(r"^-{1,2}[A-Za-z]")
_FORK_IN_NAME = re.compile(
    r"ik[_-]?llama|beellama|turboquant|prism|koboldcpp|croco|llama_cpp|fork", re.IGNORECASE
)
FORK_CACHE_TYPES = re.compile(r"^(?:turbo\d|tq\d_\d|q6_0|q8_KV|nvfp4|fp8)$", re.IGNORECASE)
"""Cache types that only forks of llama.cpp have (TurboQuant and ik_llama.cpp)."""
FORK_DRAFTS = frozenset({"mtp", "suffix", "dflash", "ngram", "prompt_lookup", "phantom"})
"""Ways to draft that only forks of llama.cpp have (ik_llama.cpp and forks of it)."""
_OFF = {"false", "0", "off", "disabled"}


@dataclass(frozen=True)
class LlamaSetting:
    """One option in effect; ``value`` is ``None`` for a switch, ``negative`` one that is off.

    ``row`` is ``None`` for what the server does not know.
    """

    row: LlamaFlag | None
    spelt: str
    value: str | None
    place: Place
    negative: bool = False
    joined: bool = False
    """Written ``--option=value``, which the server refuses."""
    of_variable: bool = False

    @property
    def flag(self) -> str:
        """Return the option's own name, as spelt where it is not known."""
        return self.row.flag if self.row is not None else self.spelt

    @property
    def symbolic(self) -> bool:
        """Whether the value is a variable that is not known here."""
        return self.value is not None and "$" in self.value


@dataclass(frozen=True)
class LlamaSettings:
    """All options in effect in order, variables first, and whether another project's are met."""

    settings: tuple[LlamaSetting, ...]
    fork: bool
    variables: tuple[Word, ...] = ()
    """Words that a variable alone makes: any number of arguments."""

    def last(self, flag: str) -> LlamaSetting | None:
        """Return the setting that counts."""
        return next((item for item in reversed(self.settings) if item.flag == flag), None)

    def text(self, flag: str) -> str | None:
        """Return an option's value, ``None`` where it is absent, a switch or not known here."""
        setting = self.last(flag)
        return None if setting is None or setting.symbolic else setting.value

    def on(self, flag: str) -> bool | None:
        """Say whether a switch is on, ``None`` where it is absent."""
        setting = self.last(flag)
        return None if setting is None else not setting.negative

    @property
    def images(self) -> Literal["on", "off", "found"]:
        """Say whether a projector is loaded; ``found``: where the repository has one."""
        if self.on("--mmproj-auto") is False:
            return "off"
        if any(self.last(flag) is not None for flag in ("--mmproj", "--mmproj-url")):
            return "on"
        return "found" if self.last("--hf-repo") is not None else "off"

    def whole(self, flag: str, default: int) -> int | None:
        """Return a whole number, the default where it is absent, ``None`` if it is not known."""
        setting = self.last(flag)
        if setting is None:
            return default
        # The server reads as far as there are digits.
        match = re.match(r"^-?\d{1,12}", setting.value or "")
        return None if setting.symbolic or match is None else int(match[0])


def read_llama(
    words: tuple[Word, ...], env: Mapping[str, Word], program: str = "", image: str | None = None
) -> LlamaSettings:
    """Return the settings of a llama-server; ``program`` is its path, ``image`` its container's.

    What somebody else built may have options of its own.
    """
    name = image_name(image or "")
    full = (name.tag or "").partition("-")[0] == "full"
    if full and words and words[0].text in ("--server", "-s"):
        # The entry point of the image with all tools, which starts one of them.
        words = words[1:]
    found = [item for name, word in env.items() for item in _of_variable(name, word)]
    index = 0
    while index < len(words):
        setting, index = _next_setting(words, index)
        if setting is not None:
            found.append(setting)
    fork = _FORK_IN_NAME.search(image or program) is not None
    own = name.publisher is None and name.path.rpartition("/")[2].startswith("llama.cpp")
    fork |= image is not None and not own
    fork |= any(item.row is not None and item.row.fork is not None for item in found)
    kinds = [item.value for item in found if item.flag in ("--cache-type-k", "--cache-type-v")]
    fork |= any(FORK_CACHE_TYPES.match(kind) for kind in kinds if kind)
    fork |= any(item.flag == "--spec-type" and item.value in FORK_DRAFTS for item in found)
    open_ended = tuple(word for word in words if word.symbolic and not _FLAG.match(word.text))
    taken = {(item.value, item.place) for item in found}
    alone = tuple(word for word in open_ended if (word.text, word.place) not in taken)
    return LlamaSettings(tuple(found), fork, alone)


def _next_setting(words: tuple[Word, ...], index: int) -> tuple[LlamaSetting | None, int]:
    """Return the setting at ``index`` and where the next one starts."""
    word = words[index]
    index += 1
    row = find_llama_flag(word.text)
    name, equals, value = word.text.partition("=")
    if row is None and equals and find_llama_flag(name) is not None:
        row = find_llama_flag(name)
        return LlamaSetting(row, name, value, word.place, joined=True), index
    if row is None:
        if not word.text or (word.symbolic and not _FLAG.match(word.text)):
            # A variable may be any number of words.
            return None, index
        following = words[index] if index < len(words) else None
        taken = _FLAG.match(word.text) and following and not _FLAG.match(following.text)
        text = following.text if taken and following is not None else None
        return LlamaSetting(None, word.text, text, word.place), index + bool(taken)
    count = {"none": 0, "pair": 2}.get(row.takes, 1)
    texts = [item.text for item in words[index : index + count]]
    negative = count == 0 and _NEGATIVE.match(word.text) is not None
    given = " ".join(texts) if texts else None
    if row.chosen and given is not None and find_llama_flag(given) is not None:
        # The server takes an option for the value and stops; the rest is read as it was meant.
        count = 0
    return LlamaSetting(row, word.text, given, word.place, negative), index + count


_NEGATIVE = re.compile(r"^--?no-|^-n[a-z]{2,}$")


def _of_variable(name: str, word: Word) -> list[LlamaSetting]:
    row = flags_by_variable().get(name)
    negative = False
    if row is None and name.startswith("LLAMA_ARG_NO_"):
        # Set to anything, it counts as off.
        row, negative = flags_by_variable().get(name.replace("_NO_", "_", 1)), True
    if row is None or not word.text:
        return []
    value = None if row.takes == "none" else word.text
    negative |= row.takes == "none" and word.text.lower() in _OFF
    return [LlamaSetting(row, name, value, word.place, negative, of_variable=True)]
