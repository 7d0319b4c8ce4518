"""Connection to the Docker daemon, with errors that include a fix."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from qwendeploy.errors import EnvironmentProblem, QwendeployError
from qwendeploy.hardware.live.docker_host import docker_environment, docker_host, knock

if TYPE_CHECKING:
    from docker import DockerClient

TIMEOUT_S = 120
"""Of one call; creating the first container after a boot took 4 s on a busy machine."""


@contextmanager
def connected() -> Iterator[DockerClient]:
    """Give a client of the daemon that the ``docker`` command talks to.

    Raises:
        EnvironmentProblem: it does not answer or refuses.
    """
    import docker

    with told_as_environment():
        knock(docker_host(os.environ), TIMEOUT_S)
        client = docker.from_env(timeout=TIMEOUT_S, environment=docker_environment(os.environ))
    try:
        with told_as_environment():
            client.ping()
        yield client
    finally:
        client.close()


@contextmanager
def told_as_environment(doing: str = "") -> Iterator[None]:
    """Turn errors of daemon and socket into an ``EnvironmentProblem`` with the way out."""
    import docker.errors
    import urllib3.exceptions

    try:
        yield
    except QwendeployError:
        raise
    except docker.errors.InvalidArgument:
        # ours, not the daemon's
        raise
    except docker.errors.APIError as problem:
        raise refused(problem.explanation or str(problem), doing) from None
    # a stream that breaks off is told by the library below, which has errors of its own
    except (docker.errors.DockerException, urllib3.exceptions.HTTPError, OSError) as problem:
        raise unreachable(f"{type(problem).__name__}: {problem}", doing) from None


def unreachable(text: str, doing: str = "") -> EnvironmentProblem:
    """Return the error for a daemon that cannot be talked to."""
    if "Permission denied" in text or "PermissionError" in text:
        return EnvironmentProblem(
            "permission denied on the Docker socket",
            where=doing or None,
            hint="add your user to the docker group: sudo usermod -aG docker $USER, then log"
            " in again",
        )
    if "Read timed out" in text:
        return EnvironmentProblem(
            f"the Docker daemon did not respond within {TIMEOUT_S} s",
            where=doing or None,
            hint="check `systemctl status docker` and `qwendeploy status`",
        )
    return EnvironmentProblem(
        "cannot connect to the Docker daemon",
        where=doing or None,
        hint="start it with `systemctl start docker`, or set DOCKER_HOST",
    )


_REFUSALS = (
    (
        r"port is already allocated|address already in use",
        "the port is in use",
        "stop the program that uses it, or make the plan with another --port",
    ),
    (
        r"could not select device driver|unknown or invalid runtime|nvidia-container-cli",
        "Docker cannot give GPUs to containers",
        "install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker`"
        " and restart Docker",
    ),
    (
        r"unresolvable cdi",
        "Docker does not find the plan's GPUs",
        "make the plan on this machine: `qwendeploy recommend`",
    ),
    (
        r"bind source path does not exist",
        "a directory of the plan does not exist on this machine",
        "correct option.checkpoint, or make the plan on this machine",
    ),
    (
        r"container name \S+ is already in use",
        "another `up` is starting a container of this name",
        "wait for it to finish; `qwendeploy status` shows its progress",
    ),
    (
        r"network \S+ not found",
        "the Docker network does not exist",
        "`docker network ls` lists the networks",
    ),
    (
        r"no space left on device",
        "the disk is full",
        "free disk space; `docker system df` shows what uses it",
    ),
    (
        r"setting rlimit.*operation not permitted",
        "the host does not allow the container's resource limits",
        "raise them for Docker: LimitMEMLOCK=infinity and LimitNOFILE=1048576 in its unit",
    ),
)
"""Pattern of the daemon's error, its meaning, the fix."""


def refused(text: str, doing: str = "") -> EnvironmentProblem:
    """Return the error for a daemon that said no, with its own words."""
    for pattern, meaning, hint in _REFUSALS:
        if re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            return EnvironmentProblem(
                f"{meaning}; Docker says: {text.strip()}", where=doing or None, hint=hint
            )
    return EnvironmentProblem(f"Docker returns an error: {text.strip()}", where=doing or None)
