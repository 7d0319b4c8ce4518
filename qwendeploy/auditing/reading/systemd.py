"""systemd units and Podman quadlets read as launches, with the manager's settings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from qwendeploy.auditing.reading.docker_run import (
    EnvFiles,
    env_of_files,
    no_env_files,
    podman_options,
    read_container_run,
    server_of_words,
    shell_script,
)
from qwendeploy.auditing.reading.launch import (
    Container,
    ForeignLaunch,
    ManagedService,
    VisibleGpus,
    enough_shared_memory,
    nvidia_devices,
    parse_port,
    program_in,
    repeated_program,
    server_in,
)
from qwendeploy.auditing.reading.shell import commands
from qwendeploy.auditing.reading.shell_words import split_words
from qwendeploy.auditing.reading.text import Place, Word

_SECTION = re.compile(r"^\[([A-Za-z][A-Za-z0-9-]*)\]\s*$")
_EXEC_PREFIX = "-@:+!|"
_VARIABLE = re.compile(r"\$(?:(\$)|\{?([A-Za-z_][A-Za-z0-9_]*)\}?)")
_INSTANCE = re.compile(r"%([iIjJ])")


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


def read_unit(
    text: str,
    file: str,
    env_files: EnvFiles = no_env_files,
    drop_ins: Sequence[tuple[str, str]] = (),
) -> list[ForeignLaunch]:
    """Return the servers that a unit or quadlet starts; drop-ins are (name, text), in order.

    Raises:
        UserError: a command of it cannot be split.
    """
    unit = parse_unit(text, file)
    for name, more in drop_ins:
        for section, entries in parse_unit(more, name).sections.items():
            unit.sections.setdefault(section, []).extend(entries)
    if "Container" in unit.sections:
        return _read_quadlet(unit, env_files)
    env, unread = _environment(unit, "Service", env_files)
    launches = []
    for line in unit.all("Service", "ExecStart"):
        words, shell = _without_shell(tuple(_expanded(line, env)))
        launch = _launch(words, env, env_files)
        if launch is None:
            continue
        service = _service(unit, line, words, shell, launch)
        unread_here = (*unread, *launch.unread)
        launches.append(
            replace(launch, unread=unread_here, unattended=True, service=service, stays=True)
        )
    return launches


_SHELL_WORD = re.compile(r"^(?:&&|\|\|?|&|;|[12&]?>>?(?:&[12])?.*|<.*|2>&1|.*\$\(.*|.*`.*)$")
_BUILTINS = {"source", ".", "cd", "export", "ulimit", "set"}


def _without_shell(words: tuple[Word, ...]) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """Return the part of an Exec line that starts the server, and the words meant for a shell."""
    if shell_script(words) is not None:
        return words, ()
    found = [word for word in words if _SHELL_WORD.match(word.text)]
    if words and words[0].text in _BUILTINS:
        found.insert(0, words[0])
    if not found:
        return words, ()
    parts: list[list[Word]] = [[]]
    for word in words:
        if word in found and word is not words[0]:
            parts.append([])
        else:
            parts[-1].append(word)
    servers = [tuple(part) for part in parts if part and server_in(tuple(part)) is not None]
    return (servers[0] if servers else tuple(parts[0])), tuple(found)


_ON = {"yes", "true", "on", "1"}
_UNITS_OF_TIME = {"": 1, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hr": 3600, "ms": 0.001}


def _seconds(word: Word | None) -> float:
    """Return a time span of systemd in seconds, its own limit of 90 where none is stated."""
    if word is None:
        return 90.0
    text = word.text.strip().lower()
    if text in ("infinity", "0"):
        return math.inf
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text)
    return sum(float(number) * _UNITS_OF_TIME.get(unit, 1) for number, unit in parts) or 90.0


def _service(
    unit: Unit, line: Word, words: tuple[Word, ...], shell: tuple[Word, ...], launch: ForeignLaunch
) -> ManagedService:
    def last(key: str) -> Word | None:
        return unit.last("Service", key)

    inside = launch.runtime == "none"
    hides = []
    private, policy, home = last("PrivateDevices"), last("DevicePolicy"), last("ProtectHome")
    if inside and private is not None and private.text.lower() in _ON:
        hides.append(Word("PrivateDevices", private.place))
    allowed = any("nvidia" in word.text for word in unit.all("Service", "DeviceAllow"))
    if inside and policy is not None and policy.text in ("closed", "strict") and not allowed:
        hides.append(Word("DevicePolicy", policy.place))
    used = [word for word in words if re.match(r"^(?:/home/|/root/|%h)", word.text)]
    if inside and used and home is not None and home.text.lower() in {*_ON, "tmpfs"}:
        hides.append(Word("ProtectHome", home.place))
    restart = last("Restart")
    scripted = shell_script(words) is not None
    first = words[0] if words else line
    odd = [first] if "/" in first.text and not first.text.startswith("/") else []
    odd = [word for word in odd if not word.text.startswith(("%", "$"))]
    if not scripted:
        odd += [word for word in words[1:] if word.text.startswith("~")]
    return ManagedService(
        kind=last("Type"),
        patience_s=_seconds(last("TimeoutStartSec") or last("TimeoutSec")),
        hides=tuple(hides),
        restarts=restart is not None and restart.text != "no",
        stops=last("ExecStop"),
        shell=shell,
        paths=tuple(odd),
        direct=not scripted,
        detached=_detached(words, launch),
    )


def _detached(words: tuple[Word, ...], launch: ForeignLaunch) -> bool:
    """Say whether the words run a container that the client leaves."""
    image = launch.container.image.text if launch.container and launch.container.image else None
    texts = [word.text for word in words]
    before = texts[: texts.index(image)] if image in texts else []
    return any(text == "--detach" or re.fullmatch(r"-[itPq]*d[itPq]*", text) for text in before)


def _launch(
    words: tuple[Word, ...], env: Mapping[str, Word], env_files: EnvFiles
) -> ForeignLaunch | None:
    launch = read_container_run(words, env_files)
    if launch is not None:
        return launch
    found = server_in(words)
    if found is not None:
        program = program_in(words, found[1])
        return ForeignLaunch(words[0].place, "none", found[0], found[1], env, program=program)
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
    text = _INSTANCE.sub(r"${\1}", line.text.lstrip(_EXEC_PREFIX))
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
    files = unit.all(section, "EnvironmentFile")
    env, unread = env_of_files(
        [Word(file.text.lstrip("-"), file.place) for file in files],
        lambda name: None if "%" in name.text else env_files(name),
    )
    for line in unit.all(section, "Environment"):
        for word in split_words(line.text, line.place.file, line.place.line):
            key, equals, value = word.text.partition("=")
            if equals:
                env[key] = Word(_INSTANCE.sub(r"${\1}", value), word.place)
    return env, unread


def _read_quadlet(unit: Unit, env_files: EnvFiles) -> list[ForeignLaunch]:
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
        for word in split_words(_INSTANCE.sub(r"${\1}", line.text), unit.file, line.place.line)
    )
    name_of_image = image.text if image else ""
    engine, arguments, inner = server_of_words(words, name_of_image)
    if engine == "other":
        return []
    extra = podman_options(
        tuple(
            word
            for line in unit.all(section, "PodmanArgs")
            for word in split_words(line.text, line.place.file, line.place.line)
        )
    )
    named, unread_too = env_of_files(extra.env_files, env_files)
    env.update(named)
    devices = (*unit.all(section, "AddDevice"), *extra.devices)
    place = image.place if image else Place(unit.file, 1)
    ports = [parse_port(word.text, word.place) for word in unit.all(section, "PublishPort")]
    ipc = extra.single.get("--ipc")
    size = unit.last(section, "ShmSize") or extra.single.get("--shm-size")
    container = Container(
        image=image,
        gpus=extra.gpus or nvidia_devices(devices) or VisibleGpus(False, 0, (), place),
        ports=(*(port for port in ports if port is not None), *extra.ports),
        volumes=(*unit.all(section, "Volume"), *unit.all(section, "Mount"), *extra.volumes),
        network=unit.last(section, "Network") or extra.single.get("--network"),
        shared_memory=enough_shared_memory(size) or (ipc is not None and ipc.text == "host"),
        devices=devices,
    )
    notice = unit.last(section, "Notify")
    service = ManagedService(
        kind=notice if notice is not None and notice.text == "healthy" else None,
        patience_s=_seconds(unit.last("Service", "TimeoutStartSec")),
        direct=False,
    )
    name = unit.last(section, "ContainerName")
    return [
        ForeignLaunch(
            place,
            "podman",
            engine,
            arguments,
            {**env, **extra.env, **inner},
            container,
            name.text if name else "",
            unread=(*unread, *unread_too),
            repeated=repeated_program(words, name_of_image) if entrypoint is None else None,
            unattended=True,
            service=service,
        )
    ]


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
