"""Existing containers that qwendeploy created, found by name and label."""

from __future__ import annotations

import getpass
import json
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qwendeploy.errors import EnvironmentProblem, UserError
from qwendeploy.rendering import container
from qwendeploy.running.container_spec import DETAIL_LABEL
from qwendeploy.running.daemon import told_as_environment

if TYPE_CHECKING:
    from docker import DockerClient

NEXT = "-next"
"""Suffix of the container that will take the name once it serves."""


ATTEMPT_LABEL = "org.qwendeploy.attempt"
"""Tells apart who made a container: two ``up`` on different hosts share no lock."""

BY_LABEL = "org.qwendeploy.by"
"""User and host of the ``up`` that made a container."""


@dataclass(frozen=True)
class Present:
    """The containers of one name: the one that has it and the one that was to take it."""

    current: Any | None
    upcoming: Any | None

    @property
    def all(self) -> tuple[Any, ...]:
        """Both, those that are there."""
        return tuple(found for found in (self.current, self.upcoming) if found is not None)


def find(client: DockerClient, name: str) -> Present:
    """Return what carries ``name``.

    Raises:
        UserError: a container of that name was made by somebody else.
        EnvironmentProblem: the daemon does not answer.
    """
    return Present(_ours(client, name), _ours(client, name + NEXT))


def _ours(client: DockerClient, name: str) -> Any | None:
    import docker.errors

    with told_as_environment(f"container {name}"):
        try:
            found = client.containers.get(name)
        except docker.errors.NotFound:
            return None
    # get() also finds ids that begin with the text
    if found.name != name:
        return None
    if container.PLAN_LABEL not in found.labels:
        raise UserError(
            f"a container named {name} exists that qwendeploy did not create",
            where=f"image {found.attrs['Config']['Image']}",
            hint="use another --name, or remove it yourself",
        )
    return found


def our_containers(client: DockerClient) -> list[Any]:
    """Return every container of ours, running or not."""
    with told_as_environment():
        found = client.containers.list(
            all=True, filters={"label": container.PLAN_LABEL}, ignore_removed=True
        )
    return sorted(found, key=lambda item: str(item.name))


def plan_of(found: Any) -> str:
    """Return the id of the plan that a container runs."""
    return str(found.labels.get(container.PLAN_LABEL, ""))


def attempt_of(found: Any) -> str:
    """Return the label of the ``up`` that made a container."""
    return str(found.labels.get(ATTEMPT_LABEL, ""))


def maker() -> str:
    """Return user and host of this process, as the label has it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # a number without a name, as in containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def check_own_host(found: Any | None) -> None:
    """Return unless an ``up`` on another host, which shares no lock with this one, made it.

    Raises:
        EnvironmentProblem: one did; it may still be waiting for the container.
    """
    if found is None:
        return
    by = str(found.labels.get(BY_LABEL, ""))
    if by and by.rpartition("@")[2] != socket.gethostname():
        raise EnvironmentProblem(
            f"{by} is starting a container with this name, or was interrupted",
            where=f"container {found.name}",
            hint="wait for it to finish; if nothing runs there, `qwendeploy down` removes it",
        )


def launch_of(found: Any) -> str:
    """Return the fingerprint of the launch that a container was made from."""
    return str(found.labels.get(container.LAUNCH_LABEL, ""))


def details_of(found: Any) -> dict[str, str]:
    """Return the description stored with a container, empty for one of a script of ours."""
    try:
        details = json.loads(found.labels.get(DETAIL_LABEL, "{}"))
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in details.items()}
