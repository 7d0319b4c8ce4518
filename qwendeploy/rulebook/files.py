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
from typing import Any, cast

from pydantic import ValidationError

from qwendeploy.documents.disk import write_file
from qwendeploy.errors import DataError, UserError

COMPILED = "compiled.json"


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


def validation_error(path: Path, problem: ValidationError) -> DataError:
    """Return the first complaint of pydantic as an error that names file, line and key."""
    order = {"extra_forbidden": 0, "value_error": 1}
    first = min(problem.errors(), key=lambda error: order.get(error["type"], 2))
    key = ".".join(str(part) for part in first["loc"]) or None
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "unknown key"
    return DataError(message, file=str(path), line=_line_of(path, key or message), key=key)


def _line_of(path: Path, text: str) -> int | None:
    """Return the line of the innermost key or name in ``text`` that the file has."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for word in reversed(re.findall(r"[A-Za-z_][\w.\-]*", text)):
        for number, line in enumerate(lines, 1):
            if re.match(rf"[\s\-{{]*{re.escape(word)}\s*:", line):
                return number
    return None
