"""``--fix`` for llama-server: applies one finding after another to its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qwendeploy.auditing.judging.findings import Finding
from qwendeploy.auditing.understanding.llama_settings import LlamaSetting, LlamaSettings
from qwendeploy.engines.llama_cpp.flags import find_llama_flag

Item = tuple[str, str | None]
"""An option as spelt with its value, or a word that belongs to none."""
Edit = Callable[[list[Item], Finding], list[Item]]


def written(settings: LlamaSettings) -> list[Item]:
    """Return the arguments of a llama-server, without those of the environment's variables."""
    stated = [item for item in settings.settings if not item.of_variable]
    return [
        *((setting.spelt, _value(setting)) for setting in stated),
        *((word.text, None) for word in settings.variables),
    ]


def _value(setting: LlamaSetting) -> str | None:
    row = setting.row
    swallowed = row is not None and row.chosen and setting.value is not None
    if swallowed and find_llama_flag(setting.value or "") is not None:
        # The option behind it stands there itself.
        return None
    return setting.value


def corrected(items: list[Item], finding: Finding) -> list[Item] | None:
    """Return the arguments with one finding corrected, ``None`` if that is the author's choice."""
    edit = _EDITS.get(finding.id)
    return edit(items, finding) if edit is not None else None


def _set(items: list[Item], text: str) -> list[Item]:
    """Give options the values of a text such as ``--cache-type-k q8_0 --cache-type-v q8_0``."""
    words = text.split()
    for name, value in zip(words[::2], words[1::2], strict=False):
        row = find_llama_flag(name)
        known = [at for at, item in enumerate(items) if find_llama_flag(item[0]) is row]
        if row is None or not value:
            continue
        if known:
            items = [*items[: known[-1]], (items[known[-1]][0], value), *items[known[-1] + 1 :]]
        else:
            items = [*items, (name, value)]
    return items


def _as_told(items: list[Item], finding: Finding) -> list[Item]:
    told = finding.fix.partition(", ")[0].partition(" gives ")[0]
    return _set(items, told) if told.startswith("--") else items


def _renamed(items: list[Item], finding: Finding) -> list[Item]:
    """Write the successor in place of an option that is gone or that nobody knows."""
    to = finding.fix.removeprefix("use ") if finding.fix.startswith("use --") else ""
    words = to.partition(" in place of ")[0].split()
    result: list[Item] = []
    for spelt, value in items:
        if spelt != finding.about:
            result.append((spelt, value))
            continue
        successors: list[Item] = []
        for word in words if spelt != "--mmap" else ():
            if word.startswith("--"):
                successors.append((word, value))
            elif successors and word != "and":
                successors[-1] = (successors[-1][0], word)
        if any(_refuses(name, given) for name, given in successors):
            return items
        result += successors
    return result


def _refuses(name: str, value: str | None) -> bool:
    row = find_llama_flag(name)
    return row is not None and value is not None and row.refused(value) is not None


_EDITS: Mapping[str, Edit] = {
    "bad-flag-value": _as_told,
    "cache-types-unlike": _as_told,
    "v-cache-needs-flash-attn": _as_told,
    "gguf-does-not-fit": _as_told,
    "slots-share-context": _as_told,
    "context-above-native": _as_told,
    "layers-on-host": _as_told,
    "flag-and-value-in-one-argument": lambda items, _finding: list(items),
    "removed-flag": _renamed,
    "unknown-flag": _renamed,
    "stray-argument": lambda items, finding: [item for item in items if item[0] != finding.about],
}
"""What each finding changes. An option joined to its value is written apart by being written."""
