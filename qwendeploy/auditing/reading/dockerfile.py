"""Dockerfiles read as a launch: the last stage's variables, entry point and command."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import dataclass, field

from qwendeploy.auditing.reading.compose import interpolate
from qwendeploy.auditing.reading.docker_run import read_container_run, server_of_words, shell_script
from qwendeploy.auditing.reading.launch import (
    Container,
    ForeignLaunch,
    program_in,
    repeated_program,
    server_in,
)
from qwendeploy.auditing.reading.shell import commands
from qwendeploy.auditing.reading.shell_words import split_words
from qwendeploy.auditing.reading.text import Place, Word
from qwendeploy.errors import UserError

_RUN_COMMENT = re.compile(r"((?:docker|podman)\s+(?:container\s+)?run\s.*)$")


def is_dockerfile(text: str, name: str) -> bool:
    """Say whether the text is a Dockerfile, by name or by its first instruction."""
    base = name.rsplit("/", 1)[-1].lower()
    if base.startswith(("dockerfile", "containerfile")) or base.endswith(".dockerfile"):
        return True
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            return bool(re.match(r"(?i)(FROM|ARG)\s+\S", stripped))
    return False


@dataclass
class _Stage:
    """What one stage has set so far; a stage that starts from another inherits it."""

    image: Word
    env: dict[str, Word] = field(default_factory=dict)
    entrypoint: list[Word] = field(default_factory=list)
    command: list[Word] = field(default_factory=list)
    shell_entry: bool = False
    shell_command: bool = False
    own_entry: bool = True
    """No entry point but the image's own."""
    files: dict[str, Word] = field(default_factory=dict)
    """Scripts that the file writes itself, by their path in the image."""


def read_dockerfile(text: str, file: str) -> list[ForeignLaunch]:
    """Return the server that the image starts; how it is run is taken from a comment, if one says.

    Raises:
        UserError: there is no FROM, or the command cannot be read.
    """
    stages: dict[str, _Stage] = {}
    stage: _Stage | None = None
    run: ForeignLaunch | None = None
    arguments_of_build: dict[str, str] = {}
    for keyword, rest, place, bodies in _instructions(text, file):
        if keyword == "#":
            run = _run_comment(rest, place) or run
        elif keyword == "FROM":
            stage = _from(rest, place, arguments_of_build, stages)
        elif keyword == "ARG":
            arguments_of_build.update(
                {key: word.text for key, word in _variables(rest, place).items()}
            )
        elif stage is not None:
            _instruction(stage, keyword, rest, place, bodies)
    if stage is None:
        raise UserError("no FROM instruction", where=file)
    launch = _launch_of(stage, run)
    return [launch] if launch is not None else []


def _from(rest: str, place: Place, arguments: dict[str, str], stages: dict[str, _Stage]) -> _Stage:
    names = [part for part in rest.split() if not part.startswith("--")]
    named = interpolate(names[0], arguments) if names else ""
    before = stages.get(named.lower())
    stage = _Stage(Word(named, place)) if before is None else deepcopy(before)
    if len(names) > 2 and names[1].upper() == "AS":
        stages[names[2].lower()] = stage
    return stage


def _instruction(stage: _Stage, keyword: str, rest: str, place: Place, bodies: list[Word]) -> None:
    if keyword == "ENV":
        known = {name: word.text for name, word in stage.env.items()}
        found = _variables(rest, place)
        stage.env.update(
            {name: Word(interpolate(word.text, known), place) for name, word in found.items()}
        )
    elif keyword == "COPY" and bodies:
        target = rest.split()[-1]
        stage.files[target] = bodies[0]
    elif keyword in ("ENTRYPOINT", "CMD"):
        words, in_shell = _form(rest, place, stage, own=keyword == "CMD" and stage.own_entry)
        if keyword == "CMD":
            stage.command, stage.shell_command = words, in_shell
        else:
            stage.entrypoint, stage.command, stage.own_entry = words, [], False
            stage.shell_entry, stage.shell_command = in_shell, False


