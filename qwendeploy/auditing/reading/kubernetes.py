"""Kubernetes manifests read as launches: every container that starts an engine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from qwendeploy.auditing.reading.config_maps import (
    Maps,
    config_maps,
    container_environment,
    mounted_texts,
)
from qwendeploy.auditing.reading.docker_run import server_of_words
from qwendeploy.auditing.reading.launch import (
    Container,
    ForeignLaunch,
    Port,
    Supervision,
    VisibleGpus,
    enough_shared_memory,
    repeated_program,
)
from qwendeploy.auditing.reading.text import Place, Word, whole_number
from qwendeploy.auditing.reading.yaml_tree import Tree

_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
MOST_PODS = 1024
"""Pods of one kind that are told apart."""


def is_manifest(tree: Tree) -> bool:
    """Say whether the document is a Kubernetes object."""
    fields = tree.mapping(tree.root)
    return "kind" in fields and "apiVersion" in fields


def read_manifests(trees: list[Tree]) -> list[ForeignLaunch]:
    """Return the engine servers of all manifests of a file."""
    published = any(_published(tree) for tree in trees)
    maps = config_maps(trees)
    links = {space: place for tree in trees for space, place in _port_links(tree)}
    launches = []
    for tree in trees:
        link = links.get(_namespace(tree))
        for pod, container, replicas in _containers(tree, tree.root, 0, 1):
            launch = _launch(tree, pod, container, maps, published, link)
            if launch.container is not None:
                launch = replace(launch, container=replace(launch.container, replicas=replicas))
            if launch.engine != "other":
                launches.append(launch)
    return launches


def _published(tree: Tree) -> bool:
    """Say whether the object makes a port reachable from outside the cluster."""
    kind = tree.word(tree.at(tree.root, "kind"))
    if kind is None:
        return False
    service = tree.word(tree.at(tree.root, "spec", "type"))
    if kind.text == "Service" and service is not None:
        return service.text in ("LoadBalancer", "NodePort")
    return kind.text == "Ingress"


def _namespace(tree: Tree) -> str:
    word = tree.word(tree.at(tree.root, "metadata", "namespace"))
    return word.text if word is not None else ""


def _port_links(tree: Tree) -> Iterator[tuple[str, Place]]:
    """Yield the namespace in which pods find this Service's address under ``VLLM_PORT``.

    The cluster names such variables after the Service; a headless one gets none (Kubernetes
    documentation, services).
    """
    kind = tree.word(tree.at(tree.root, "kind"))
    name = tree.word(tree.at(tree.root, "metadata", "name"))
    address = tree.word(tree.at(tree.root, "spec", "clusterIP"))
    headless = address is not None and address.text == "None"
    service = kind is not None and kind.text == "Service" and not headless
    if service and name is not None and name.text == "vllm":
        yield _namespace(tree), name.place


def _containers(
    tree: Tree, node: Node, depth: int, replicas: int
) -> Iterator[tuple[Node, Node, int]]:
    """Yield (pod spec, container, pods of this kind) wherever a pod template may stand."""
    if depth > 12:
        return
    if isinstance(node, MappingNode):
        fields = tree.mapping(node)
        stated = tree.word(fields["replicas"]) if "replicas" in fields else None
        count = whole_number(stated.text) if stated is not None else None
        replicas = replicas if count is None else min(max(count, 1), MOST_PODS)
        for name, value in fields.items():
            if name == "containers":
                for container in tree.sequence(value):
                    yield node, container, replicas
            elif name not in ("initContainers", "metadata"):
                yield from _containers(tree, value, depth + 1, replicas)
    elif isinstance(node, SequenceNode):
        for item in tree.sequence(node)[:100]:
            yield from _containers(tree, item, depth + 1, replicas)


def _launch(
    tree: Tree, pod: Node, node: Node, maps: Maps, published: bool, link: Place | None
) -> ForeignLaunch:
    place = tree.place(node)
    image = tree.word(tree.at(node, "image"))
    env, unread = container_environment(tree, node, maps)
    command, given = (
        tuple(
            Word(_substituted(word.text, env), word.place)
            for item in tree.sequence(tree.at(node, key))
            if (word := tree.word(item)) is not None
        )
        for key in ("command", "args")
    )
    name_of_image = image.text if image else ""
    engine, arguments, inner = server_of_words((*command, *given), name_of_image, env)
    name = tree.word(tree.at(node, "name"))
    host_network = tree.word(tree.at(pod, "hostNetwork"))
    on_host = host_network is not None and host_network.text == "true"
    container = Container(
        image=image,
        gpus=_gpus(tree, node),
        ports=tuple(_ports(tree, node)),
        volumes=tuple(_mounts(tree, pod, node)),
        network=Word("host", host_network.place) if host_network and on_host else None,
        shared_memory=_shares_memory(tree, pod, node),
        published_by_cluster=published,
        workdir=tree.word(tree.at(node, "workingDir")),
    )
    return ForeignLaunch(
        place,
        "kubernetes",
        engine,
        arguments,
        {**env, **inner},
        container,
        name.text if name else "",
        unread=unread,
        repeated=None if command else repeated_program(given, name_of_image),
        states_program=bool(command),
        supervision=_supervision(tree, pod, node, link if "VLLM_PORT" not in env else None),
        files=mounted_texts(tree, pod, node, maps),
    )


def _supervision(tree: Tree, pod: Node, node: Node, link: Place | None) -> Supervision:
    links = tree.word(tree.at(pod, "enableServiceLinks"))
    if links is not None and links.text == "false":
        link = None
    for key in ("startupProbe", "livenessProbe"):
        probe = tree.at(node, key)
        if probe is not None:
            return Supervision(_patience(tree, probe), tree.place(probe), link)
    return Supervision(link=link)


def _patience(tree: Tree, probe: Node) -> int | None:
    """Return the seconds until the probe kills a server that never answers."""
    numbers = []
    for key, default in (
        ("initialDelaySeconds", 0),
        ("periodSeconds", 10),
        ("failureThreshold", 3),
    ):
        word = tree.word(tree.at(probe, key))
        if word is not None and whole_number(word.text) is None:
            return None
        numbers.append(int(word.text[:9]) if word is not None else default)
    return numbers[0] + numbers[1] * numbers[2]


def _substituted(text: str, env: Mapping[str, Word]) -> str:
    """Return text with ``$(NAME)`` of the container's own variables put in."""

    def value(match: re.Match[str]) -> str:
        known = env.get(match[1])
        return known.text if known is not None else f"${match[1]}"

    return _REFERENCE.sub(value, text)


