"""Job descriptions of other schedulers read as launches: containers told by their shape.

A container is a mapping with an ``image`` and its words as a list, whatever stands around it: jobs
of Nomad in JSON and task definitions of ECS are such files. What they say of GPUs and volumes is
told in too many ways to be read; it stays unknown, not absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from qwendeploy.auditing.reading.docker_run import server_of_words
from qwendeploy.auditing.reading.launch import Container, ForeignLaunch
from qwendeploy.auditing.reading.text import Word
from qwendeploy.auditing.reading.yaml_tree import Tree

DEEPEST = 12
MOST_ITEMS = 100
"""Entries of a list that are looked at."""
_WORDS = ("entrypoint", "command", "args")
_ENVIRONMENT = ("environment", "env")
_ELSEWHERE = {"templates", "secrets", "environmentfiles", "envfrom", "valuefrom"}
"""Keys under which variables come from elsewhere."""

Fields = dict[str, Node]


def is_json_job(text: str) -> bool:
    """Say whether the text is JSON in which an image is named."""
    return text.lstrip()[:1] in ("{", "[") and re.search(r'"image"\s*:', text) is not None


def read_jobs(trees: list[Tree]) -> list[ForeignLaunch]:
    """Return the engine servers of all documents; other containers are left out."""
    found = (_launch(*one) for tree in trees for one in _containers(tree, tree.root, {}, 0))
    return [launch for launch in found if launch.engine != "other"]


def _containers(
    tree: Tree, node: Node, around: Fields, depth: int
) -> Iterator[tuple[Tree, Node, Fields, Fields]]:
    """Yield each container with its fields and those of the mapping around it."""
    if depth > DEEPEST:
        return
    if isinstance(node, MappingNode):
        fields = {name.lower(): value for name, value in tree.mapping(node).items()}
        listed = any(isinstance(fields.get(name), SequenceNode) for name in _WORDS)
        if tree.word(fields.get("image")) is not None and listed:
            yield tree, node, fields, around
            return
        for value in fields.values():
            yield from _containers(tree, value, fields, depth + 1)
    for item in tree.sequence(node)[:MOST_ITEMS]:
        yield from _containers(tree, item, around, depth + 1)


def _launch(tree: Tree, node: Node, fields: Fields, around: Fields) -> ForeignLaunch:
    both = {**around, **fields}
    image = tree.word(fields["image"])
    env = {
        name: word for key in _ENVIRONMENT for name, word in _variables(tree, both.get(key)).items()
    }
    words = tuple(word for key in _WORDS for word in _words(tree, fields.get(key)))
    engine, arguments, inner = server_of_words(words, image.text if image else "", env)
    ipc = tree.word(both.get("ipc_mode") or both.get("ipcmode"))
    name = tree.word(fields.get("name") or around.get("name"))
    elsewhere = sorted(_ELSEWHERE & both.keys())
    container = Container(
        image=image,
        network=tree.word(both.get("network_mode") or both.get("networkmode")),
        shared_memory=True if ipc is not None and ipc.text == "host" else None,
        opaque=True,
    )
    return ForeignLaunch(
        tree.place(node),
        "docker",
        engine,
        arguments,
        {**env, **inner},
        container,
        name.text if name is not None else "",
        unread=tuple(f"variables of {key}" for key in elsewhere),
    )


def _words(tree: Tree, node: Node | None) -> list[Word]:
    items = tree.sequence(node) or ([node] if node is not None else [])
    return [word for item in items if (word := tree.word(item)) is not None]


def _variables(tree: Tree, node: Node | None) -> dict[str, Word]:
    """Return the variables of a mapping, or of a list of ``{name, value}``."""
    pairs = list(tree.mapping(node).items())
    for item in tree.sequence(node):
        entry = {key.lower(): value for key, value in tree.mapping(item).items()}
        named = tree.word(entry.get("name"))
        if named is not None and "value" in entry:
            pairs.append((named.text, entry["value"]))
    return {name: word for name, value in pairs if (word := tree.word(value)) is not None}
