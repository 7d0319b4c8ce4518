"""Launches from a file, a directory or a text; the content determines the format.

What is read: shell text with ``docker run``, ``podman run``, ``vllm serve``, the Python module or
``llama-server``; compose files; systemd units and quadlets; Kubernetes manifests; Dockerfiles; the
answer of ``docker inspect``; JSON or YAML of other schedulers that lists a container's image and
words. What cannot be read is named. Nothing is executed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from qwendeploy.auditing.reading.compose import is_compose, read_compose
from qwendeploy.auditing.reading.compose_merge import is_laid_over, with_override
from qwendeploy.auditing.reading.config_file import read_beside, with_config_file
from qwendeploy.auditing.reading.docker_run import (
    EnvFiles,
    no_env_files,
    read_container_run,
    shell_script,
)
from qwendeploy.auditing.reading.dockerfile import is_dockerfile, read_dockerfile
from qwendeploy.auditing.reading.fenced_text import fenced_blocks, is_page
from qwendeploy.auditing.reading.inspect_container import is_inspection, read_inspection
from qwendeploy.auditing.reading.jobs import is_json_job, read_jobs
from qwendeploy.auditing.reading.kubernetes import is_manifest, read_manifests
from qwendeploy.auditing.reading.launch import ForeignLaunch, program_in, server_in
from qwendeploy.auditing.reading.llama_presets import with_presets
from qwendeploy.auditing.reading.shell import Command, commands
from qwendeploy.auditing.reading.systemd import is_unit, read_unit
from qwendeploy.auditing.reading.text import Place, Word, decode, read_text
from qwendeploy.auditing.reading.written_files import written_files
from qwendeploy.auditing.reading.yaml_tree import read_yaml
from qwendeploy.errors import UserError
from qwendeploy.versions import parse_version

MOST_FILES = 60
"""Files of a directory that are looked at."""
MOST_LAUNCHES = 100
"""Servers of a file that are judged: a box does not hold more."""
_LAUNCH_SUFFIXES = {".sh", ".bash", ".yml", ".yaml", ".service", ".container", ".json", ".txt", ""}
_YAML_LIKE = re.compile(r"^(services|apiVersion|kind|version|x-[\w-]+|name|items):", re.MULTILINE)
_NO_LAUNCH = "no server command found"
_HINT = (
    "supported: docker/podman run, vllm serve, python -m vllm.entrypoints.openai.api_server, "
    "llama-server, compose files, systemd units, quadlets, Kubernetes manifests, Dockerfiles, "
    "docker inspect, and JSON or YAML that lists a container's image and command"
)


_OTHER_SERVERS = (
    (re.compile(r"\btrtllm-serve\b"), "TensorRT-LLM (trtllm-serve)"),
    (re.compile(r"\btext-generation-(?:launcher|inference)\b"), "Text Generation Inference"),
    (re.compile(r"\bollama\b"), "Ollama"),
    (re.compile(r"\blmdeploy\s+serve\b"), "LMDeploy"),
    (re.compile(r"\bmlc_llm\s+serve\b"), "MLC LLM"),
    (re.compile(r"\btritonserver\b"), "Triton"),
    (re.compile(r"^models:.*?^\s+cmd:", re.MULTILINE | re.DOTALL), "a llama-swap configuration"),
)
"""Servers whose launches are named when they are met."""


def read_launches(path: Path) -> list[ForeignLaunch]:
    """Return every server launch of a file, or of the files in a directory (not below it).

    Raises:
        UserError: unreadable, of no format that is read, or without a launch.
    """
    if not path.is_dir():
        return read_launch_text(read_text(path), str(path), path.parent)
    launches: list[ForeignLaunch] = []
    problems: list[UserError] = []
    candidates = [
        entry
        for entry in sorted(path.iterdir())
        if entry.is_file()
        and (entry.suffix in _LAUNCH_SUFFIXES or "file" in entry.name.lower())
        and not is_laid_over(entry)
    ]
    for entry in candidates[:MOST_FILES]:
        try:
            found = read_launch_text(read_text(entry), str(entry), path)
            launches.extend(replace(launch, source=entry.name) for launch in found)
        except UserError as problem:
            if problem.what != _NO_LAUNCH:
                problems.append(problem)
    if not launches:
        if problems:
            raise problems[0]
        raise UserError(_NO_LAUNCH, where=str(path), hint=_HINT)
    return launches[:MOST_LAUNCHES]


def read_launch_bytes(raw: bytes, name: str) -> list[ForeignLaunch]:
    """Return every server launch of a stream such as standard input. Raises as above."""
    return read_launch_text(decode(raw, name), name, None)


def read_launch_text(text: str, file: str, directory: Path | None = None) -> list[ForeignLaunch]:
    """Return every server launch of a text. Environment files are read beside it only.

    Raises:
        UserError: the text is of no format that is read, or holds no launch.
    """
    launches = _read(text, file, directory)
    if not launches:
        other = next((name for mark, name in _OTHER_SERVERS if mark.search(text)), None)
        hint = f"{other} is not supported; {_HINT}" if other else _HINT
        raise UserError(_NO_LAUNCH, where=file, hint=hint)
    if len(launches) > MOST_LAUNCHES:
        raise UserError(
            f"{len(launches):,} servers in one file",
            where=file,
            hint=f"pass at most {MOST_LAUNCHES} at a time",
        )
    beside_it = read_beside(directory)
    read = [with_config_file(launch, beside_it) for launch in launches]
    return [model for launch in read for model in with_presets(launch, beside_it)]


def _read(text: str, file: str, directory: Path | None) -> list[ForeignLaunch]:
    if is_page(text, file):
        return list(_read_page(text, file, directory))
    return _read_one(text, file, directory)


def _read_one(text: str, file: str, directory: Path | None) -> list[ForeignLaunch]:
    env_files = beside(directory) if directory is not None else no_env_files
    if is_inspection(text):
        return read_inspection(text, file)
    if "<<" in text and not is_dockerfile(text, file):
        written = list(_of_script(text, file, directory, env_files))
        if written:
            return written
    if is_unit(text):
        return read_unit(text, file, env_files, _drop_ins(file, directory))
    if is_dockerfile(text, file):
        return read_dockerfile(text, file)
    if file.endswith((".yml", ".yaml")) or _YAML_LIKE.search(text) or is_json_job(text):
        return _read_yaml(text, file, directory, env_files)
    return list(_read_shell(text, file, env_files))


def _of_script(
    text: str, file: str, directory: Path | None, env_files: EnvFiles
) -> Iterator[ForeignLaunch]:
    """Yield the launches of units and compose files that a script writes, then its own."""
    found = False
    for body in written_files(text):
        if is_unit(body):
            launches = read_unit(body, file, env_files)
        elif re.search(r"^services:", body, re.MULTILINE):
            launches = _read_yaml(body, file, directory, env_files)
        else:
            continue
        found = found or bool(launches)
        yield from launches
    if found:
        yield from _read_shell(text, file, env_files)


MOST_DROP_INS = 20


def _drop_ins(file: str, directory: Path | None) -> list[tuple[str, str]]:
    """Return what is laid over a unit: the ``.conf`` files of the folder of its name."""
    if directory is None:
        return []
    root = directory.resolve()
    folder = root / f"{Path(file).name}.d"
    found = []
    for entry in sorted(folder.glob("*.conf"))[:MOST_DROP_INS] if folder.is_dir() else []:
        if entry.resolve().is_relative_to(root) and entry.is_file():
            name = f"{file}.d/{entry.name}"
            found.append((name, read_text(entry, name)))
    return found


def _read_page(text: str, file: str, directory: Path | None) -> Iterator[ForeignLaunch]:
    """Yield the launches of a page's fenced blocks, which are alternatives to each other.

    A block that is no launch is passed over.
    """
    for number, (language, block) in enumerate(fenced_blocks(text)):
        if language in _DATA and not _YAML_LIKE.search(block):
            continue
        with contextlib.suppress(UserError):
            for launch in _read_one(block, file, directory):
                yield replace(launch, source=f"block {number}")


_DATA = ("yaml", "yml", "json", "toml", "text", "python", "jsonc", "diff")
"""Languages of blocks that hold no shell commands."""


def _read_yaml(
    text: str, file: str, directory: Path | None, env_files: EnvFiles
) -> list[ForeignLaunch]:
    trees = read_yaml(text, file)
    manifests = [tree for tree in trees if is_manifest(tree)]
    if manifests:
        return read_manifests(manifests)
    variables: dict[str, str] = {}
    if directory is not None:
        known = env_files(Word(".env", Place(file, 1)))
        variables = {name: word.text for name, word in (known or {}).items()}
    read = read_beside(directory)
    services = [tree for tree in trees if is_compose(tree)]
    if not services:
        return read_jobs(trees)
    return [
        launch
        for tree in services
        for launch in read_compose(with_override(tree, read, file), variables, env_files, read)
    ]


def _read_shell(text: str, file: str, env_files: EnvFiles) -> Iterator[ForeignLaunch]:
    launch: ForeignLaunch | None = None
    installed: str | None = None
    for command in commands(text, file):
        installed = _pinned(command.words) or installed
        if launch is not None and command.words[0].text.startswith("-"):
            # A line in front lacks its backslash: the shell would run these flags as a program.
            launch = replace(launch, lost=(*launch.lost, *command.words))
            continue
        for found in _of_command(command, env_files, 0):
            if launch is not None:
                yield launch
            stays = command.background or found.stays or _leaves(command.words)
            launch = replace(found, installed=installed, stays=stays, branch=command.branch)
    if launch is not None:
        yield launch


_PINNED = re.compile(r"^vllm(?:\[[\w,-]*\])?(?:==|@)(.+)$")


def _pinned(words: tuple[Word, ...]) -> str | None:
    """Return the engine's version that a command names (pip, uv, uvx, pipx), else ``None``."""
    stated = (match[1] for word in words[:80] if (match := _PINNED.match(word.text)))
    return next((text for text in stated if parse_version(text)), None)


