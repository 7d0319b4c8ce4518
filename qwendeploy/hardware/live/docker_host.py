"""Which Docker daemon to use: the one that the ``docker`` command would use."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

USUAL_HOST = "unix:///var/run/docker.sock"


def docker_host(environment: Mapping[str, str]) -> str:
    """Return the daemon's address: ``DOCKER_HOST``, else of the chosen context, else the usual one.

    Rootless Docker and Docker Desktop listen elsewhere and say so by a context, which the SDK
    does not read. A context that is damaged or gone counts as the usual one.
    """
    stated = environment.get("DOCKER_HOST")
    if stated:
        return stated
    home = environment.get("HOME") or "/"
    folder = Path(environment.get("DOCKER_CONFIG") or Path(home) / ".docker")
    name = environment.get("DOCKER_CONTEXT") or _read(folder / "config.json").get("currentContext")
    if not isinstance(name, str) or name in ("", "default"):
        return USUAL_HOST
    # the command files a context under the digest of its name
    place = folder / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
    endpoints = _read(place).get("Endpoints")
    endpoint = endpoints.get("docker") if isinstance(endpoints, dict) else None
    host = endpoint.get("Host") if isinstance(endpoint, dict) else None
    return host if isinstance(host, str) and host else USUAL_HOST


def docker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment by which the SDK finds that daemon."""
    return {**environment, "DOCKER_HOST": docker_host(environment)}


def knock(address: str, timeout_s: float) -> None:
    """Return if the socket of an address takes connections, or if the address is none of a socket.

    Tried before the SDK: the error is exact, and the SDK leaks a socket that does not answer.

    Raises:
        OSError: it does not.
    """
    if address.startswith("tcp://"):
        try:
            place, port = urlsplit(address), urlsplit(address).port
        except ValueError as problem:
            raise OSError(str(problem)) from None
        if place.hostname and port:
            socket.create_connection((place.hostname, port), timeout_s).close()
        return
    if not address.startswith("unix://"):
        return
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(timeout_s)
        one.connect(address.removeprefix("unix://"))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
