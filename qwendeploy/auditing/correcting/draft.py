"""A launch during correction, and its text: a new command or a fragment to paste."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from qwendeploy.auditing.understanding.settings import SPEC
from qwendeploy.auditing.understanding.understand import Understood

PROGRAMS = {"vllm": ("vllm", "serve"), "llama.cpp": ("/app/llama-server",)}
"""Words that start the engine in its project's image (the entry points of vllm/vllm-openai and
ghcr.io/ggml-org/llama.cpp)."""


@dataclass
class Draft:
    """The arguments while they are corrected."""

    understood: Understood
    flags: list[tuple[str, str | None]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    container: list[str] = field(default_factory=list)
    """Words for the container program, before the image."""
    direct: bool = False
    """Nothing stands between the image and the arguments: its entry point is the program."""
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
    if draft.understood.llama is not None:
        return []
    if arguments.model is None or arguments.last("--model") is not None:
        return []
    return [arguments.model.text]


def _values(draft: Draft, name: str, value: str | None) -> Sequence[str]:
    if value is None or (value == "true" and name.startswith("--enable-")):
        return ()
    return draft.lists.get((name, value), (value,))


def render(draft: Draft) -> str:
    """Return the corrected launch in its own form: a command, or what to paste into its file."""
    launch = draft.understood.launch
    if launch.runtime == "kubernetes" or (launch.runtime != "none" and not launch.before):
        return fragment(draft)
    if launch.service is not None:
        return unit(draft, command(draft))
    return command(draft)


def command(draft: Draft) -> str:
    """Return the corrected launch as a shell command."""
    launch = draft.understood.launch
    positional = [shell_quoted(word) for word in _positional(draft)]
    arguments = [
        " ".join([name, *map(shell_quoted, _values(draft, name, value))])
        for name, value in draft.flags
    ]
    if launch.runtime == "none":
        named = "llama-server" if launch.engine == "llama.cpp" else "vllm serve"
        program = launch.program or named
        env = {} if launch.service is not None else draft.env
        prefix = [f"{name}={shell_quoted(value)}" for name, value in env.items()]
        return _lines([*prefix, program, *positional], arguments)
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
        elif placed and draft.direct:
            index += 1
            continue
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


def fragment(draft: Draft) -> str:
    """Return what to paste into a compose file, manifest, quadlet or Dockerfile."""
    from qwendeploy.auditing.correcting import fragments

    words = argument_words(draft)
    launch = draft.understood.launch
    program = PROGRAMS.get(launch.engine, ()) if launch.states_program else ()
    if launch.runtime == "kubernetes":
        cards = int(draft.understood.number("tp") or 1)
        return fragments.manifest(program, words, draft.env, draft.container, cards)
    box = launch.container
    image = box.image.text if box is not None and box.image is not None else ""
    if launch.service is not None:
        return fragments.quadlet(image, words, draft.env, draft.container)
    if box is not None and box.gpus is None and not box.opaque:
        return fragments.dockerfile(image, launch.program, words, draft.env)
    return fragments.compose(program, words, draft.env, draft.container)


def unit(draft: Draft, text: str) -> str:
    """Return a unit's service section around a command."""
    lines = [f'Environment="{name}={value}"' for name, value in draft.env.items()]
    if draft.understood.launch.runtime != "none":
        lines = []
    return "\n".join(["[Service]", *lines, f"ExecStart={text}"])


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
