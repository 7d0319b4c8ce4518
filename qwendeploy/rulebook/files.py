"""Reading of the YAML files behind rules and signatures, with a compiled copy.

The YAML files are the truth. Parsing them is slow beside everything else ``recommend`` does, so the
parsed text is kept as JSON under the digest of the files: shipped beside them (``compiled.json``)
or in the user's cache directory. Either is used only if its digest is that of the files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import Field, ValidationError

from qwendeploy.documents.base import Model
from qwendeploy.documents.disk import write_file
from qwendeploy.errors import DataError, UserError

COMPILED = "compiled.json"


class Item(Model):
    """What a file of its own holds; the id is the file's name."""

    id: str = Field(pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$")


ItemT = TypeVar("ItemT", bound=Item)


def yaml_files(directory: Path) -> tuple[Path, ...]:
    """Return the YAML files of a directory in order of name."""
    return tuple(sorted(directory.glob("*.yaml")))


def digest_of(files: Iterable[Path]) -> str:
    """Return the digest of names and contents."""
    digest = hashlib.sha256()
    for path in files:
        data = path.read_bytes()
        digest.update(f"{path.name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def parse_files(files: Iterable[Path]) -> dict[str, Any]:
    """Return the parsed content by file name.

    Raises:
        DataError: a file is not YAML, or not a mapping.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    parsed: dict[str, Any] = {}
    for path in files:
        try:
            content = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
        except (YAMLError, UnicodeDecodeError) as problem:
            mark = getattr(problem, "problem_mark", None)
            line = mark.line + 1 if mark is not None else None
            what = getattr(problem, "problem", None) or "is not UTF-8"
            raise DataError(f"is not YAML: {what}", file=str(path), line=line) from None
        if not isinstance(content, dict):
            raise DataError("is not a mapping of keys to values", file=str(path), line=1)
        parsed[path.name] = content
    return parsed


def _stored(path: Path, digest: str) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("digest") != digest:
        return None
    return cast(dict[str, Any], document.get("files"))


def cached_files(files: tuple[Path, ...], directory: Path) -> dict[str, Any]:
    """Return the parsed files, from the compiled text where its digest is theirs."""
    digest = digest_of(files)
    stored = _stored(directory / COMPILED, digest)
    if stored is not None:
        return stored
    from platformdirs import user_cache_path

    cached = user_cache_path("qwendeploy") / f"{directory.name}-{digest[:16]}.json"
    stored = _stored(cached, digest)
    if stored is not None:
        return stored
    parsed = parse_files(files)
    with contextlib.suppress(UserError):
        write_file(cached, json.dumps({"digest": digest, "files": parsed}).encode())
    return parsed


def parsed_files(directory: Path) -> tuple[dict[str, Any], list[DataError]]:
    """Return the content of every YAML file that can be read, and why the others cannot."""
    files = yaml_files(directory)
    try:
        return cached_files(files, directory), []
    except DataError:
        found: dict[str, Any] = {}
        problems = []
        for path in files:
            try:
                found |= parse_files([path])
            except DataError as problem:
                problems.append(problem)
        return found, problems


def read_items(
    directory: Path, model: type[ItemT], links: Iterable[str]
) -> tuple[list[ItemT], list[DataError]]:
    """Return the items of the files that hold a valid one each, and every problem found.

    ``links`` are the items' fields that name other items.
    """
    contents, problems = parsed_files(directory)
    known = {path.stem for path in yaml_files(directory)}
    items = []
    for name, content in contents.items():
        file = str(directory / name)
        try:
            item = model.model_validate(content)
        except ValidationError as problem:
            problems += validation_errors(directory / name, problem)
            continue
        if f"{item.id}.yaml" != name:
            what = f"id {item.id!r} differs from the file name"
            problems.append(DataError(what, file=file, line=1, key="id"))
        items.append(item)
        problems += [
            DataError(
                f"names {model.__name__.lower()} {other!r}, which does not exist",
                file=file,
                key=link,
            )
            for link in links
            for other in getattr(item, link)
            if other not in known
        ]
    return items, problems


def validation_errors(path: Path, problem: ValidationError, *place: str) -> list[DataError]:
    """Return every complaint of pydantic as an error that names file, line and key.

    ``place`` are the keys under which the file holds what was validated.
    """
    order = {"extra_forbidden": 0, "value_error": 1}
    found = []
    for error in sorted(problem.errors(), key=lambda error: order.get(error["type"], 2)):
        key = ".".join(str(part) for part in (*place, *error["loc"])) or None
        message = str(error["msg"]).removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            message = "unknown key"
        line = _line_of(path, key or message)
        found.append(DataError(message, file=str(path), line=line, key=key))
    return found


def _line_of(path: Path, text: str) -> int | None:
    """Return the line of the innermost key or name in ``text`` that the file has."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for word in reversed(re.findall(r"[A-Za-z_][\w.\-]*", text)):
        for number, line in enumerate(lines, 1):
            if re.match(rf"[\s\-{{]*{re.escape(word)}\s*:", line):
                return number
    return None
