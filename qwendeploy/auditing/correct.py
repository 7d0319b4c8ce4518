"""``--fix``: the command with what can be corrected by rule, quoted anew; the rest is named.

The corrected text is a command or a fragment to paste, never a file overwritten: what the reader
did not understand must stay the author's.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from qwendeploy.auditing.findings import Finding
from qwendeploy.auditing.judge import Judged
from qwendeploy.auditing.settings import SPEC, Setting, read_arguments
from qwendeploy.auditing.text import Word
from qwendeploy.auditing.understand import Understood

PARSER = "qwen3_xml"
"""Tool parser of our own plans: both XML parsers read this model's calls (vLLM documentation)."""


@dataclass
class Draft:
    """The arguments while they are corrected."""

    understood: Understood
    flags: list[tuple[str, str | None]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    container: list[str] = field(default_factory=list)
    """Words for the container program, before the image."""

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


Edit = Callable[[Draft, Finding], None]


def _first_number(text: str) -> str | None:
    return next((part for part in text.replace(",", "").split() if part.isdigit()), None)


def _from_fix(flag: str) -> Edit:
    def edit(draft: Draft, finding: Finding) -> None:
        number = _first_number(finding.fix)
        if number is not None:
            draft.set(flag, number)

    return edit


def _split_argument(draft: Draft, finding: Finding) -> None:
    for index, (name, value) in enumerate(draft.flags):
        flag, blank, rest = name.partition(" ")
        if blank and flag == finding.about and value is None:
            draft.flags[index] = (flag, rest.strip())


def _take_up_lost(draft: Draft, _finding: Finding) -> None:
    understood = draft.understood
    lost = read_arguments(understood.launch.lost, understood.engine_version, fork=understood.fork)
    draft.flags += [_written(setting) for setting in lost.settings]


def _from_fix_text(draft: Draft, finding: Finding) -> None:
    flag, _, value = finding.fix.partition(" ")
    if flag.startswith("--") and value and " " not in value:
        draft.set(flag, value)


def _drop_or_rename(draft: Draft, finding: Finding) -> None:
    near = finding.fix.removeprefix("use ") if finding.fix.startswith("use ") else None
    shortcuts = {"--spec-method", "--spec-tokens", "--spec-model"}
    if finding.about in shortcuts:
        _fold_shortcuts(draft, shortcuts)
        return
    value = next((value for name, value in draft.flags if name == finding.about), None)
    index = next((at for at, item in enumerate(draft.flags) if item[0] == finding.about), None)
    draft.remove(finding.about)
    if near and near.startswith("-") and finding.id == "unknown-flag" and index is not None:
        draft.flags.insert(index, (near, value))


def _fold_shortcuts(draft: Draft, names: set[str]) -> None:
    keys = {"--spec-method": "method", "--spec-tokens": "num_speculative_tokens"}
    keys["--spec-model"] = "model"
    given = {keys[name]: value for name, value in draft.flags if name in names}
    draft.remove(*names)

    def merge(config: dict[str, object]) -> None:
        for key, value in given.items():
            config[key] = int(value) if value and value.isdigit() else value

    draft.spec(merge)


def _spec_key(draft: Draft, finding: Finding) -> None:
    key = finding.about.split()[0]
    near = finding.fix.removeprefix("write ") if finding.fix.startswith("write ") else None

    def rename(config: dict[str, object]) -> None:
        value = config.pop(key, None)
        if near is not None and value is not None:
            config.setdefault(near, value)

    draft.spec(rename)


def _without_key(key: str) -> Edit:
    def drop(config: dict[str, object]) -> None:
        config.pop(key, None)

    return lambda draft, _finding: draft.spec(drop)


def _flag(name: str, value: str | None = None) -> Edit:
    return lambda draft, _finding: draft.set(name, value)


def _without(*names: str) -> Edit:
    return lambda draft, _finding: draft.remove(*names)


def _variable(name: str, value: str) -> Edit:
    def edit(draft: Draft, _finding: Finding) -> None:
        draft.env[name] = value

    return edit


def _without_variable(name: str) -> Edit:
    def edit(draft: Draft, _finding: Finding) -> None:
        draft.env.pop(name, None)

    return edit


def _drop_variable(draft: Draft, finding: Finding) -> None:
    name = finding.about.split("=")[0].split()[0]
    value = draft.env.pop(name, None)
    if name == "VLLM_ATTENTION_BACKEND" and value and "$" not in value:
        draft.set("--attention-backend", value)


def _share_memory(draft: Draft, _finding: Finding) -> None:
    draft.container.append("--ipc=host")


def _mount_cache(draft: Draft, finding: Finding) -> None:
    # The rule of the same name speaks of a variable; only the missing volume is plain to correct.
    if finding.rule is None:
        draft.container += ["-v", f'"{finding.fix.removeprefix("-v ")}"']


def _to_the_container(draft: Draft, finding: Finding) -> None:
    for name, value in draft.flags:
        if name == finding.about:
            draft.container += [name, _shell(value)] if value is not None else [name]
    draft.remove(finding.about)


def _capture(draft: Draft, _finding: Finding) -> None:
    seats = draft.understood.number("max_num_seqs")
    tokens = draft.understood.spec_tokens
    if seats is not None and tokens is not None:
        draft.set("--max-cudagraph-capture-size", str(int(seats) * (1 + tokens)))


def _pass_gpus(draft: Draft, _finding: Finding) -> None:
    podman = draft.understood.launch.runtime == "podman"
    if "--gpus" not in draft.container:
        draft.container += ["--device", "nvidia.com/gpu=all"] if podman else ["--gpus", "all"]


EDITS: Mapping[str, Edit] = {
    "unknown-flag": _drop_or_rename,
    "container-option-after-image": _to_the_container,
    "removed-flag": _drop_or_rename,
    "flag-and-value-in-one-argument": _split_argument,
    "line-not-continued": _take_up_lost,
    "bad-flag-value": _from_fix_text,
    "unknown-speculative-key": _spec_key,
    "argmax-reduction-with-mtp": _without_key("use_local_argmax_reduction"),
    "argmax-reduction-on-v13": _without_key("use_local_argmax_reduction"),
    "gumbel-drafts": _without_key("draft_sample_method"),
    "kv-too-small-for-max-model-len": _from_fix("--max-model-len"),
    "max-num-seqs-above-blocks": _from_fix("--max-num-seqs"),
    "block-above-batched-tokens": _from_fix("--max-num-batched-tokens"),
    "prefix-caching-with-mtp": _flag("--no-enable-prefix-caching"),
    "prefix-caching-unset": _flag("--no-enable-prefix-caching"),
    "tool-choice-without-parser": _flag("--tool-call-parser", PARSER),
    "tool-parser-without-auto-choice": _flag("--enable-auto-tool-choice"),
    "hermes-parser": _flag("--tool-call-parser", PARSER),
    "expert-parallel-on-dense": _without("--enable-expert-parallel"),
    "trust-remote-code-unneeded": _without("--trust-remote-code"),
    "cudagraph-capture-too-small": _capture,
    "p2p-env-inverted": _variable("NCCL_P2P_DISABLE", "1"),
    "ignored-env": _drop_variable,
    "wsl2-expandable-segments": _without_variable("PYTORCH_CUDA_ALLOC_CONF"),
    "no-gpu-passed": _pass_gpus,
    "shared-memory-for-tensor-parallel": _share_memory,
    "weights-not-cached": _mount_cache,
}
"""What each finding changes; findings without an entry need a decision that is the author's."""


@dataclass(frozen=True)
class Corrected:
    """The corrected text, what was changed in it, and what was left to decide."""

    text: str
    changed: tuple[Finding, ...]
    left: tuple[Finding, ...]


def correct(judged: Judged) -> Corrected:
    """Return the launch with every finding corrected that has one plain correction."""
    understood = judged.understood
    draft = Draft(
        understood,
        [_written(setting) for setting in understood.arguments.settings],
        {name: word.text for name, word in understood.launch.env.items()},
    )
    changed: list[Finding] = []
    left: list[Finding] = []
    for finding in judged.findings:
        edit = EDITS.get(finding.id)
        if edit is None:
            if finding.severity != "info":
                left.append(finding)
            continue
        if finding.severity == "info" and finding.id != "prefix-caching-unset":
            continue
        before = (list(draft.flags), dict(draft.env), list(draft.container))
        edit(draft, finding)
        after = (draft.flags, draft.env, draft.container)
        if before != after:
            changed.append(finding)
        elif finding.severity != "info":
            left.append(finding)
    return Corrected(_render(draft), tuple(changed), tuple(left))


def _written(setting: Setting) -> tuple[str, str | None]:
    if setting.status.negative:
        return setting.spelt, None
    return (setting.spelt if not setting.known else setting.name), setting.value


def _render(draft: Draft) -> str:
    understood = draft.understood
    launch = understood.launch
    model = understood.arguments.model
    positional = [_quoted(model)] if model is not None and not _named_model(understood) else []
    arguments = [_argument(name, value) for name, value in draft.flags]
    if launch.runtime == "none":
        program = {"vllm": "vllm serve", "llama.cpp": "llama-server"}.get(
            launch.engine, "vllm serve"
        )
        prefix = [f"{name}={_shell(value)}" for name, value in draft.env.items()]
        return _lines([*prefix, program, *positional], arguments)
    if launch.runtime == "kubernetes" or not launch.before:
        return _fragment(draft, positional)
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
                words.append(f"-e {_shell(f'{name}={draft.env[name]}')}")
            index += step
            continue
        if text == image and not placed:
            placed = True
            words.extend(draft.container)
            known = {_variable_at(texts, at)[0] for at in range(len(texts))}
            extra = [key for key in draft.env if key not in known and key not in launch.env]
            words.extend(f"-e {_shell(f'{key}={draft.env[key]}')}" for key in extra)
        words.append(_quoted(launch.before[index]))
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


def _fragment(draft: Draft, positional: list[str]) -> str:
    """Return ``command`` (compose) or ``args`` (Kubernetes) with the variables, to paste."""
    key = "args" if draft.understood.launch.runtime == "kubernetes" else "command"
    model = draft.understood.arguments.model
    words = [model.text] if positional and model is not None else []
    for name, value in draft.flags:
        words.append(name)
        if value is not None:
            words.append(value)
    lines = [f"{key}:", *(f"  - {json.dumps(word)}" for word in words)]
    if draft.env:
        lines.append("environment:" if key == "command" else "env:")
        for name, value in draft.env.items():
            if key == "command":
                lines.append(f"  {name}: {json.dumps(value)}")
            else:
                lines.append(f"  - {{name: {name}, value: {json.dumps(value)}}}")
    return "\n".join(lines) + "\n"


def _named_model(understood: Understood) -> bool:
    return understood.arguments.last("--model") is not None


def _argument(name: str, value: str | None) -> str:
    if value is None or (value == "true" and name.startswith("--enable-")):
        return name
    return f"{name} {_shell(value)}"


def _quoted(word: Word) -> str:
    return _shell(word.text)


def _shell(text: str) -> str:
    """Return text quoted for a shell; variables stay variables."""
    if "$" not in text:
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`")
    return f'"{escaped}"'


def _lines(head: list[str], arguments: list[str]) -> str:
    first = " ".join(head)
    return " \\\n  ".join([first, *arguments]) + "\n"
