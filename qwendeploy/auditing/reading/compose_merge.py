"""Merging of compose services: ``extends``, ``include`` and the override file.

Mappings are merged, lists are joined, commands and other single values replaced, as the Compose
specification says ("Merge"); what stands in the upper text comes last where order counts.
"""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from qwendeploy.auditing.reading.config_file import Reader
from qwendeploy.auditing.reading.yaml_tree import DEEPEST, Tree, read_yaml
from qwendeploy.errors import UserError

_REPLACED = frozenset({"command", "entrypoint", "test", "device_ids", "capabilities"})
"""Lists that the upper text replaces."""
_BY_NAME = frozenset({"environment", "labels", "extra_hosts"})
"""Mappings that may be written as lists of ``NAME=value``."""
BASE_NAMES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
"""Files onto which ``docker compose`` lays an override file unasked (its reference)."""


def no_files(_name: str) -> None:
    """Read no other file."""


MOST_DOCUMENTS = 20
"""Other files of one compose project that are read."""


class Documents:
    """The other compose files that one names, each read once."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._known: dict[str, Tree | None] = {}

    def document(self, name: str) -> Tree | None:
        """Return the first document of a file, ``None`` if it is not read."""
        if name not in self._known and len(self._known) < MOST_DOCUMENTS:
            self._known[name] = _document(self._read, name)
        return self._known.get(name)


class Layers:
    """Nodes laid over each other; a pair that aliases repeat is laid once."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[tuple[int, int, str], tuple[Node, Node, Node]] = {}

    def merged(self, lower: Node | None, upper: Node, key: str = "", depth: int = 0) -> Node:
        """Return ``upper`` laid over ``lower`` under the name ``key``."""
        if lower is None or key in _REPLACED or str(upper.tag) == "!override" or depth > DEEPEST:
            return upper
        pair = (id(lower), id(upper), key)
        if pair not in self._known:
            # The nodes are kept with the answer, so that their identities stay theirs.
            self._known[pair] = (lower, upper, self._laid(lower, upper, key, depth))
        return self._known[pair][2]

    def _laid(self, lower: Node, upper: Node, key: str, depth: int) -> Node:
        if key in _BY_NAME and type(lower) is not type(upper):
            lower, upper = _as_list(self._tree, lower), _as_list(self._tree, upper)
        if isinstance(lower, MappingNode) and isinstance(upper, MappingNode):
            below, above = self._tree.mapping(lower), self._tree.mapping(upper)
            entries = dict(below)
            for name, node in above.items():
                entries[name] = self.merged(below.get(name), node, name, depth + 1)
                if str(node.tag) == "!reset":
                    del entries[name]
            pairs = [(_scalar(name, node), node) for name, node in entries.items()]
            return MappingNode(upper.tag, pairs, upper.start_mark, upper.end_mark)
        if isinstance(lower, SequenceNode) and isinstance(upper, SequenceNode):
            joined = [*lower.value, *upper.value]
            if key == "volumes":
                # Of two volumes at one place the upper one counts, looked for from the front.
                joined = [*upper.value, *lower.value]
            return SequenceNode(upper.tag, joined, upper.start_mark, upper.end_mark)
        return upper


def _scalar(text: str, like: Node) -> ScalarNode:
    return ScalarNode("tag:yaml.org,2002:str", text, like.start_mark, like.end_mark)


def _as_list(tree: Tree, node: Node) -> Node:
    if not isinstance(node, MappingNode):
        return node
    items = []
    for name, value in tree.mapping(node).items():
        word = tree.word(value)
        items.append(_scalar(name if word is None else f"{name}={word.text}", value))
    return SequenceNode("tag:yaml.org,2002:seq", items, node.start_mark, node.end_mark)


def _document(read: Reader, name: str) -> Tree | None:
    text = read(name)
    if text is None:
        return None
    try:
        trees = read_yaml(text, name)
    except UserError:
        return None
    return trees[0] if trees else None


def with_override(tree: Tree, read: Reader, file: str) -> Tree:
    """Return the document with the override file beside it laid over its services."""
    name = file.rsplit("/", 1)[-1]
    for override in _overrides(name):
        above = _document(read, override)
        if above is not None:
            return Tree(Layers(tree).merged(tree.root, above.root), tree.file)
    return tree


def is_laid_over(path: Path) -> bool:
    """Say whether a file is laid over a base file in its folder, so that it is no launch alone."""
    return any(
        path.name in _overrides(name) and path.with_name(name).is_file() for name in BASE_NAMES
    )


def _overrides(name: str) -> tuple[str, ...]:
    """Return the names under which a base file's override may stand."""
    if name not in BASE_NAMES:
        return ()
    stem = name.partition(".")[0]
    return tuple(f"{stem}.override.{ending}" for ending in ("yaml", "yml"))
