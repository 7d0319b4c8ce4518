"""Findings about the command line: flags, values, JSON, variables, line continuations."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator

from qwendeploy.auditing.judging.findings import Finding, Severity, stated_flag
from qwendeploy.auditing.understanding.settings import SPEC, ReadSetting
from qwendeploy.auditing.understanding.understand import Understood
from qwendeploy.engines.vllm.flags import (
    FlagStatus,
    ReleaseStatus,
    flag_status,
    nearest_choice,
    spec_config_problems,
    value_problem,
)

CONTAINER_OPTIONS = frozenset(
    """
    --gpus --ipc --shm-size --runtime --device --privileged --restart --rm --name --network --net
    --volume --env --env-file --publish --ulimit --user --entrypoint --security-opt --cap-add
    --mount --detach --hostname -e -v -p -d -it -ti
    """.split()  # noqa: SIM905
)
"""Options of ``docker run`` that the engine does not have (both reference pages)."""


def flag_findings(understood: Understood) -> Iterator[Finding]:
    """Yield what the release's parser says of every flag, and of words that belong to none."""
    if understood.launch.engine != "vllm":
        return
    for setting in understood.arguments.settings:
        yield from _of_flag(understood, setting)
    for word in understood.arguments.strays:
        if "$" in word.text or understood.arguments.last("--model") is not None:
            continue
        yield Finding(
            "stray-argument",
            "error",
            word.text,
            word.place,
            f"{word.text!r} is not the value of any flag; vLLM exits with 'unrecognized arguments'",
            "quote it together with its flag, or remove it",
            "fails_at_start",
        )


_NUMBERS = frozenset({"int", "float", "size", "size_or_auto"})


def _of_flag(understood: Understood, setting: ReadSetting) -> Iterator[Finding]:
    status = setting.status
    release = understood.engine_version or "an unknown version"
    if not setting.known:
        yield _unknown_flag(understood, setting, release)
        return
    if status.row is None or setting.symbolic or "." in setting.name.removeprefix("--"):
        return
    if setting.name == SPEC:
        return
    value = None if status.negative else setting.value
    if value is None and (status.negative or not status.row.takes_value):
        return
    problem = value_problem(status.row, value)
    if problem is not None:
        near = nearest_choice(status.row, value or "")
        sure = status.checked and understood.engine_version is not None
        # a number without a digit is none in any release
        sure |= bool(value) and status.row.type in _NUMBERS and not re.search(r"\d", str(value))
        yield Finding(
            "bad-flag-value",
            "error" if sure else "warning",
            setting.spelt,
            setting.place,
            f"{problem} (vLLM {release})",
            f"{setting.name} {near}"
            if near is not None
            else f"give {setting.spelt} a value that this release accepts",
            "fails_at_start" if sure else None,
        )


def _unknown_flag(understood: Understood, setting: ReadSetting, release: str) -> Finding:
    status = setting.status
    if " " in setting.spelt.strip():
        flag, _, value = setting.spelt.strip().partition(" ")
        return Finding(
            "flag-and-value-in-one-argument",
            "error",
            flag,
            setting.place,
            f"vLLM receives {setting.spelt!r} as one argument and does not recognize it",
            f"write two list items, {flag} and {value.strip()}, or {flag}={value.strip()}",
            "fails_at_start",
        )
    if understood.launch.container is not None and setting.spelt in CONTAINER_OPTIONS:
        given = f"{setting.spelt} {setting.value}" if setting.value else setting.spelt
        return Finding(
            "container-option-after-image",
            "error",
            setting.spelt,
            setting.place,
            f"{given} comes after the image name, so it goes to vLLM, which does not recognize it",
            f"move {given} before the image name",
            "fails_at_start",
        )
    removed = status.status is ReleaseStatus.REMOVED
    severity = _flag_severity(understood, status)
    near = f"; nearest is {status.nearest}" if status.nearest else ""
    return Finding(
        "removed-flag" if removed else "unknown-flag",
        severity,
        setting.spelt,
        setting.place,
        f"{status.message}; vLLM {release} exits with 'unrecognized arguments'"
        if severity == "error"
        else f"{status.message}; not checked for {understood.image or 'this engine'}",
        f"remove {setting.spelt}{near}" if not status.nearest else f"use {status.nearest}",
        "fails_at_start" if severity == "error" else None,
    )


def _flag_severity(understood: Understood, status: FlagStatus) -> Severity:
    if understood.fork or understood.context.vendor != "nvidia":
        return "info"
    if understood.engine_version is None:
        return "warning" if status.status is ReleaseStatus.UNKNOWN else "info"
    return "error" if status.checked or status.status is ReleaseStatus.UNKNOWN else "warning"