def _of_command(command: Command, env_files: EnvFiles, depth: int) -> Iterator[ForeignLaunch]:
    launch = read_container_run(command.words, env_files)
    if launch is not None:
        if launch.engine != "other":
            yield launch
        return
    found = server_in(command.words)
    if found is not None:
        env = {**command.exported, **command.prefix, **_env_words(command.words)}
        yield ForeignLaunch(
            command.words[0].place,
            "none",
            found[0],
            found[1],
            env,
            unread=command.unread,
            program=program_in(command.words, found[1]),
            stays=False,
        )
        return
    script = shell_script(command.words) or _handed_on(command.words)
    if script is not None and depth < 4:
        for inner in commands(script.text, script.place.file, first_line=script.place.line):
            yield from _of_command(inner, env_files, depth + 1)


def _leaves(words: tuple[Word, ...]) -> bool:
    """Say whether a command goes on without the shell that starts it."""
    names = {word.text.rsplit("/", 1)[-1] for word in words[:4]}
    return bool(names & {"tmux", "screen", "systemd-run", "daemonize", "at", "batch"})


_HANDING_ON = {"tmux", "screen", "ssh", "su", "runuser", "systemd-run", "script", "watch", "at"}
"""Programs that run a command given as one argument."""


def _handed_on(words: tuple[Word, ...]) -> Word | None:
    """Return the command line that such a program is given, ``None`` if there is none."""
    names = {word.text.rsplit("/", 1)[-1] for word in words[:3]}
    if not names & _HANDING_ON:
        return None
    return next((word for word in words[1:40] if " " in word.text.strip()), None)


