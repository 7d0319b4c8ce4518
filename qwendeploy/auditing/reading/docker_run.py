"""``docker run``, ``podman run`` and similar commands, read as a launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from types import MappingProxyType

from qwendeploy.auditing.reading.launch import (
    Container,
    ForeignLaunch,
    Port,
    Runtime,
    VisibleGpus,
    engine_of_arguments,
    enough_shared_memory,
    nvidia_devices,
    parse_gpus,
    parse_port,
    repeated_program,
    server_in,
)
from qwendeploy.auditing.reading.shell import commands
from qwendeploy.auditing.reading.text import Place, Word
from qwendeploy.errors import UserError
from qwendeploy.image_names import EngineName, image_name

_PROGRAMS: Mapping[str, Runtime] = {
    "docker": "docker",
    "podman": "podman",
    "nerdctl": "docker",
    "docker.exe": "docker",
}
_SWITCHES = {
    "--detach",
    "--disable-content-trust",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--replace",
    "--rm",
    "--rmi",
    "--sig-proxy",
    "--tls-verify",
    "--tty",
    "--use-api-socket",
    "--env-host",
    "--http-proxy",
    "--no-hosts",
    "--no-hostname",
    "--passwd",
    "--systemd",
}
"""Long options of ``docker run`` and ``podman run`` that take no value (their reference pages)."""
_SHORT_SWITCHES = set("ditPq")
_SHORT = {
    "-e": "--env",
    "-p": "--publish",
    "-v": "--volume",
    "-m": "--memory",
    "-u": "--user",
    "-w": "--workdir",
    "-h": "--hostname",
    "-l": "--label",
    "-a": "--attach",
    "-c": "--cpu-shares",
}


@dataclass
class _Options:
    env: dict[str, Word] = field(default_factory=dict)
    ports: list[Port] = field(default_factory=list)
    volumes: list[Word] = field(default_factory=list)
    devices: list[Word] = field(default_factory=list)
    env_files: list[Word] = field(default_factory=list)
    gpus: VisibleGpus | None = None
    single: dict[str, Word] = field(default_factory=dict)
    publish_all: bool = False
    refused: list[Word] = field(default_factory=list)
    terminal: Word | None = None
    interactive: bool = False
    detached: bool = False

    @property
    def attached(self) -> bool:
        """Standard input is attached, so that a terminal asked for has to be there."""
        return self.interactive and not self.detached

    def switch(self, name: str, word: Word) -> None:
        """Note a switch, by its long name or its letters."""
        letters = "" if name.startswith("--") else name
        self.publish_all |= name == "--publish-all" or "P" in letters
        self.interactive |= name == "--interactive" or "i" in letters
        self.detached |= name == "--detach" or "d" in letters
        if name == "--tty" or "t" in letters:
            self.terminal = word


EnvFiles = Callable[[Word], Mapping[str, Word] | None]
"""Return the variables of an environment file that a launch names, ``None`` if it is not read."""


def no_env_files(_name: Word) -> None:
    """Read no environment file."""


def env_of_files(
    files: Iterable[Word], env_files: EnvFiles
) -> tuple[dict[str, Word], tuple[str, ...]]:
    """Return the variables of environment files, the later ones', and the files not read."""
    env: dict[str, Word] = {}
    unread = []
    for file in files:
        values = env_files(file)
        if values is None:
            unread.append(f"environment file {file.text}")
        env.update(values or {})
    return env, tuple(unread)


def container_program(words: tuple[Word, ...]) -> tuple[Runtime, tuple[Word, ...]] | None:
    """Return the runtime and what follows ``run``, ``None`` if the words run no container."""
    for index, word in enumerate(words[:12]):
        runtime = _PROGRAMS.get(word.text.rsplit("/", 1)[-1])
        if runtime is None:
            continue
        rest = words[index + 1 :]
        if rest and rest[0].text == "container":
            rest = rest[1:]
        while rest and rest[0].text.startswith("-"):
            takes_value = "=" not in rest[0].text and rest[0].text in ("-H", "--context", "--host")
            rest = rest[2:] if takes_value else rest[1:]
        if rest and rest[0].text in ("run", "create"):
            return runtime, rest[1:]
        return None
    return None


def read_container_run(
    words: tuple[Word, ...], env_files: EnvFiles = no_env_files
) -> ForeignLaunch | None:
    """Return the launch of a container command, ``None`` if the words are no such command.

    Raises:
        UserError: an option lacks its value or no image follows.
    """
    found = container_program(words)
    if found is None:
        return None
    runtime, rest = found
    options, image, arguments = _options(rest)
    place = words[0].place
    if image is None:
        raise UserError(
            "no image name after the container options",
            where=str(place),
            hint="check that every line before the image name ends in a backslash",
        )
    entrypoint = options.single.get("--entrypoint")
    repeated = repeated_program(arguments, image.text) if entrypoint is None else None
    env, unread = env_of_files(options.env_files, env_files)
    env.update(options.env)
    program = (entrypoint,) if entrypoint is not None and entrypoint.text else ()
    engine, arguments, inner = server_of_words((*program, *arguments), image.text, env)
    env.update(inner)
    container = Container(
        image=image,
        gpus=_gpus(options, place),
        ports=tuple(options.ports),
        volumes=tuple(options.volumes),
        network=options.single.get("--network") or options.single.get("--net"),
        shared_memory=_shares_memory(options),
        platform=options.single.get("--platform"),
        devices=tuple(options.devices),
        restart=options.single.get("--restart"),
        workdir=options.single.get("--workdir"),
        opaque="--volumes-from" in options.single,
        refused=tuple(options.refused) if runtime == "docker" else (),
    )
    name = options.single.get("--name")
    before = words[: len(words) - len(arguments)] if _ends_with(words, arguments) else ()
    return ForeignLaunch(
        place,
        runtime,
        engine,
        arguments,
        env,
        container,
        name.text if name else "",
        before=before,
        unread=unread,
        repeated=repeated,
        terminal=options.terminal if options.attached else None,
        stays=options.detached,
    )


