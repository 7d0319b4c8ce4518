"""Compose files read as launches: anchors, environment files, profiles, list or text commands."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ruamel.yaml.nodes import Node

from qwendeploy.auditing.docker_run import EnvFiles, no_env_files, server_of_words
from qwendeploy.auditing.launch import (
    Container,
    Gpus,
    Launch,
    Port,
    nvidia_devices,
    parse_port,
    repeated_program,
)
from qwendeploy.auditing.shell import split_words
from qwendeploy.auditing.text import Place, Word
from qwendeploy.auditing.yaml_tree import Tree

_VARIABLE = re.compile(
    r"\$(?:(\$)|([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?+])([^}]*))?\})"
)


def is_compose(tree: Tree) -> bool:
    """Say whether the document is a compose file."""
    return bool(tree.mapping(tree.at(tree.root, "services")))


def read_compose(
    tree: Tree, variables: Mapping[str, str], env_files: EnvFiles = no_env_files
) -> list[Launch]:
    """Return the engine servers of a compose file; other services (proxies, UIs) are left out.

    ``variables`` come from the project's ``.env``; unknown ones stay ``$NAME``.
    """
    services = tree.mapping(tree.at(tree.root, "services"))
    launches = []
    for name, node in services.items():
        launch = _Service(tree, variables, env_files, services).launch(name, node)
        if launch.engine != "other":
            launches.append(launch)
    return launches


class _Service:
    """One service while it is read."""

    def __init__(
        self,
        tree: Tree,
        variables: Mapping[str, str],
        env_files: EnvFiles,
        services: Mapping[str, Node],
    ) -> None:
        self.tree = tree
        self.variables = variables
        self.env_files = env_files
        self.services = services
        self.unread: list[str] = []

    def launch(self, name: str, node: Node) -> Launch:
        fields = self._with_extended(node, 0)
        place = self.tree.place(node)
        image = self._word(fields.get("image"))
        words = (*self._command(fields.get("entrypoint")), *self._command(fields.get("command")))
        name_of_image = image.text if image else ""
        engine, arguments, inner = server_of_words(words, name_of_image)
        own_entry = "entrypoint" not in fields
        env = {**self._environment(fields), **inner}
        devices = tuple(self._words(fields.get("devices")))
        container = Container(
            image=image,
            gpus=self._gpus(fields, devices, place),
            ports=tuple(self._ports(fields.get("ports"))),
            volumes=tuple(self._volumes(fields.get("volumes"))),
            network=self._word(fields.get("network_mode")),
            shared_memory=self._shares_memory(fields),
            platform=self._word(fields.get("platform")),
            devices=devices,
            restart=self._word(fields.get("restart")),
        )
        return Launch(
            place,
            "docker",
            engine,
            arguments,
            env,
            container,
            name,
            unread=tuple(self.unread),
            repeated=repeated_program(words, name_of_image) if own_entry else None,
        )

    def _with_extended(self, node: Node | None, depth: int) -> dict[str, Node]:
        fields = self.tree.mapping(node)
        extends = fields.get("extends")
        if extends is None or depth > 8:
            return fields
        base = self.tree.word(extends) or self.tree.word(self.tree.at(extends, "service"))
        if self.tree.at(extends, "file") is not None:
            self.unread.append("the file that the service extends")
            return fields
        if base is None or base.text not in self.services:
            return fields
        return {**self._with_extended(self.services[base.text], depth + 1), **fields}

    def _word(self, node: Node | None) -> Word | None:
        word = self.tree.word(node)
        return Word(interpolate(word.text, self.variables), word.place) if word else None

    def _words(self, node: Node | None) -> list[Word]:
        found = [self._word(item) for item in self.tree.sequence(node)]
        return [word for word in found if word is not None]

    def _command(self, node: Node | None) -> list[Word]:
        text = self._word(node)
        if text is None:
            return self._words(node)
        return split_words(text.text, text.place.file, text.place.line)

    def _environment(self, fields: Mapping[str, Node]) -> dict[str, Word]:
        env: dict[str, Word] = {}
        listed = fields.get("env_file")
        single = self._word(listed) or self._word(self.tree.at(listed, "path"))
        files = [*self._words(listed), *([single] if single else [])]
        for item in self.tree.sequence(listed):
            path = self._word(self.tree.at(item, "path"))
            files.extend([path] if path else [])
        for file in files:
            values = self.env_files(file)
            if values is None:
                self.unread.append(f"environment file {file.text}")
            env.update(values or {})
        node = fields.get("environment")
        for key, value in self.tree.mapping(node).items():
            word = self._word(value)
            env[key] = word or Word(self.variables.get(key, f"${key}"), self.tree.place(value))
        for word in self._words(node):
            key, equals, text = word.text.partition("=")
            env[key] = Word(text if equals else self.variables.get(key, f"${key}"), word.place)
        return env

    def _ports(self, node: Node | None) -> list[Port]:
        ports = []
        for item in self.tree.sequence(node):
            word = self._word(item)
            if word is not None:
                port = parse_port(word.text, word.place)
                if port is not None:
                    ports.append(port)
                continue
            parts = {key: self._word(value) for key, value in self.tree.mapping(item).items()}
            address, published, target = (
                (parts[key].text if parts.get(key) else "")  # type: ignore[union-attr]
                for key in ("host_ip", "published", "target")
            )
            ports.append(Port(address, published, target, self.tree.place(item)))
        return ports

    def _volumes(self, node: Node | None) -> list[Word]:
        volumes = []
        for item in self.tree.sequence(node):
            word = self._word(item)
            if word is None:
                source = self._word(self.tree.at(item, "source"))
                target = self._word(self.tree.at(item, "target"))
                if source and target:
                    word = Word(f"{source.text}:{target.text}", source.place)
            if word is not None:
                volumes.append(word)
        return volumes

    def _shares_memory(self, fields: Mapping[str, Node]) -> bool:
        ipc = self._word(fields.get("ipc"))
        tmpfs = any("/dev/shm" in word.text for word in self._words(fields.get("tmpfs")))
        return "shm_size" in fields or tmpfs or (ipc is not None and ipc.text == "host")

    def _gpus(self, fields: Mapping[str, Node], devices: tuple[Word, ...], place: Place) -> Gpus:
        gpus = fields.get("gpus")
        if gpus is not None:
            word = self._word(gpus)
            if word is not None:
                count = int(word.text) if word.text.isdigit() else None
                return Gpus(True, count, (), word.place)
            return self._requests(self.tree.sequence(gpus)) or Gpus(True, None, (), place)
        reserved = self.tree.at(fields.get("deploy"), "resources", "reservations", "devices")
        request = self._requests(self.tree.sequence(reserved))
        if request is not None:
            return request
        runtime = self._word(fields.get("runtime"))
        if runtime is not None and "nvidia" in runtime.text:
            return Gpus(True, None, (), runtime.place)
        return nvidia_devices(devices) or Gpus(False, 0, (), place)

    def _requests(self, items: list[Node]) -> Gpus | None:
        for item in items:
            ids = self._words(self.tree.at(item, "device_ids"))
            count = self._word(self.tree.at(item, "count"))
            place = self.tree.place(item)
            if ids:
                return Gpus(True, len(ids), tuple(word.text for word in ids), place)
            if count is not None and count.text.isdigit():
                return Gpus(int(count.text) > 0, int(count.text), (), place)
            return Gpus(True, None, (), place)
        return None


def interpolate(text: str, variables: Mapping[str, str]) -> str:
    """Return text with compose variables put in; unknown ones without a default stay ``$NAME``."""

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        name = match[2] or match[3]
        known = variables.get(name)
        operator, default = match[4] or "", match[5] or ""
        if operator.endswith("+"):
            return default if known else ""
        if known is None or (not known and operator.startswith(":")):
            return default if operator.endswith("-") else f"${name}"
        return known

    return _VARIABLE.sub(value, text)
