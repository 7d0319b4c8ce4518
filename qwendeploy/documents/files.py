"""Documents on disk: read with a message that names file, line and key; written as YAML.

JSON is read too, being YAML. ruamel.yaml is imported on use: most verbs read no document.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from qwendeploy.documents.base import SCHEMA_VERSION, Document
from qwendeploy.documents.plan import Plan
from qwendeploy.errors import DataError, UserError

_PLAIN = re.compile(r"[A-Za-z](?:[\w ./+()%-]*[\w.)])?\Z", re.ASCII)

MOST_BYTES = 256 * 2**20
"""Bytes above which a file is none of ours: a run that keeps every request has some ten MiB."""

DocumentT = TypeVar("DocumentT", bound=Document)


STANDARD_INPUT = Path("-")
"""Stands for the document that is piped in."""


def read_plan(path: Path) -> Plan:
    """Return the plan stored at ``path``; errors as ``read_document``."""
    return read_document(path, Plan)


def read_plan_and_text(path: Path) -> tuple[Plan, str]:
    """Return the plan stored at ``path`` and its text, read once: a pipe has it only once."""
    text = _text_of(path)
    return _document(text, path, Plan), text


@contextmanager
def impossible_in(path: Path, text: str | None = None) -> Iterator[None]:
    """Give a ``DataError`` about a key of the document at ``path`` its file and line.

    Keys are paths into the document (``flags.3``); a key that is a setting of the command line
    (``--name``) is left alone. Without ``text`` the line is looked up in the file, if it can be
    read again.
    """
    try:
        yield
    except DataError as problem:
        if problem.file is not None or problem.key is None or problem.key.startswith("-"):
            raise
        keys = tuple(int(part) if part.isdigit() else part for part in problem.key.split("."))
        if text is None:
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
        raise DataError(
            problem.what,
            file=_shown(path),
            line=_line_of(text, keys) if text else None,
            key=problem.key,
            hint=problem.hint,
        ) from None


def read_document(path: Path, model: type[DocumentT]) -> DocumentT:
    """Return the document of type ``model`` stored at ``path``; ``-`` is standard input.

    Raises:
        UserError: the file cannot be read or a newer version of this program wrote it.
        DataError: it is not YAML, not this kind of document, or a value is impossible.
    """
    return _document(_text_of(path), path, model)


def _document(text: str, path: Path, model: type[DocumentT]) -> DocumentT:
    content = _parse(text, path)
    _check_head(content, model, path)
    try:
        return model.model_validate(content)
    except ValidationError as problem:
        first = problem.errors()[0]
        keys = tuple(first["loc"])
        more = f"; {problem.error_count() - 1} more" if problem.error_count() > 1 else ""
        raise DataError(
            f"{first['msg']}{more}",
            file=_shown(path),
            line=_line_of(text, keys),
            key=".".join(str(key) for key in keys) or None,
            hint="correct the value, or recreate the document",
        ) from None


def dump_document(document: Document) -> str:
    """Return the document as YAML that ``read_document`` reads back to an equal one."""
    from ruamel.yaml import YAML
    from ruamel.yaml.representer import SafeRepresenter

    # representers are registered on the class: one of our own leaves everybody else's alone
    class DocumentRepresenter(SafeRepresenter):
        """Quotes text by our rule."""

    DocumentRepresenter.add_representer(str, _represent_text)
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = DocumentRepresenter
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    # a folded scalar would be read back the same, but compares badly line by line
    yaml.width = 2**20
    stream = io.StringIO()
    yaml.dump(document.model_dump(mode="json", by_alias=True), stream)
    return stream.getvalue()


def _represent_text(representer: Any, text: str) -> Any:
    """Represent text: quoted unless it is plainly a word or a sentence, escaped if unprintable."""
    style = None if _PLAIN.match(text) else "'" if text.isprintable() else '"'
    return representer.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def schema_of(path: Path) -> str | None:
    """Return the schema that a stored document names; errors as ``read_document``."""
    found = _parse(_text_of(path), path).get("schema")
    return None if found is None else str(found)


def _shown(path: Path) -> str:
    return "standard input" if path == STANDARD_INPUT else str(path)


def _text_of(path: Path) -> str:
    try:
        if path == STANDARD_INPUT:
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with path.open("rb") as stream:
                content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UserError(f"is larger than {MOST_BYTES >> 20} MiB", where=_shown(path))
        return content.decode()
    except FileNotFoundError:
        raise UserError("no such file", where=str(path), hint="check the path") from None
    except IsADirectoryError:
        raise UserError("is a directory, not a document", where=str(path)) from None
    except UnicodeDecodeError as problem:
        raise UserError(
            f"is not text: byte {problem.start} is not UTF-8", where=_shown(path)
        ) from None
    except OSError as problem:
        raise UserError(f"cannot be read: {problem.strerror}", where=str(path)) from None


def _parse(text: str, path: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import Composer, ComposerError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.events import AliasEvent

    class WithoutAliases(Composer):
        """Refuses what our documents never hold and what can stand for endless content."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.parser.check_event(AliasEvent):
                mark = self.parser.peek_event().start_mark
                raise ComposerError(None, None, "aliases are not read", mark)
            return super().compose_node(parent, index)

    if text.lstrip().startswith("{"):
        # Run documents are JSON of many thousand lines, which the YAML reader takes minutes for.
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if isinstance(content, dict):
            return content
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = WithoutAliases
    try:
        content = yaml.load(text)
    except MarkedYAMLError as problem:
        mark = problem.problem_mark
        raise DataError(
            f"is not valid YAML: {problem.problem or problem.context}",
            file=_shown(path),
            line=mark.line + 1 if mark else None,
        ) from None
    except (YAMLError, ValueError, RecursionError) as problem:
        raise DataError(f"is not valid YAML: {problem}", file=_shown(path)) from None
    if not isinstance(content, dict):
        raise DataError("holds no mapping of keys to values", file=_shown(path))
    return {str(key): _plain(value) for key, value in content.items()}


def _plain(value: Any) -> Any:
    """Return the value with YAML's unquoted dates as the text they were."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    return value


def _check_head(content: dict[str, Any], model: type[Document], path: Path) -> None:
    wanted = model.model_fields["schema_id"].default
    found = content.get("schema")
    if found != wanted:
        raise DataError(
            f"is {found!r}, not {wanted!r}" if found else f"has no schema; expected {wanted!r}",
            file=_shown(path),
            key="schema",
        )
    version = str(content.get("schema_version", SCHEMA_VERSION))
    try:
        major, minor = (int(part) for part in version.split("."))
    except ValueError:
        raise DataError(
            f"{version!r} is not a version like {SCHEMA_VERSION}",
            file=_shown(path),
            key="schema_version",
        ) from None
    known = tuple(int(part) for part in SCHEMA_VERSION.split("."))
    if (major, minor) > known:
        raise UserError(
            f"was written by a newer qwendeploy: schema {version}, this one reads up to"
            f" {SCHEMA_VERSION}",
            where=_shown(path),
            hint="upgrade qwendeploy, or recreate the document with this version",
        )


def _line_of(text: str, keys: tuple[int | str, ...]) -> int | None:
    """Return the line of the deepest of ``keys`` that the document has."""
    from ruamel.yaml import YAML

    node: Any = YAML(typ="rt").load(text)
    line: int | None = None
    for key in keys:
        try:
            lookup = "key" if hasattr(node, "keys") else "item"
            position = getattr(node.lc, lookup)(key)
            node = node[key]
        except (KeyError, AttributeError, IndexError, TypeError):
            break
        line = position[0] + 1
    return line
