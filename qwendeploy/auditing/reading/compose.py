"""Compose files read as launches: anchors, environment files, profiles, list or text commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ruamel.yaml.nodes import Node

from qwendeploy.auditing.reading.compose_merge import Documents, Layers, no_files
from qwendeploy.auditing.reading.config_file import UNREAD, Reader
from qwendeploy.auditing.reading.docker_run import (
    EnvFiles,
    env_of_files,
    no_env_files,
    server_of_words,
)
from qwendeploy.auditing.reading.launch import (
    Container,
    ForeignLaunch,
    Port,
    Supervision,
    VisibleGpus,
    enough_shared_memory,
    nvidia_devices,
    parse_port,
    repeated_program,
)
from qwendeploy.auditing.reading.shell_words import split_words
from qwendeploy.auditing.reading.text import Place, Word, whole_number
from qwendeploy.auditing.reading.yaml_tree import Tree

_VARIABLE = re.compile(
    r"\$(?:(\$)|([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?+])([^}]*))?\})"
)


EXTENDED = "the extended file"
"""Prefix of the note about a file that a service extends and that was not read."""
DEEPEST_EXTENDED = 8
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}


def is_compose(tree: Tree) -> bool:
    """Say whether the document is a compose file."""
    fields = tree.mapping(tree.root)
    return bool(tree.mapping(fields.get("services")) or tree.sequence(fields.get("include")))


def read_compose(
    tree: Tree,
    variables: Mapping[str, str],
    env_files: EnvFiles = no_env_files,
    read: Reader = no_files,
) -> list[ForeignLaunch]:
    """Return the engine servers of a compose file; other services (proxies, UIs) are left out.

    ``variables`` come from the project's ``.env``; unknown ones stay ``$NAME``. Files that services
    extend or that the file includes are looked for by ``read``.
    """
    services = tree.mapping(tree.at(tree.root, "services"))
    documents = Documents(read)
    for item in _included(tree):
        other = documents.document(item)
        if other is not None:
            services = tree.mapping(tree.at(other.root, "services")) | services
    launches = []
    for name, node in services.items():
        launch = _Service(tree, variables, env_files, services, documents).launch(name, node)
        if launch.engine != "other":
            launches.append(launch)
    return launches


MOST_INCLUDED = 20
"""Files that one compose file includes."""


def _included(tree: Tree) -> list[str]:
    """Return the files that the document includes, short and long form."""
    names = []
    for item in tree.sequence(tree.at(tree.root, "include"))[:MOST_INCLUDED]:
        word = tree.word(item) or tree.word(tree.at(item, "path"))
        if word is not None:
            names.append(word.text)
    return names


class _Service:
    """One service while it is read."""

    def __init__(
        self,
        tree: Tree,
        variables: Mapping[str, str],
        env_files: EnvFiles,
        services: Mapping[str, Node],
        documents: Documents,
    ) -> None:
        self.tree = tree
        self.variables = variables
        self.env_files = env_files
        self.services = services
        self.documents = documents
        self.unread: list[str] = []

    def launch(self, name: str, node: Node) -> ForeignLaunch:
        fields = self.tree.mapping(self._with_extended(node, self.services, 0))
        place = self.tree.place(node)
        image = self._word(fields.get("image"))
        words = (*self._command(fields.get("entrypoint")), *self._command(fields.get("command")))
        name_of_image = image.text if image else ""
        env = self._environment(fields)
        engine, arguments, inner = server_of_words(words, name_of_image, env)
        env.update(inner)
        own_entry = "entrypoint" not in fields
        devices = tuple(self._words(fields.get("devices")))
        hidden = any(part.startswith(EXTENDED) for part in self.unread)
        gpus = self._gpus(fields, devices, place)
        shared = self._shares_memory(fields)
        container = Container(
            image=image,
            gpus=None if hidden and not gpus.passed else gpus,
            ports=tuple(self._ports(fields.get("ports"))),
            volumes=tuple(self._volumes(fields.get("volumes"))),
            network=self._word(fields.get("network_mode")),
            shared_memory=None if hidden and not shared else shared,
            platform=self._word(fields.get("platform")),
            devices=devices,
            restart=self._word(fields.get("restart")),
            workdir=self._word(fields.get("working_dir")),
            opaque=hidden or bool({"volumes_from", "configs", "secrets"} & fields.keys()),
            refused=tuple(self._refused_requests(fields)),
            replicas=self._replicas(fields),
        )
        return ForeignLaunch(
            place,
            "docker",
            engine,
            arguments,
            env,
            container,
            name,
            unread=tuple(self.unread),
            repeated=repeated_program(words, name_of_image) if own_entry else None,
            supervision=self._awaited(name, fields),
            states_program=not own_entry,
            profiles=frozenset(word.text for word in self._words(fields.get("profiles"))),
        )

    def _awaited(self, name: str, fields: Mapping[str, Node]) -> Supervision | None:
        """Return how long services that need this one healthy wait before they give up."""
        check = fields.get("healthcheck")
        waits = [
            self.tree.word(self.tree.at(service, "depends_on", name, "condition"))
            for service in self.services.values()
        ]
        if check is None or not any(word and word.text == "service_healthy" for word in waits):
            return None
        start = self._seconds(self.tree.at(check, "start_period"), 0.0)
        every = self._seconds(self.tree.at(check, "interval"), 30.0)
        tries = self._word(self.tree.at(check, "retries"))
        told = whole_number(tries.text) if tries is not None else None
        count = 3 if told is None else told
        if start is None or every is None:
            return None
        return Supervision(int(start + every * count), self.tree.place(check), restarts=False)

    def _replicas(self, fields: Mapping[str, Node]) -> int:
        stated = self._word(fields.get("scale"))
        stated = stated or self._word(self.tree.at(fields.get("deploy"), "replicas"))
        count = whole_number(stated.text) if stated is not None else None
        return 1 if count is None else count

    def _seconds(self, node: Node | None, default: float) -> float | None:
        """Return a duration of the compose specification, ``None`` if it cannot be read."""
        word = self._word(node)
        if word is None:
            return default
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|us|h|m|s)", word.text[:40])
        if not parts or "".join(number + unit for number, unit in parts) != word.text:
            return None
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)

    def _with_extended(self, node: Node, services: Mapping[str, Node], depth: int) -> Node:
        """Return the service laid over the one that it extends."""
        extends = self.tree.at(node, "extends")
        if extends is None or depth > DEEPEST_EXTENDED:
            return node
        base = self._word(extends) or self._word(self.tree.at(extends, "service"))
        file = self._word(self.tree.at(extends, "file"))
        if file is not None:
            other = self.documents.document(file.text)
            if other is None:
                self.unread.append(f"{EXTENDED} {file.text}")
                if self.tree.at(node, "command") is None:
                    self.unread.append(f"{UNREAD} {file.text}")
                return node
            services = self.tree.mapping(self.tree.at(other.root, "services"))
        if base is None or base.text not in services:
            return node
        lower = self._with_extended(services[base.text], services, depth + 1)
        return Layers(self.tree).merged(lower, node)

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
        listed = fields.get("env_file")
        single = self._word(listed) or self._word(self.tree.at(listed, "path"))
        files = [*self._words(listed), *([single] if single else [])]
        for item in self.tree.sequence(listed):
            path = self._word(self.tree.at(item, "path"))
            files.extend([path] if path else [])
        env, unread = env_of_files(files, self.env_files)
        self.unread.extend(unread)
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
        large = enough_shared_memory(self._word(fields.get("shm_size")))
        return large or tmpfs or (ipc is not None and ipc.text == "host")

    def _gpus(
        self, fields: Mapping[str, Node], devices: tuple[Word, ...], place: Place
    ) -> VisibleGpus:
        gpus = fields.get("gpus")
        if gpus is not None:
            word = self._word(gpus)
            if word is not None:
                count = whole_number(word.text)
                return VisibleGpus(True, count, (), word.place)
            return self._requests(self.tree.sequence(gpus)) or VisibleGpus(True, None, (), place)
        reserved = self.tree.at(fields.get("deploy"), "resources", "reservations", "devices")
        request = self._requests(self.tree.sequence(reserved))
        if request is not None:
            return request
        runtime = self._word(fields.get("runtime"))
        if runtime is not None and "nvidia" in runtime.text:
            return VisibleGpus(True, None, (), runtime.place)
        return nvidia_devices(devices) or VisibleGpus(False, 0, (), place)

    def _refused_requests(self, fields: Mapping[str, Node]) -> Iterator[Word]:
        """Yield why compose rejects a device request (Compose specification, deploy)."""
        reserved = self.tree.at(fields.get("deploy"), "resources", "reservations", "devices")
        for item in self.tree.sequence(reserved):
            keys, place = self.tree.mapping(item), self.tree.place(item)
            if "capabilities" not in keys:
                yield Word("a device request needs capabilities: [gpu]", place)
            if {"count", "device_ids"} <= keys.keys():
                yield Word("count and device_ids are mutually exclusive", place)

    def _requests(self, items: list[Node]) -> VisibleGpus | None:
        for item in items:
            ids = self._words(self.tree.at(item, "device_ids"))
            stated = self._word(self.tree.at(item, "count"))
            count = whole_number(stated.text) if stated is not None else None
            place = self.tree.place(item)
            if ids:
                return VisibleGpus(True, len(ids), tuple(word.text for word in ids), place)
            if count is not None:
                return VisibleGpus(count > 0, count, (), place)
            return VisibleGpus(True, None, (), place)
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
