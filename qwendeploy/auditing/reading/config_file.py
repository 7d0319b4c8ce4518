"""``vllm serve --config FILE``: the file's keys are flags, read where it lies beside the launch.

The engine puts them in front of the command's own flags, so that those count (vLLM source,
``FlexibleArgumentParser.load_config_file``: a switch that is false is left out).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from qwendeploy.auditing.reading.checkpoint_names import host_path
from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.reading.text import Word, read_text
from qwendeploy.auditing.reading.yaml_tree import Tree, read_yaml
from qwendeploy.errors import UserError

FLAG = "--config"
UNREAD = "configuration file"
"""Prefix of the note about a file that was not read: it may set further flags."""

_HERE = re.compile(r"^\$(?:PWD|\{PWD\})/")

Reader = Callable[[str], str | None]
"""Return the text of a file by the name that the launch gives it, ``None`` if it is not read."""


def read_beside(directory: Path | None) -> Reader:
    """Return a reader of files below ``directory``; others are not opened."""

    def read(name: str) -> str | None:
        # The launch is started where it lies, as far as anybody can tell.
        name = _HERE.sub("", name)
        if directory is None or "$" in name:
            return None
        root = directory.resolve()
        try:
            path = (root / name).resolve()
            inside = path.is_relative_to(root) and path.is_file()
            return read_text(path, name) if inside else None
        except (OSError, ValueError, UserError):
            return None

    return read


def with_config_file(launch: ForeignLaunch, read: Reader) -> ForeignLaunch:
    """Return the launch with the flags of its configuration file in front of its own.

    Where the file is read, the flags stand for it: a corrected command names it no more.
    """
    name = _named(launch.arguments) if launch.engine == "vllm" else None
    if name is None:
        return launch
    volumes = launch.container.volumes if launch.container is not None else ()
    text = launch.files.get(name.text)
    if text is None:
        text = read(host_path(name.text, volumes))
    trees = None
    if text is not None:
        try:
            trees = read_yaml(text, name.text)
        except UserError:
            trees = None
    if not trees or not isinstance(trees[0].root, MappingNode):
        return replace(launch, unread=(*launch.unread, f"{UNREAD} {name.text}"))
    words = tuple(_flags(trees[0]))
    return replace(launch, arguments=(*words, *_without(launch.arguments)))


def _without(arguments: tuple[Word, ...]) -> Iterator[Word]:
    """Yield the arguments without the file's name."""
    named = False
    for word in arguments:
        flag, equals, _ = word.text.partition("=")
        if not named and flag != FLAG:
            yield word
        named = flag == FLAG and not equals


def _named(arguments: tuple[Word, ...]) -> Word | None:
    for index, word in enumerate(arguments):
        flag, equals, value = word.text.partition("=")
        if flag != FLAG:
            continue
        if equals:
            return Word(value, word.place)
        return arguments[index + 1] if index + 1 < len(arguments) else None
    return None


def _flags(tree: Tree) -> Iterator[Word]:
    for key, node in tree.mapping(tree.root).items():
        flag = Word(f"--{key}", tree.place(node))
        if isinstance(node, SequenceNode):
            items = [tree.word(item) for item in tree.sequence(node)]
            yield flag
            yield from (item for item in items if item is not None)
        elif isinstance(node, MappingNode):
            yield flag
            yield Word(json.dumps(_plain(tree, node, 0)), flag.place)
        else:
            yield from _scalar(tree, node, flag)


def _scalar(tree: Tree, node: Node, flag: Word) -> Iterator[Word]:
    word = tree.word(node)
    switch = word is not None and str(node.tag).endswith(":bool")
    if word is None or (switch and word.text.lower() not in ("true", "yes", "on")):
        return
    yield flag
    if not switch:
        yield word


def _plain(tree: Tree, node: Node, depth: int) -> object:
    if depth > 8:
        return None
    if isinstance(node, MappingNode):
        return {key: _plain(tree, value, depth + 1) for key, value in tree.mapping(node).items()}
    if isinstance(node, SequenceNode):
        return [_plain(tree, item, depth + 1) for item in tree.sequence(node)]
    word = tree.word(node)
    if word is None:
        return None
    if str(node.tag).endswith((":int", ":float", ":bool")):
        try:
            return json.loads(word.text.lower())
        except ValueError:
            return word.text
    return word.text