def _env_words(words: tuple[Word, ...]) -> dict[str, Word]:
    """Return the variables of ``env NAME=value … program``."""
    found: dict[str, Word] = {}
    if "env" not in {word.text.rsplit("/", 1)[-1] for word in words[:4]}:
        return found
    for word in words[1:40]:
        match = re.match(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$", word.text, re.DOTALL)
        if match:
            found[match[1]] = Word(match[2], word.place)
    return found


def beside(directory: Path) -> EnvFiles:
    """Return a reader of environment files that lie in ``directory``; others are not opened.

    A launch file is foreign: a path that leads elsewhere must not bring this machine's files into
    a report.
    """

    def read(name: Word) -> Mapping[str, Word] | None:
        root = directory.resolve()
        if "$" in name.text:
            return None
        try:
            path = (root / name.text).resolve()
            if not path.is_relative_to(root) or not path.is_file():
                return None
            return env_file_words(read_text(path, name.text), name.text)
        except (OSError, ValueError, UserError):
            return None

    return read


def env_file_words(text: str, file: str) -> dict[str, Word]:
    """Return the variables of an environment file (``NAME=value`` lines)."""
    found: dict[str, Word] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip().removeprefix("export ")
        if not stripped or stripped.startswith("#") or "=" not in stripped:
            continue
        key, _, value = stripped.partition("=")
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[key.strip()] = Word(value, Place(file, number))
    return found
