"""A launch while it is corrected, and its text: a command quoted anew, or a fragment to paste."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from qwendeploy.auditing.settings import SPEC
from qwendeploy.auditing.understand import Understood


@dataclass
class Draft:
    """The arguments while they are corrected."""

    understood: Understood
    flags: list[tuple[str, str | None]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    container: list[str] = field(default_factory=list)
    """Words for the container program, before the image."""
    lists: Mapping[tuple[str, str | None], tuple[str, ...]] = field(default_factory=dict)
    """The words of flags that take several."""

    def set(self, name: str, value: str | None) -> None:
        """Give a flag a value, in its place if it is there."""
        self.remove(*_opposites(name), keep=name)
        for index, (known, _) in enumerate(self.flags):
            if known == name:
                self.flags[index] = (name, value)
                return
        self.flags.append((name, value))

    def remove(self, *names: str, keep: str | None = None) -> None:
        """Take flags out."""
        self.flags = [item for item in self.flags if item[0] not in names or item[0] == keep]

    def spec(self, change: Callable[[dict[str, object]], None]) -> None:
        """Rewrite the speculative configuration as one JSON value."""
        config: dict[str, object] = dict(self.understood.spec.values)
        for name, value in self.flags:
            if name == SPEC and value is not None and value.startswith("{"):
                try:
                    config = json.loads(value)
                except ValueError:
                    continue
        change(config)
        dotted = [name for name, _ in self.flags if name.startswith(f"{SPEC}.")]
        self.remove(*dotted)
        if config:
            self.set(SPEC, json.dumps(config, separators=(",", ":")))
        else:
            self.remove(SPEC)


def _opposites(name: str) -> tuple[str, ...]:
    if name.startswith("--no-"):
        return (name, f"--{name.removeprefix('--no-')}")
    return (name, f"--no-{name.removeprefix('--')}") if name.startswith("--enable-") else (name,)


def argument_words(draft: Draft) -> list[str]:
    """Return the arguments as words: the model where it stands alone, then every flag."""
    words = _positional(draft)
    for name, value in draft.flags:
        words += [name, *_values(draft, name, value)]
    return words


def _positional(draft: Draft) -> list[str]:
    arguments = draft.understood.arguments
    if arguments.model is None or arguments.last("--model") is not None:
        return []
    return [arguments.model.text]


def _values(draft: Draft, name: str, value: str | None) -> Sequence[str]:
    if value is None or (value == "true" and name.startswith("--enable-")):
        return ()
    return draft.lists.get((name, value), (value,))


def render(draft: Draft) -> str:
    launch = draft.understood.launch
    positional = [shell_quoted(word) for word in _positional(draft)]
    arguments = [
        " ".join([name, *map(shell_quoted, _values(draft, name, value))])
        for name, value in draft.flags
    ]
    if launch.runtime == "none":
        program = {"vllm": "vllm serve", "llama.cpp": "llama-server"}.get(
            launch.engine, "vllm serve"
        )
        prefix = [f"{name}={shell_quoted(value)}" for name, value in draft.env.items()]
        return _lines([*prefix, program, *positional], arguments)
    if launch.runtime == "kubernetes" or not launch.before:
        return _fragment(draft)
    return _lines(_container_words(draft), [*positional, *arguments])


def _container_words(draft: Draft) -> list[str]:
    """Return the words up to the engine's arguments, with variables and devices corrected."""
    launch = draft.understood.launch
    words: list[str] = []
    texts = [word.text for word in launch.before]
    image = launch.container.image.text if launch.container and launch.container.image else ""
    index = 0
    placed = False
    while index < len(texts):
        text = texts[index]
        name, step = _variable_at(texts, index)
        if name is not None:
            if name in draft.env:
                words.append(f"-e {shell_quoted(f'{name}={draft.env[name]}')}")
            index += step
            continue
        if text == image and not placed:
            placed = True
            words.extend(draft.container)
            known = {_variable_at(texts, at)[0] for at in range(len(texts))}
            extra = [key for key in draft.env if key not in known and key not in launch.env]
            words.extend(f"-e {shell_quoted(f'{key}={draft.env[key]}')}" for key in extra)
        words.append(shell_quoted(text))
        index += 1
    return words


def _variable_at(texts: list[str], index: int) -> tuple[str | None, int]:
    """Return the variable that stands at an index and how many words it takes."""
    text = texts[index]
    if text in ("-e", "--env") and index + 1 < len(texts):
        return texts[index + 1].partition("=")[0], 2
    if text.startswith("--env="):
        return text.removeprefix("--env=").partition("=")[0], 1
    return None, 1


def _fragment(draft: Draft) -> str:
    """Return ``command`` (compose) or ``args`` (Kubernetes) with the variables, to paste."""
    key = "args" if draft.understood.launch.runtime == "kubernetes" else "command"
    lines = [f"{key}:", *(f"  - {json.dumps(word)}" for word in argument_words(draft))]
    if draft.env:
        lines.append("environment:" if key == "command" else "env:")
        for name, value in draft.env.items():
            if key == "command":
                lines.append(f"  {name}: {json.dumps(value)}")
            else:
                lines.append(f"  - {{name: {name}, value: {json.dumps(value)}}}")
    return "\n".join(lines) + "\n"


def shell_quoted(text: str) -> str:
    """Return text quoted for a shell; variables and a leading ``~/`` stay what they are."""
    if text.startswith("~/"):
        return "~/" + shell_quoted(text[2:])
    if "$" not in text:
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`")
    return f'"{escaped}"'


def _lines(head: list[str], arguments: list[str]) -> str:
    first = " ".join(head)
    return " \\\n  ".join([first, *arguments]) + "\n"