def _gpus(tree: Tree, node: Node) -> VisibleGpus:
    for group in ("limits", "requests"):
        resources = tree.mapping(tree.at(node, "resources", group))
        for name, value in resources.items():
            word = tree.word(value)
            if name in _GPU_RESOURCES or name.startswith("nvidia.com/mig"):
                count = whole_number(word.text) if word else None
                return VisibleGpus(count != 0, count, (), tree.place(value))
    return VisibleGpus(False, 0, (), tree.place(node))


def _ports(tree: Tree, node: Node) -> Iterator[Port]:
    for item in tree.sequence(tree.at(node, "ports")):
        target = tree.word(tree.at(item, "containerPort"))
        host = tree.word(tree.at(item, "hostPort"))
        if target is not None:
            yield Port("cluster" if host is None else "", "", target.text, target.place)


def _mounts(tree: Tree, pod: Node, node: Node) -> Iterator[Word]:
    sources = {}
    for volume in tree.sequence(tree.at(pod, "volumes")):
        name = tree.word(tree.at(volume, "name"))
        path = tree.word(tree.at(volume, "hostPath", "path"))
        if name is not None:
            sources[name.text] = path.text if path else name.text
    for mount in tree.sequence(tree.at(node, "volumeMounts")):
        name = tree.word(tree.at(mount, "name"))
        target = tree.word(tree.at(mount, "mountPath"))
        if name is not None and target is not None:
            yield Word(f"{sources.get(name.text, name.text)}:{target.text}", target.place)


def _shares_memory(tree: Tree, pod: Node, node: Node) -> bool:
    ipc = tree.word(tree.at(pod, "hostIPC"))
    small = {
        name.text
        for volume in tree.sequence(tree.at(pod, "volumes"))
        if (name := tree.word(tree.at(volume, "name"))) is not None
        and (size := tree.word(tree.at(volume, "emptyDir", "sizeLimit"))) is not None
        and not enough_shared_memory(size)
    }
    mounts = any(
        word.text.endswith(":/dev/shm") and word.text.removesuffix(":/dev/shm") not in small
        for word in _mounts(tree, pod, node)
    )
    return mounts or (ipc is not None and ipc.text == "true")
