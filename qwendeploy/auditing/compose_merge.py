"""One compose service out of several texts: ``extends``, ``include`` and the override file.

Mappings are merged, lists are joined, commands and other single values replaced, as the Compose
specification says ("Merge"); what stands in the upper text comes last where order counts.
"""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from qwendeploy.auditing.config_file import Reader
from qwendeploy.auditing.yaml_tree import DEEPEST, Tree, read_yaml
from qwendeploy.errors import UserError

_REPLACED = frozenset({"command", "entrypoint", "test", "device_ids", "capabilities"})
"""Lists that the upper text replaces."""
_BY_NAME = frozenset({"environment", "labels", "extra_hosts"})
"""Mappings that may be written as lists of ``NAME=value``."""
BASE_NAMES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
"""Files onto which ``docker compose`` lays an override file unasked (its reference)."""


def no_files(_name: str) -> None:
    """Read no other file."""


def merged(tree: Tree, lower: Node | None, upper: Node, key: str = "", depth: int = 0) -> Node:
    """Return ``upper`` laid over ``lower`` under the name ``key``."""
    if lower is None or key in _REPLACED or str(upper.tag) == "!override" or depth > DEEPEST:
        return upper
    if key in _BY_NAME and type(lower) is not type(upper):
        lower, upper = _as_list(tree, lower), _as_list(tree, upper)
    if isinstance(lower, MappingNode) and isinstance(upper, MappingNode):
        below, above = tree.mapping(lower), tree.mapping(upper)
        entries = dict(below)
        for name, node in above.items():
            entries[name] = merged(tree, below.get(name), node, name, depth + 1)
        for name, node in above.items():
            if str(node.tag) == "!reset":
                del entries[name]
        pairs = [(_scalar(name, node), node) for name, node in entries.items()]
        return MappingNode(upper.tag, pairs, upper.start_mark, upper.end_mark)
    if isinstance(lower, SequenceNode) and isinstance(upper, SequenceNode):
        joined = [*lower.value, *upper.value]
        if key == "volumes":
            # Of two volumes at one place the upper one counts, which is looked for from the front.
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


def compose_document(read: Reader, name: str) -> Tree | None:
    """Return the first document of another compose file, ``None`` if it is not read."""
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
        above = compose_document(read, override)
        if above is not None:
            return Tree(merged(tree, tree.root, above.root), tree.file)
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