def text_findings(understood: Understood) -> Iterator[Finding]:
    """Yield mistakes in how the command is written: missing backslashes, a repeated entry point."""
    launch = understood.launch
    if launch.lost:
        flags = [word.text for word in launch.lost if word.text.startswith("-")]
        yield Finding(
            "line-not-continued",
            "error",
            flags[0],
            launch.lost[0].place,
            f"the previous line does not end in a backslash, so {', '.join(flags[:4])} "
            "never reach the server",
            "end every line except the last with a backslash; no space or comment after it",
            "degraded",
        )
    if launch.repeated is not None:
        yield Finding(
            "entry-point-repeated",
            "error",
            launch.repeated.text,
            launch.repeated.place,
            f"the image already runs vllm serve, so {launch.repeated.text!r} becomes its first "
            "argument and the start fails with 'unrecognized arguments'",
            "start the arguments with the model, or set --entrypoint to run another program",
            "fails_at_start",
        )
    if launch.terminal is not None and launch.unattended and launch.runtime == "docker":
        yield Finding(
            "no-terminal",
            "error",
            launch.terminal.text,
            launch.terminal.place,
            "systemd units have no terminal: docker exits with 'the input device is not a TTY'",
            "remove -i and -t",
            "fails_at_start",
        )


def range_findings(understood: Understood) -> Iterator[Finding]:
    """Yield numbers outside the range that the engine accepts."""
    if understood.launch.engine != "vllm":
        return
    yield from _no_amounts(understood)
    share = understood.number("gpu_memory_utilization")
    seats, step = understood.number("max_num_seqs"), understood.number("max_num_batched_tokens")
    length, port = understood.number("max_model_len"), understood.number("port")
    if share is not None and not 0 < share <= 1:
        hint = f" {share / 100:g}" if 10 <= share <= 100 else " 0.9"  # a percentage, or a slip
        yield _out_of_range(
            understood,
            "gpu_memory_utilization",
            "--gpu-memory-utilization",
            "between 0 and 1",
            hint,
        )
    if seats is not None and seats < 1:
        yield _out_of_range(understood, "max_num_seqs", "--max-num-seqs", "at least 1", " 1")
    if port is not None and not 0 < port < 65536:
        yield _out_of_range(understood, "port", "--port", "between 1 and 65535", " 8000")
    if step is not None and seats is not None and 0 < step < seats:
        yield _out_of_range(
            understood,
            "max_num_batched_tokens",
            "--max-num-batched-tokens",
            f"at least --max-num-seqs ({int(seats)})",
            f" {max(2048, int(seats))}",
        )
    chunked = understood.arguments.last("--enable-chunked-prefill")
    if chunked is None or chunked.value != "false":
        return
    if step is not None and length is not None and step < length:
        yield Finding(
            "bad-flag-value",
            "error",
            "--no-enable-chunked-prefill",
            chunked.place,
            "without chunked prefill --max-num-batched-tokens must be at least --max-model-len "
            f"({int(length)}); vLLM rejects the configuration",
            f"--enable-chunked-prefill, or --max-num-batched-tokens {int(length)}",
            "fails_at_start",
        )


_AMOUNTS = {
    "--gpu-memory-utilization": ("between 0 and 1", "0.9"),
    "--max-num-seqs": ("at least 1", "32"),
    "--max-num-batched-tokens": ("at least 1", "8192"),
    "--tensor-parallel-size": ("at least 1", "1"),
    "--port": ("between 1 and 65535", "8000"),
}


def _no_amounts(understood: Understood) -> Iterator[Finding]:
    """Yield what Python reads as a number and the engine's configuration refuses."""
    for flag, (wanted, value) in _AMOUNTS.items():
        setting = understood.arguments.last(flag)
        text = (setting.value or "").strip().lower() if setting is not None else ""
        if setting is None or not re.fullmatch(r"-\d+(\.\d+)?|[+-]?(nan|inf|infinity)", text):
            continue
        yield Finding(
            "bad-flag-value",
            "error",
            f"{flag} {text}",
            setting.place,
            f"{flag} must be {wanted}; vLLM rejects the configuration",
            f"{flag} {value}",
            "fails_at_start",
        )


def _out_of_range(understood: Understood, name: str, flag: str, wanted: str, value: str) -> Finding:
    return Finding(
        "bad-flag-value",
        "error",
        stated_flag(understood, name, flag),
        understood.place_of(name),
        f"{flag} must be {wanted}; vLLM rejects the configuration",
        f"{flag}{value}",
        "fails_at_start",
    )


def size_findings(understood: Understood) -> Iterator[Finding]:
    """Yield sizes with a lower-case suffix, which vLLM reads as a power of ten."""
    for setting in understood.arguments.settings:
        row = setting.status.row
        value = (setting.value or "").strip()
        if (
            row is None
            or not row.type.startswith("size")
            or not re.fullmatch(r"[0-9]{1,12}[km]", value)
        ):
            continue
        if understood.launch.engine == "vllm":
            number = int(value[:-1]) * (1000 if value[-1] == "k" else 10**6)
            binary = int(value[:-1]) * (1024 if value[-1] == "k" else 2**20)
            yield Finding(
                "decimal-suffix",
                "info",
                f"{setting.spelt} {value}",
                setting.place,
                f"vLLM reads {value} as {number:,}; the capital suffix means {binary:,}",
                f"{setting.spelt} {binary}",
            )


