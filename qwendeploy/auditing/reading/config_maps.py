"""ConfigMaps of the same manifest file: variables and files for the containers that use them."""

from __future__ import annotations

from collections.abc import Mapping

from ruamel.yaml.nodes import Node

from qwendeploy.auditing.reading.text import Word
from qwendeploy.auditing.reading.yaml_tree import Tree

Maps = Mapping[str, Mapping[str, Word]]
"""The entries of every ConfigMap by its name; one file holds those of one namespace."""


def config_maps(trees: list[Tree]) -> Maps:
    """Return the ConfigMaps among the documents."""
    found: dict[str, dict[str, Word]] = {}
    for tree in trees:
        kind = tree.word(tree.at(tree.root, "kind"))
        name = tree.word(tree.at(tree.root, "metadata", "name"))
        if kind is None or kind.text != "ConfigMap" or name is None:
            continue
        entries = tree.mapping(tree.at(tree.root, "data"))
        words = {key: tree.word(value) for key, value in entries.items()}
        found[name.text] = {key: word for key, word in words.items() if word is not None}
    return found


def container_environment(
    tree: Tree, node: Node, maps: Maps
) -> tuple[dict[str, Word], tuple[str, ...]]:
    """Return a container's variables, and the sources of variables that are not in the file."""
    env: dict[str, Word] = {}
    unread = []
    for item in tree.sequence(tree.at(node, "envFrom")):
        prefix = tree.word(tree.at(item, "prefix"))
        for kind in ("configMapRef", "secretRef"):
            name = tree.word(tree.at(item, kind, "name"))
            if name is None:
                continue
            entries = maps.get(name.text) if kind == "configMapRef" else None
            if entries is None:
                unread.append(f"variables of {kind.removesuffix('Ref')} {name.text}")
            for key, word in (entries or {}).items():
                env[f"{prefix.text if prefix else ''}{key}"] = word
    for item in tree.sequence(tree.at(node, "env")):
        name = tree.word(tree.at(item, "name"))
        if name is None:
            continue
        value = tree.word(tree.at(item, "value")) or _referred(tree, item, maps)
        env[name.text] = value or Word(f"${name.text}", name.place)
    return env, tuple(unread)


def _referred(tree: Tree, item: Node, maps: Maps) -> Word | None:
    source = tree.at(item, "valueFrom", "configMapKeyRef")
    name, key = tree.word(tree.at(source, "name")), tree.word(tree.at(source, "key"))
    return maps.get(name.text, {}).get(key.text) if name is not None and key is not None else None


def mounted_texts(tree: Tree, pod: Node, node: Node, maps: Maps) -> dict[str, str]:
    """Return the texts that ConfigMaps of the file put into a container, by their paths there."""
    volumes = {}
    for volume in tree.sequence(tree.at(pod, "volumes")):
        name, source = tree.word(tree.at(volume, "name")), tree.at(volume, "configMap")
        named = tree.word(tree.at(source, "name"))
        if name is not None and named is not None and named.text in maps:
            volumes[name.text] = _files(tree, source, maps[named.text])
    texts: dict[str, str] = {}
    for mount in tree.sequence(tree.at(node, "volumeMounts")):
        name, target = tree.word(tree.at(mount, "name")), tree.word(tree.at(mount, "mountPath"))
        files = volumes.get(name.text) if name is not None else None
        if files is None or target is None:
            continue
        single = tree.word(tree.at(mount, "subPath"))
        if single is not None:
            files = {"": files[single.text]} if single.text in files else {}
        folder = target.text.rstrip("/")
        texts.update({f"{folder}/{path}".rstrip("/"): text for path, text in files.items()})
    return texts


def _files(tree: Tree, source: Node | None, entries: Mapping[str, Word]) -> dict[str, str]:
    """Return a volume's files: all entries, or those that its items name under their paths."""
    items = tree.sequence(tree.at(source, "items"))
    if not items:
        return {key: word.text for key, word in entries.items()}
    files = {}
    for item in items:
        key, path = tree.word(tree.at(item, "key")), tree.word(tree.at(item, "path"))
        if key is not None and path is not None and key.text in entries:
            files[path.text] = entries[key.text].text
    return files