def podman_options(words: tuple[Word, ...]) -> _Options:
    """Return what options for podman say that are no whole command (``PodmanArgs=``).

    Raises:
        UserError: an option lacks its value.
    """
    return _options(words)[0]


def _ends_with(words: tuple[Word, ...], arguments: tuple[Word, ...]) -> bool:
    return not arguments or words[-len(arguments) :] == arguments


def _options(words: tuple[Word, ...]) -> tuple[_Options, Word | None, tuple[Word, ...]]:
    options = _Options()
    index = 0
    while index < len(words):
        word = words[index]
        text = word.text
        if not text.startswith("-") or text == "-":
            return options, word, words[index + 1 :]
        index += 1
        name, equals, value = text.partition("=")
        if text == "--":
            continue
        if not text.startswith("--"):
            options.switch("-" + "".join(takewhile(_SHORT_SWITCHES.__contains__, text[1:])), word)
            short, value = _short(text)
            if short is None:
                continue
            name, equals = short, "=" if value else ""
        if name in _SWITCHES:
            if value.lower() != "false":
                options.switch(name, word)
            continue
        if equals:
            _take(options, name, Word(value, word.place))
            continue
        if index >= len(words):
            raise UserError(f"{name} has no value", where=str(word.place))
        _take(options, name, words[index])
        index += 1
    return options, None, ()


def _short(text: str) -> tuple[str | None, str]:
    """Return the long name and attached value of a short option; ``None`` for switches."""
    letters = text[1:]
    for index, letter in enumerate(letters):
        if letter in _SHORT_SWITCHES:
            continue
        return _SHORT.get(f"-{letter}", f"-{letter}"), letters[index + 1 :].removeprefix("=")
    return None, ""


def _take(options: _Options, name: str, word: Word) -> None:
    if name == "--env":
        key, equals, value = word.text.partition("=")
        options.env[key] = Word(value if equals else f"${key}", word.place)
    elif name == "--env-file":
        options.env_files.append(word)
    elif name == "--publish":
        port = parse_port(word.text, word.place)
        if port is not None:
            options.ports.append(port)
    elif name in ("--volume", "--mount"):
        options.volumes.append(word)
    elif name == "--device":
        options.devices.append(word)
    elif name == "--gpus":
        options.gpus = parse_gpus(word.text, word.place)
        if re.match(r"^device=[^=\"']*,[^=]*$", word.text):
            listed = word.text.removeprefix("device=")
            problem = f"--gpus {word.text} means a device and a count; write '\"device={listed}\"'"
            options.refused.append(Word(problem, word.place))
    else:
        options.single[name] = word


def _gpus(options: _Options, place: Place) -> VisibleGpus:
    if options.gpus is not None:
        return options.gpus
    by_device = nvidia_devices(tuple(options.devices))
    if by_device is not None:
        return by_device
    runtime = options.single.get("--runtime")
    if runtime is not None and "nvidia" in runtime.text:
        return VisibleGpus(True, None, (), runtime.place)
    return VisibleGpus(False, 0, (), place)


def _shares_memory(options: _Options) -> bool:
    ipc = options.single.get("--ipc")
    large = enough_shared_memory(options.single.get("--shm-size"))
    return large or (ipc is not None and ipc.text == "host")


def server_of_words(
    words: tuple[Word, ...], image: str, env: Mapping[str, Word] = MappingProxyType({})
) -> tuple[EngineName, tuple[Word, ...], dict[str, Word]]:
    """Return the engine that a container's words start; without a program the image's own does.

    ``env`` are the container's variables, which a shell among the words puts in.
    """
    script = shell_script(words)
    if script is not None:
        given = words[words.index(script) + 2 :]
        known = {name: word.text for name, word in env.items() if not word.symbolic}
        place = script.place
        for command in commands(script.text, place.file, first_line=place.line, variables=known):
            found = server_in(command.words)
            if found is not None:
                arguments = with_parameters(found[1], given)
                return found[0], arguments, {**command.exported, **command.prefix}
        return "other", (), {}
    found = server_in(words)
    if found is not None:
        return found[0], found[1], {}
    engine = image_name(image).engine
    return (engine if engine != "other" else engine_of_arguments(words)), words, {}


def with_parameters(arguments: tuple[Word, ...], given: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the arguments with ``$@`` replaced by the script's own parameters."""
    result: list[Word] = []
    for word in arguments:
        result.extend(given if word.text in ("$@", "$*") and given else (word,))
    return tuple(result)


def shell_script(words: tuple[Word, ...]) -> Word | None:
    """Return the text that ``bash -c TEXT`` runs, ``None`` if the words are no such call."""
    for index, word in enumerate(words[:6]):
        if word.text.rsplit("/", 1)[-1] in ("sh", "bash", "dash", "zsh"):
            for option, following in zip(words[index + 1 :], words[index + 2 :], strict=False):
                if option.text.startswith("-") and option.text.endswith("c"):
                    return following
                if not option.text.startswith("-"):
                    return None
    return None
