"""YAML as nodes with line numbers: no tags, no objects, bounded size and depth.

Only the node graph is built, never Python objects, so that a tag cannot name code and an alias
costs nothing until somebody walks it; what walks it here is bounded.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from qwendeploy.auditing.reading.text import Place, Word
from qwendeploy.errors import UserError

LARGEST_CHARACTERS = 96 * 1024
"""Compose files and manifests of one service stay far below; the parser is slow in Python."""
DEEPEST = 40
MOST_NODES = 20_000
_CORE = "tag:yaml.org,2002:"
_PLAIN_TAGS = {"!reset", "!override"}
"""Compose's own merge tags: they change nothing for a single file."""


class Tree:
    """One YAML document as nodes; ``file`` names it in places.

    A node keeps the file that it was read from, so that nodes of several files may be put together.
    """

    def __init__(self, root: Node, file: str) -> None:
        self.root = root
        self.file = file

    def place(self, node: Node) -> Place:
        """Return the node's first line."""
        return Place(str(node.start_mark.name), node.start_mark.line + 1)

    def mapping(self, node: Node | None, depth: int = 0) -> dict[str, Node]:
        """Return a mapping's entries, ``<<`` merged in; empty for anything else."""
        if not isinstance(node, MappingNode) or depth > DEEPEST:
            return {}
        entries: dict[str, Node] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                continue
            if key.value == "<<":
                merged = value.value if isinstance(value, SequenceNode) else [value]
                for source in merged[:50]:
                    for name, item in self.mapping(source, depth + 1).items():
                        entries.setdefault(name, item)
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value != "<<":
                entries[key.value] = value
        return entries

    def sequence(self, node: Node | None) -> list[Node]:
        """Return a sequence's items; empty for anything else."""
        return list(node.value) if isinstance(node, SequenceNode) else []

    def word(self, node: Node | None) -> Word | None:
        """Return a scalar as a word; null and collections are ``None``."""
        if not isinstance(node, ScalarNode) or node.tag == f"{_CORE}null":
            return None
        return Word(str(node.value), self.place(node))

    def at(self, node: Node | None, *path: str) -> Node | None:
        """Return the node under a path of keys, ``None`` if a step is missing."""
        for key in path:
            node = self.mapping(node).get(key)
        return node


class _Named(io.StringIO):
    """Text under the name that the parser puts into every node's mark."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


def read_yaml(text: str, file: str) -> list[Tree]:
    """Return the documents of a YAML text.

    Raises:
        UserError: not YAML, too large or too deep, or with a tag of its own.
    """
    if len(text) > LARGEST_CHARACTERS:
        raise UserError(
            f"YAML of more than {LARGEST_CHARACTERS // 1024} KiB",
            where=file,
            hint="pass only the file of the service",
        )
    loader = YAML(typ="safe", pure=True)
    try:
        with warnings.catch_warnings():
            # An anchor that is used again is allowed; the later one counts.
            warnings.simplefilter("ignore", ReusedAnchorWarning)
            roots = [root for root in loader.compose_all(_Named(text, file)) if root is not None]
    except YAMLError as problem:
        raise UserError(_reason(problem), where=_where(problem, file)) from None
    except RecursionError:
        raise UserError("nested too deeply", where=file) from None
    trees = [Tree(root, file) for root in roots]
    for tree in trees:
        _check(tree)
    return trees


def _reason(problem: YAMLError) -> str:
    text = getattr(problem, "problem", None) or str(problem).splitlines()[0]
    return f"not valid YAML: {text}"


def _where(problem: YAMLError, file: str) -> str:
    mark: Any = getattr(problem, "problem_mark", None)
    return f"{file}:{mark.line + 1}" if mark is not None else file


def _check(tree: Tree) -> None:
    """Refuse tags that are not YAML's own, and graphs too large or too deep to be a service."""
    for count, (node, depth) in enumerate(_walk(tree.root), start=1):
        tag = str(node.tag or "")
        if tag and not tag.startswith(_CORE) and tag not in _PLAIN_TAGS:
            raise UserError(f"the YAML tag {tag} is not supported", where=str(tree.place(node)))
        if tag.startswith(f"{_CORE}python"):
            raise UserError(f"the YAML tag {tag} is not supported", where=str(tree.place(node)))
        if depth > DEEPEST:
            raise UserError("nested too deeply", where=str(tree.place(node)))
        if count > MOST_NODES:
            raise UserError("more values than a launch file has", where=tree.file)


def _walk(root: Node) -> Iterator[tuple[Node, int]]:
    """Yield every node once with its depth: aliases are not followed a second time."""
    seen: set[int] = set()
    stack = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node, depth
        if depth > DEEPEST:
            continue
        if isinstance(node, MappingNode):
            stack.extend((part, depth + 1) for pair in node.value for part in pair)
        elif isinstance(node, SequenceNode):
            stack.extend((item, depth + 1) for item in node.value)