def _launch_of(stage: _Stage, run: ForeignLaunch | None) -> ForeignLaunch | None:
    command = stage.command
    given = [Word("/bin/sh", command[0].place), *command] if stage.shell_command else command
    repeated = repeated_program(tuple(given), stage.image.text) if stage.own_entry else None
    dropped = tuple(command) if stage.shell_entry else ()
    words = (*stage.entrypoint, *(() if stage.shell_entry else command))
    if not words and run is not None:
        words = run.arguments
    script = stage.files.get(words[0].text) if words else None
    if script is not None:
        words = (Word("sh", script.place), Word("-c", script.place), script, words[0], *words[1:])
    engine, arguments, inner = server_of_words(words, stage.image.text)
    if engine == "other":
        return None
    literal: tuple[Word, ...] = ()
    if script is None and shell_script(words) is None:
        written = () if stage.shell_command else tuple(command)
        written += () if stage.shell_entry else tuple(stage.entrypoint)
        literal = tuple(word for word in arguments if word in written and _NAMED.search(word.text))
    boxed = (run.container if run is not None else None) or Container(None)
    container = Container(
        image=stage.image,
        gpus=boxed.gpus,
        ports=boxed.ports,
        volumes=boxed.volumes,
        network=boxed.network,
        shared_memory=boxed.shared_memory,
        devices=boxed.devices,
    )
    return ForeignLaunch(
        words[0].place if words else stage.image.place,
        "docker",
        engine,
        arguments,
        {**stage.env, **(run.env if run else {}), **inner},
        container,
        repeated=repeated,
        dropped=dropped,
        literal=literal,
        program="" if stage.own_entry else program_in(_spoken(words), arguments),
    )


def _spoken(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the words of the command that starts the server, those of a script where one does."""
    script = shell_script(words)
    if script is None:
        return words
    for command in commands(script.text, script.place.file, first_line=script.place.line):
        if server_in(command.words) is not None:
            return command.words
    return ()


_NAMED = re.compile(r"\$\{?[A-Za-z_]")
_HEREDOC = re.compile(r"<<-?[\"']?([A-Za-z_][A-Za-z0-9_]*)[\"']?")


def _instructions(text: str, file: str) -> list[tuple[str, str, Place, list[Word]]]:
    """Return (keyword, rest, place, here-documents); comments come with the keyword ``#``."""
    found: list[tuple[str, str, Place, list[Word]]] = []
    pending: list[str] = []
    start = 1
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line, number = lines[at], at + 1
        at += 1
        stripped = line.strip()
        if stripped.startswith("#"):
            found.append(("#", stripped[1:], Place(file, number), []))
            continue
        if not stripped:
            continue
        if not pending:
            start = number
        if stripped.endswith("\\"):
            pending.append(stripped[:-1])
            continue
        whole = "\n".join([*pending, stripped])
        pending = []
        bodies: list[Word] = []
        for mark in _HEREDOC.findall(whole)[:MOST_HEREDOCS]:
            end = next((i for i in range(at, len(lines)) if lines[i].strip() == mark), len(lines))
            bodies.append(Word("\n".join(lines[at:end]), Place(file, at + 1)))
            at = end + 1
        keyword, _, rest = whole.partition(" ")
        rest = _HEREDOC.sub("", rest) if bodies else rest
        found.append((keyword.upper(), rest.strip(), Place(file, start), bodies))
    return found


MOST_HEREDOCS = 8


def _run_comment(text: str, place: Place) -> ForeignLaunch | None:
    match = _RUN_COMMENT.search(text)
    if match is None:
        return None
    try:
        return read_container_run(tuple(split_words(match[1], place.file, place.line)))
    except UserError:
        # A comment need not be a whole command.
        return None


def _form(text: str, place: Place, stage: _Stage, *, own: bool) -> tuple[list[Word], bool]:
    """Return the words of a JSON array, else of the shell form, and whether it is that form.

    Docker takes what is no JSON for the shell form; behind an image's own entry point (``own``)
    that is told, elsewhere it is most likely a slip.

    Raises:
        UserError: it looks like an array and is none.
    """
    if text.startswith("["):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            if not own or repeated_program((Word("sh", place),), stage.image.text) is None:
                raise UserError("the command is not a JSON array", where=str(place)) from None
            meant = re.findall(r"'([^']*)'", text)
            return [Word(value, place) for value in meant], True
        return [Word(str(value), place) for value in values if isinstance(value, str)], False
    known = {name: word.text for name, word in stage.env.items()}
    for command in commands(text, place.file, first_line=place.line, variables=known):
        return list(command.words), True
    return [], True


def _variables(text: str, place: Place) -> dict[str, Word]:
    words = split_words(text, place.file, place.line)
    if words and "=" not in words[0].text:
        return {words[0].text: Word(" ".join(word.text for word in words[1:]), place)}
    pairs = (word.text.partition("=") for word in words)
    return {key: Word(value, place) for key, equals, value in pairs if equals}
