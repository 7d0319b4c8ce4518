"""Dockerfiles read as a launch: the last stage's variables, entry point and command."""

from __future__ import annotations

import json
import re

from qwendeploy.auditing.compose import interpolate
from qwendeploy.auditing.docker_run import read_container_run, server_of_words
from qwendeploy.auditing.launch import Container, Launch, repeated_program
from qwendeploy.auditing.shell import commands
from qwendeploy.auditing.shell_words import split_words
from qwendeploy.auditing.text import Place, Word
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


def read_dockerfile(text: str, file: str) -> list[Launch]:
    """Return the server that the image starts; how it is run is taken from a comment, if one says.

    Raises:
        UserError: there is no FROM, or the command cannot be read.
    """
    image: Word | None = None
    env: dict[str, Word] = {}
    entrypoint: list[Word] = []
    command: list[Word] = []
    given: list[Word] = []
    own_entry = True
    run: Launch | None = None
    arguments_of_build: dict[str, str] = {}
    for keyword, rest, place in _instructions(text, file):
        if keyword == "#":
            run = _run_comment(rest, place) or run
        elif keyword == "FROM":
            names = [part for part in rest.split() if not part.startswith("--")]
            named = interpolate(names[0], arguments_of_build) if names else ""
            image = Word(named, place)
            entrypoint, command, given, own_entry = [], [], [], True
        elif keyword == "ARG":
            arguments_of_build.update(
                {key: word.text for key, word in _variables(rest, place).items()}
            )
        elif keyword == "ENV":
            env.update(_variables(rest, place))
        elif keyword == "ENTRYPOINT":
            entrypoint, command, own_entry = _exec_form(rest, place), [], False
        elif keyword == "CMD":
            command = _exec_form(rest, place)
            given = command if rest.startswith("[") else [Word("/bin/sh", place), *command]
    if image is None:
        raise UserError("no FROM instruction", where=file)
    words = (*entrypoint, *command)
    repeated = repeated_program(tuple(given), image.text) if own_entry else None
    if not words and run is not None:
        words = run.arguments
    engine, arguments, inner = server_of_words(words, image.text)
    if engine == "other":
        return []
    boxed = run.container if run is not None else None
    container = Container(
        image=image,
        gpus=boxed.gpus if boxed else None,
        ports=boxed.ports if boxed else (),
        volumes=boxed.volumes if boxed else (),
        network=boxed.network if boxed else None,
        shared_memory=boxed.shared_memory if boxed else None,
        devices=boxed.devices if boxed else (),
    )
    variables = {**env, **(run.env if run else {}), **inner}
    place = words[0].place if words else image.place
    return [Launch(place, "docker", engine, arguments, variables, container, repeated=repeated)]


def _instructions(text: str, file: str) -> list[tuple[str, str, Place]]:
    """Return (keyword, rest, place); comments come with the keyword ``#``."""
    found: list[tuple[str, str, Place]] = []
    pending: list[str] = []
    start = 1
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped.startswith("#"):
            found.append(("#", stripped[1:], Place(file, number)))
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
        keyword, _, rest = whole.partition(" ")
        found.append((keyword.upper(), rest.strip(), Place(file, start)))
    return found


def _run_comment(text: str, place: Place) -> Launch | None:
    match = _RUN_COMMENT.search(text)
    if match is None:
        return None
    try:
        return read_container_run(tuple(split_words(match[1], place.file, place.line)))
    except UserError:
        # A comment need not be a whole command.
        return None


def _exec_form(text: str, place: Place) -> list[Word]:
    """Return the words of a JSON array, else of the shell form."""
    if text.startswith("["):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise UserError("the command is not a JSON array", where=str(place)) from None
        return [Word(str(value), place) for value in values if isinstance(value, str)]
    for command in commands(text, place.file, first_line=place.line):
        return list(command.words)
    return []


def _variables(text: str, place: Place) -> dict[str, Word]:
    words = split_words(text, place.file, place.line)
    if words and "=" not in words[0].text:
        return {words[0].text: Word(" ".join(word.text for word in words[1:]), place)}
    pairs = (word.text.partition("=") for word in words)
    return {key: Word(value, place) for key, equals, value in pairs if equals}
