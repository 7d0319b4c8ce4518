"""systemd units and Podman quadlets read as launches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from qwendeploy.auditing.docker_run import (
    EnvFiles,
    no_env_files,
    read_container_run,
    server_of_words,
    shell_script,
)
from qwendeploy.auditing.launch import (
    Container,
    Gpus,
    Launch,
    enough_shared_memory,
    nvidia_devices,
    parse_gpus,
    parse_port,
    program_in,
    repeated_program,
    server_in,
)
from qwendeploy.auditing.shell import commands
from qwendeploy.auditing.shell_words import split_words
from qwendeploy.auditing.text import Place, Word

_SECTION = re.compile(r"^\[([A-Za-z][A-Za-z0-9-]*)\]\s*$")
_EXEC_PREFIX = "-@:+!|"
_VARIABLE = re.compile(r"\$(?:(\$)|\{?([A-Za-z_][A-Za-z0-9_]*)\}?)")


@dataclass
class Unit:
    """Sections with their entries in order; a key may occur more than once."""

    file: str
    sections: dict[str, list[tuple[str, Word]]] = field(default_factory=dict)

    def all(self, section: str, key: str) -> list[Word]:
        """Return a key's values; an empty one clears those before, as systemd does."""
        values: list[Word] = []
        for name, word in self.sections.get(section, []):
            if name == key:
                values = [*values, word] if word.text else []
        return values

    def last(self, section: str, key: str) -> Word | None:
        """Return a key's last value."""
        values = self.all(section, key)
        return values[-1] if values else None


def parse_unit(text: str, file: str) -> Unit:
    """Return the sections of a unit file; continued lines are joined, comments left out."""
    unit = Unit(file)
    section = ""
    pending: tuple[str, str, int] | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if pending is not None:
            if stripped.startswith(("#", ";")):
                continue
            key, value, start = pending
            more = stripped.endswith("\\")
            value = f"{value}\n{stripped[:-1] if more else stripped}"
            pending = (key, value, start) if more else None
            if not more:
                _add(unit, section, key, value, start)
            continue
        if not stripped or stripped.startswith(("#", ";")):
            continue
        head = _SECTION.match(stripped)
        if head:
            section = head[1]
            unit.sections.setdefault(section, [])
            continue
        key, equals, value = stripped.partition("=")
        if not equals:
            continue
        if value.endswith("\\"):
            pending = (key.strip(), value[:-1].strip(), number)
        else:
            _add(unit, section, key.strip(), value.strip(), number)
    if pending is not None:
        _add(unit, section, *pending)
    return unit


def _add(unit: Unit, section: str, key: str, value: str, line: int) -> None:
    unit.sections.setdefault(section, []).append((key, Word(value, Place(unit.file, line))))


def is_unit(text: str) -> bool:
    """Say whether the text is a unit or a quadlet."""
    return bool(re.search(r"^\[(Service|Container)\]\s*$", text, re.MULTILINE))


def read_unit(text: str, file: str, env_files: EnvFiles = no_env_files) -> list[Launch]:
    """Return the servers that a unit or quadlet starts.

    Raises:
        UserError: a command of it cannot be split.
    """
    unit = parse_unit(text, file)
    if "Container" in unit.sections:
        return _read_quadlet(unit, env_files)
    env, unread = _environment(unit, "Service", env_files)
    launches = []
    for line in unit.all("Service", "ExecStart"):
        words = tuple(_expanded(line, env))
        launch = _launch(words, env, env_files)
        if launch is not None:
            launches.append(replace(launch, unread=(*unread, *launch.unread), unattended=True))
    return launches


def _launch(words: tuple[Word, ...], env: Mapping[str, Word], env_files: EnvFiles) -> Launch | None:
    launch = read_container_run(words, env_files)
    if launch is not None:
        return launch
    found = server_in(words)
    if found is not None:
        program = program_in(words, found[1])
        return Launch(words[0].place, "none", found[0], found[1], env, program=program)
    script = shell_script(words)
    if script is None:
        return None
    known = {name: word.text for name, word in env.items()}
    for command in commands(
        script.text, script.place.file, first_line=script.place.line, variables=known
    ):
        inner = _launch(command.words, {**env, **command.exported, **command.prefix}, env_files)
        if inner is not None:
            return inner
    return None


