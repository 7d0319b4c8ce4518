"""The output of ``docker inspect`` for a running container, read as a launch."""

from __future__ import annotations

import json
from typing import Any

from qwendeploy.auditing.reading.docker_run import server_of_words
from qwendeploy.auditing.reading.launch import (
    LEAST_SHARED_MIB,
    Container,
    ForeignLaunch,
    Port,
    VisibleGpus,
    parse_port,
)
from qwendeploy.auditing.reading.text import Place, Word
from qwendeploy.errors import UserError


def is_inspection(text: str) -> bool:
    """Say whether the text is such an answer."""
    return text.lstrip()[:1] in ("[", "{") and '"HostConfig"' in text


def read_inspection(text: str, file: str) -> list[ForeignLaunch]:
    """Return the servers of the containers described.

    Raises:
        UserError: not the JSON that ``docker inspect`` prints.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UserError(f"not the JSON of docker inspect: {problem}", where=file) from None
    described = document if isinstance(document, list) else [document]
    place = Place(file, 1)
    launches = []
    for item in described:
        if not isinstance(item, dict) or not isinstance(item.get("Config"), dict):
            raise UserError("not the JSON of docker inspect: no Config", where=file)
        launch = _launch(item, place)
        if launch.engine != "other":
            launches.append(launch)
    return launches


def _launch(item: dict[str, Any], place: Place) -> ForeignLaunch:
    config = item["Config"]
    host = _mapping(item.get("HostConfig"))
    image = Word(str(config.get("Image", "")), place)
    words = tuple(
        Word(str(text), place)
        for part in (config.get("Entrypoint"), config.get("Cmd"))
        for text in _list(part)
    )
    pairs = (str(text).partition("=") for text in _list(config.get("Env")))
    env = {key: Word(value, place) for key, _, value in pairs}
    engine, arguments, inner = server_of_words(words, image.text, env)
    container = Container(
        image=image,
        gpus=_gpus(host, place),
        ports=tuple(_ports(host, place)),
        volumes=tuple(_volumes(item, host, place)),
        network=Word(str(host["NetworkMode"]), place) if host.get("NetworkMode") else None,
        shared_memory=host.get("IpcMode") == "host"
        or _amount(host.get("ShmSize")) >= LEAST_SHARED_MIB * 2**20,
    )
    name = str(item.get("Name", "")).lstrip("/")
    return ForeignLaunch(place, "docker", engine, arguments, {**env, **inner}, container, name)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    """Return a list as it is, a text as its only entry, anything else as empty."""
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) else []


def _amount(value: object) -> int:
    return value if isinstance(value, int) else 0


def _volumes(item: dict[str, Any], host: dict[str, Any], place: Place) -> list[Word]:
    """Return binds and named volumes as ``source:target``."""
    found = [str(bind) for bind in _list(host.get("Binds"))]
    for mount in map(_mapping, _list(item.get("Mounts"))):
        source = mount.get("Name") or mount.get("Source") or ""
        found.append(f"{source}:{mount.get('Destination', '')}")
    return [Word(text, place) for text in dict.fromkeys(found)]


def _gpus(host: dict[str, Any], place: Place) -> VisibleGpus:
    for request in map(_mapping, _list(host.get("DeviceRequests"))):
        ids = tuple(str(name) for name in _list(request.get("DeviceIDs")))
        if ids:
            return VisibleGpus(True, len(ids), ids, place)
        count = request.get("Count")
        return VisibleGpus(
            True, count if isinstance(count, int) and count >= 0 else None, (), place
        )
    return VisibleGpus("nvidia" in str(host.get("Runtime", "")), None, (), place)


def _ports(host: dict[str, Any], place: Place) -> list[Port]:
    found = []
    for target, bindings in _mapping(host.get("PortBindings")).items():
        for binding in map(_mapping, _list(bindings)):
            address = str(binding.get("HostIp") or "")
            port = parse_port(f"{binding.get('HostPort', '')}:{target}", place)
            if port is not None:
                found.append(Port(address, port.host, port.container, place))
    return found
