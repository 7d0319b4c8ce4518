"""``--fix``: the command with what can be corrected by rule, quoted anew; the rest is named.

The corrected text is a command or a fragment to paste, never a file overwritten: what the reader
did not understand must stay the author's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from qwendeploy.auditing.correcting.correct_llama import corrected as corrected_llama
from qwendeploy.auditing.correcting.correct_llama import written as written_llama
from qwendeploy.auditing.correcting.draft import Draft, argument_words, render, shell_quoted
from qwendeploy.auditing.judging.findings import Finding
from qwendeploy.auditing.judging.judge import Judged, judge_launch
from qwendeploy.auditing.reading.launch import ForeignLaunch, VisibleGpus
from qwendeploy.auditing.reading.text import Word, whole_number
from qwendeploy.auditing.understanding.settings import SHORTCUTS, ReadSetting, read_arguments
from qwendeploy.auditing.understanding.understand import Understood

PARSER = "qwen3_xml"
"""Tool parser of our own plans: both XML parsers read this model's calls (vLLM documentation)."""


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
    first = finding.fix.partition(",")[0]
    if first == "--enable-chunked-prefill":
        draft.set(first, None)
        return
    if first.startswith("remove --"):
        draft.remove(first.removeprefix("remove "))
        return
    flag, _, value = finding.fix.partition(" ")
    if flag.startswith("--") and value and " " not in value:
        draft.set(flag, value)


def _drop_or_rename(draft: Draft, finding: Finding) -> None:
    near = finding.fix.removeprefix("use ") if finding.fix.startswith("use ") else None
    if finding.about in SHORTCUTS:
        _fold_shortcuts(draft)
        return
    value = next((value for name, value in draft.flags if name == finding.about), None)
    index = next((at for at, item in enumerate(draft.flags) if item[0] == finding.about), None)
    draft.remove(finding.about)
    if near and near.startswith("-") and finding.id == "unknown-flag" and index is not None:
        draft.flags.insert(index, (near, value))


def _fold_shortcuts(draft: Draft) -> None:
    given = {SHORTCUTS[name]: value for name, value in draft.flags if name in SHORTCUTS}
    draft.remove(*SHORTCUTS)

    def merge(config: dict[str, object]) -> None:
        for key, value in given.items():
            number = whole_number(value or "")
            config[key] = value if number is None else number

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


def _with_key(key: str, value: object) -> Edit:
    def add(config: dict[str, object]) -> None:
        config.setdefault(key, value)

    return lambda draft, _finding: draft.spec(add)


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
    if "--ipc=host" not in draft.container:
        draft.container.append("--ipc=host")


def _mount_cache(draft: Draft, finding: Finding) -> None:
    # The rule of the same name speaks of a variable; only the missing volume is plain to correct.
    volume = f'"{finding.fix.removeprefix("-v ")}"'
    if finding.rule is None and volume not in draft.container:
        draft.container += ["-v", volume]


def _to_the_container(draft: Draft, finding: Finding) -> None:
    for name, value in draft.flags:
        if name == finding.about:
            draft.container += [name, shell_quoted(value)] if value is not None else [name]
    draft.remove(finding.about)


def _capture(draft: Draft, _finding: Finding) -> None:
    seats = draft.understood.number("max_num_seqs")
    tokens = draft.understood.spec_tokens
    if seats is not None and tokens is not None:
        draft.set("--max-cudagraph-capture-size", str(int(seats) * (1 + tokens)))


_LOWER_SHARE = re.compile(r"^--gpu-memory-utilization (0\.\d+)")


def _share(draft: Draft, finding: Finding) -> None:
    match = _LOWER_SHARE.match(finding.fix)
    if match is not None:
        draft.set("--gpu-memory-utilization", match[1])