def _expanded(line: Word, env: Mapping[str, Word]) -> list[Word]:
    """Return the words of an Exec line with the unit's own variables put in."""
    text = line.text.lstrip(_EXEC_PREFIX)
    words = split_words(text, line.place.file, line.place.line)

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        known = env.get(match[2])
        return known.text if known is not None else f"${match[2]}"

    expanded = []
    for word in words:
        bare = re.fullmatch(r"\$([A-Za-z_][A-Za-z0-9_]*)", word.text)
        if bare and bare[1] in env:
            # Unbraced and alone, systemd splits the value into words.
            inner = split_words(env[bare[1]].text, word.place.file, word.place.line)
            expanded.extend(inner)
            continue
        expanded.append(Word(_VARIABLE.sub(value, word.text).replace("%%", "%"), word.place))
    return expanded


def _environment(
    unit: Unit, section: str, env_files: EnvFiles
) -> tuple[dict[str, Word], tuple[str, ...]]:
    env: dict[str, Word] = {}
    unread = []
    for file in unit.all(section, "EnvironmentFile"):
        name = Word(file.text.lstrip("-"), file.place)
        values = env_files(name)
        if values is None:
            unread.append(f"environment file {name.text}")
        env.update(values or {})
    for line in unit.all(section, "Environment"):
        for word in split_words(line.text, line.place.file, line.place.line):
            key, equals, value = word.text.partition("=")
            if equals:
                env[key] = Word(value, word.place)
    return env, tuple(unread)


def _read_quadlet(unit: Unit, env_files: EnvFiles) -> list[Launch]:
    section = "Container"
    image = unit.last(section, "Image")
    env, unread = _environment(unit, section, env_files)
    env = {**_secrets(unit), **env}
    execution = unit.last(section, "Exec")
    entrypoint = unit.last(section, "Entrypoint")
    words = tuple(
        word
        for line in (entrypoint, execution)
        if line is not None
        for word in split_words(line.text, line.place.file, line.place.line)
    )
    name_of_image = image.text if image else ""
    engine, arguments, inner = server_of_words(words, name_of_image)
    if engine == "other":
        return []
    extra = [
        word
        for line in unit.all(section, "PodmanArgs")
        for word in split_words(line.text, line.place.file, line.place.line)
    ]
    devices = tuple(unit.all(section, "AddDevice"))
    place = image.place if image else Place(unit.file, 1)
    ports = [parse_port(word.text, word.place) for word in unit.all(section, "PublishPort")]
    container = Container(
        image=image,
        gpus=_quadlet_gpus(extra, devices, place),
        ports=tuple(port for port in ports if port is not None),
        volumes=(*unit.all(section, "Volume"), *unit.all(section, "Mount"), *_mounts(extra)),
        network=unit.last(section, "Network"),
        shared_memory=enough_shared_memory(unit.last(section, "ShmSize"))
        or any("--ipc=host" in word.text or word.text.startswith("--shm-size") for word in extra),
        devices=devices,
    )
    name = unit.last(section, "ContainerName")
    return [
        Launch(
            place,
            "podman",
            engine,
            arguments,
            {**env, **inner},
            container,
            name.text if name else "",
            unread=unread,
            repeated=repeated_program(words, name_of_image) if entrypoint is None else None,
            unattended=True,
        )
    ]


def _mounts(extra: list[Word]) -> list[Word]:
    """Return the mounts among options that go to podman directly."""
    found = []
    for index, word in enumerate(extra):
        name, equals, value = word.text.partition("=")
        if name in ("--mount", "--volume", "-v"):
            following = extra[index + 1].text if index + 1 < len(extra) else ""
            found.append(Word(value if equals else following, word.place))
    return found


def _secrets(unit: Unit) -> dict[str, Word]:
    """Return the variables that podman sets from its secrets; the values are not in the file."""
    found = {}
    for line in unit.all("Container", "Secret"):
        name, *fields = line.text.split(",")
        options = dict(field.strip().partition("=")[::2] for field in fields)
        if options.get("type") == "env":
            variable = options.get("target", name.strip())
            found[variable] = Word(f"${variable}", line.place)
    return found


def _quadlet_gpus(extra: list[Word], devices: tuple[Word, ...], place: Place) -> Gpus:
    for index, word in enumerate(extra):
        if word.text.startswith("--gpus"):
            value = word.text.partition("=")[2]
            if not value and index + 1 < len(extra):
                value = extra[index + 1].text
            return parse_gpus(value, word.place)
    listed = [word for word in extra if "nvidia.com/gpu=" in word.text]
    return nvidia_devices((*devices, *listed)) or Gpus(False, 0, (), place)