def spec_findings(understood: Understood) -> Iterator[Finding]:
    """Yield keys and values of the speculative configuration that the engine rejects."""
    spec = understood.spec
    if understood.launch.engine != "vllm" or not spec:
        return
    place = spec.place or understood.launch.place
    if spec.problem is not None:
        yield Finding(
            "bad-speculative-config",
            "error",
            SPEC,
            place,
            f"the value is {spec.problem}",
            'quote it in single quotes: \'{"method":"mtp","num_speculative_tokens":3}\'',
            "fails_at_start",
        )
        return
    release = understood.engine_version
    problems = spec_config_problems(spec.values, release, understood.fork)
    places = {key.key: key.place for key in spec.keys}
    for key, reason in problems:
        told = reason if isinstance(reason, str) else reason.message
        near = None if isinstance(reason, str) else reason.nearest
        sure = not understood.fork and release is not None
        if not isinstance(reason, str):
            sure = sure and (reason.checked or reason.status is ReleaseStatus.UNKNOWN)
        yield Finding(
            "unknown-speculative-key" if not isinstance(reason, str) else "bad-speculative-value",
            "error" if sure else "info",
            f"{key} in {SPEC}",
            places.get(key, place),
            f"{told}; vLLM rejects the configuration and does not start",
            f"write {near}" if near else f"remove {key}",
            "fails_at_start" if sure else None,
        )
    if not problems and not spec.symbolic and "num_speculative_tokens" not in spec.values:
        refused = understood.spec_method in ("mtp", "ngram") and not understood.fork
        yield Finding(
            "speculative-tokens-missing",
            "error" if refused else "warning",
            SPEC,
            place,
            "num_speculative_tokens is missing: vLLM rejects the configuration before it reads "
            "the checkpoint's default"
            if refused
            else "num_speculative_tokens is missing; vLLM requires it for most methods",
            'add "num_speculative_tokens": 3',
            "fails_at_start" if refused else None,
        )


def variable_findings(understood: Understood) -> Iterator[Finding]:
    """Yield environment variables that the release no longer reads, or that look misspelt."""
    if understood.launch.engine != "vllm" or understood.fork or understood.engine_version is None:
        return
    for name, word in understood.launch.env.items():
        if not name.startswith("VLLM_"):
            continue
        status = flag_status(name, understood.engine_version, False, "env")
        if status.status is ReleaseStatus.KNOWN or not status.checked:
            continue
        near = status.nearest
        if status.status is ReleaseStatus.UNKNOWN and near is None:
            continue
        if status.status is ReleaseStatus.UNKNOWN:
            close = difflib.SequenceMatcher(None, name, near or "").ratio()
            if close < 0.85:
                continue
        yield Finding(
            "ignored-env",
            "info",
            name,
            word.place,
            f"{status.message}: vLLM only logs an 'unknown variable' warning",
            f"use {near}" if near and status.status is ReleaseStatus.UNKNOWN else f"remove {name}",
        )


_LIMITS = "--limit-mm-per-prompt"
_OLD_LIMITS = re.compile(r"[a-z]{1,20}=[0-9]{1,6}(?:,[a-z]{1,20}=[0-9]{1,6}){0,5}")
"""vLLM 0.19 refuses this form: "Value image=4,audio=1 cannot be converted" (vllm#39687)."""


def json_findings(understood: Understood) -> Iterator[Finding]:
    """Yield JSON values that the shell breaks because they are not quoted."""
    for setting in understood.arguments.settings:
        value = setting.value or ""
        if setting.name == _LIMITS and _OLD_LIMITS.fullmatch(value) and not setting.symbolic:
            limits = dict(part.split("=") for part in value.split(","))
            yield Finding(
                "bad-flag-value",
                "error",
                setting.spelt,
                setting.place,
                f"{value} is the syntax of old releases; vLLM now accepts JSON only and exits",
                f"{_LIMITS} '{json.dumps({name: int(count) for name, count in limits.items()})}'",
                "fails_at_start",
            )
            continue
        if setting.name == SPEC or not value.startswith("{") or setting.symbolic:
            continue
        if setting.status.row is not None and setting.status.row.type == "json":
            # The parser's own check has said it.
            continue
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            yield Finding(
                "bad-json-value",
                "warning",
                setting.spelt,
                setting.place,
                f"the value of {setting.spelt} is not valid JSON when vLLM receives it",
                "quote the whole value in single quotes",
            )