def _entry_alone(draft: Draft, _finding: Finding) -> None:
    draft.direct = True


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
    "tool-parser-of-other-model": _flag("--tool-call-parser", PARSER),
    "reasoning-parser-other": _flag("--reasoning-parser", "qwen3"),
    "util-too-high": _share,
    "unified-memory-util": _share,
    "fp8-e5m2-with-fp8-weights": _flag("--kv-cache-dtype", "fp8"),
    "fp8-kv-with-flash-attn": _without("--attention-backend"),
    "float16-before-ampere": _flag("--dtype", "float16"),
    "deep-gemm-warm-up-on-sm12": _variable("VLLM_USE_DEEP_GEMM", "0"),
    "async-scheduling-with-ngram": _without("--async-scheduling"),
    "async-scheduling-unpadded-drafts": _without("--async-scheduling"),
    "hybrid-cache-manager-off": _without("--disable-hybrid-kv-cache-manager"),
    "partial-prefills-unsupported": _without(
        "--max-num-partial-prefills", "--max-long-partial-prefills"
    ),
    "ssm-layout-with-mtp": _without_variable("VLLM_SSM_CONV_STATE_LAYOUT"),
    "p2p-hangs-and-is-on": _variable("NCCL_P2P_DISABLE", "1"),
    "p2p-hangs-in-own-all-reduce": _flag("--disable-custom-all-reduce"),
    "speculative-tokens-missing": _with_key("num_speculative_tokens", 3),
    "quantization-mismatch": _without("--quantization"),
    "expert-parallel-on-dense": _without("--enable-expert-parallel"),
    "trust-remote-code-unneeded": _without("--trust-remote-code"),
    "cudagraph-capture-too-small": _capture,
    "p2p-env-inverted": _variable("NCCL_P2P_DISABLE", "1"),
    "ignored-env": _drop_variable,
    "wsl2-expandable-segments": _without_variable("PYTORCH_CUDA_ALLOC_CONF"),
    "no-gpu-passed": _pass_gpus,
    "shared-memory-for-tensor-parallel": _share_memory,
    "weights-not-cached": _mount_cache,
    "entry-point-repeated": _entry_alone,
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
    draft = _draft(judged.understood)
    changed, left = _edited(draft, judged.findings)
    for _ in range(_MOST_ROUNDS):
        # A correction can bring the next fault to light, as a length that fits does with seats.
        again = judge_launch(_launch_of(draft), judged.understood.context)
        more, left_now = _edited(draft, again.findings)
        known = {found.id for found in left}
        left += [found for found in left_now if found.id not in known]
        if not more:
            break
        changed += more
        left = [found for found in left if found.id not in {done.id for done in more}]
    return Corrected(render(draft), tuple(changed), tuple(left))


_MOST_ROUNDS = 4


def _draft(understood: Understood) -> Draft:
    env = {name: word.text for name, word in understood.launch.env.items()}
    if understood.llama is not None:
        return Draft(understood, written_llama(understood.llama), env)
    return Draft(
        understood,
        [_written(setting) for setting in understood.arguments.settings],
        env,
        lists={
            (setting.name, setting.value): setting.values
            for setting in understood.arguments.settings
            if len(setting.values) > 1
        },
    )


def _launch_of(draft: Draft) -> ForeignLaunch:
    """Return the launch as it is drafted: arguments, variables, cards and shared memory."""
    launch = draft.understood.launch
    container = launch.container
    if container is not None and {"--gpus", "--device"} & set(draft.container):
        container = replace(container, gpus=VisibleGpus(True, None, (), launch.place))
    if container is not None and "--ipc=host" in draft.container:
        container = replace(container, shared_memory=True)
    if container is not None and "-v" in draft.container:
        mounts = tuple(Word(text.strip('"'), launch.place) for text in draft.container)
        container = replace(container, volumes=(*container.volumes, *mounts))
    return replace(
        launch,
        arguments=tuple(Word(text, launch.place) for text in argument_words(draft)),
        env={name: Word(value, launch.place) for name, value in draft.env.items()},
        container=container,
        lost=(),
        repeated=None,
    )


def _edited(draft: Draft, findings: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Correct what has one plain correction; return what was changed and what was left."""
    changed: list[Finding] = []
    left: list[Finding] = []
    for finding in findings:
        llama = draft.understood.llama
        edit = EDITS.get(finding.id)
        if llama is not None and (items := corrected_llama(draft.flags, finding)) is not None:
            joined = finding.id == "flag-and-value-in-one-argument"
            if finding.severity != "info" and (joined or items != draft.flags):
                draft.flags = items
                changed.append(finding)
            elif finding.severity != "info":
                left.append(finding)
            continue
        if edit is None:
            if finding.severity != "info":
                left.append(finding)
            continue
        if finding.severity == "info" and finding.id != "prefix-caching-unset":
            continue
        before = (list(draft.flags), dict(draft.env), list(draft.container), draft.direct)
        edit(draft, finding)
        after = (draft.flags, draft.env, draft.container, draft.direct)
        if before != after:
            changed.append(finding)
        elif finding.severity != "info":
            left.append(finding)
    return changed, left


def _written(setting: ReadSetting) -> tuple[str, str | None]:
    if setting.status.negative:
        return setting.spelt, None
    return (setting.spelt if not setting.known else setting.name), setting.value
