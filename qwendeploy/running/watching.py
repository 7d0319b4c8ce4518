"""``status``, ``logs`` and ``down``: state, output and removal of started containers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qwendeploy.documents import Cause
from qwendeploy.engines.metrics import Metrics, parse_metrics
from qwendeploy.engines.vllm.boot_log import PHASES, BootLog
from qwendeploy.errors import EnvironmentProblem, ExitCode
from qwendeploy.rendering import container as places
from qwendeploy.rendering.launch import CONTAINER_PORT
from qwendeploy.running import found, http
from qwendeploy.running.daemon import connected, told_as_environment
from qwendeploy.running.waiting import lines_of, start_of_log

LONGEST_BOOT_S = 7200.0
"""Of the log's beginning that ``status`` reads to tell the phase."""
LAST_LINES = 2000
"""Lines of the log in which ``status`` looks for signatures."""


@dataclass(frozen=True)
class Status:
    """One container of ours as it is now."""

    name: str
    container_id: str
    plan_id: str
    state: str
    """Docker's word: created, running, restarting, exited, dead."""
    health: str
    serving: bool
    phase: str
    image: str
    base_url: str | None
    started_at: str
    restarts: int
    exit_code: int | None
    running_requests: float | None = None
    waiting_requests: float | None = None
    kv_usage: float | None = None
    causes: tuple[Cause, ...] = ()


def status(name: str | None) -> tuple[Status, ...]:
    """Return the containers of ``name``, or all of ours.

    Raises:
        EnvironmentProblem: the daemon does not answer.
    """
    with connected() as client:
        containers = (
            found.our_containers(client) if name is None else list(found.find(client, name).all)
        )
        return tuple(_status(container) for container in containers)


def exit_code_of(statuses: tuple[Status, ...]) -> ExitCode:
    """Done if everything that is there serves, else environment."""
    if statuses and all(status.serving for status in statuses):
        return ExitCode.DONE
    return ExitCode.ENVIRONMENT


def _status(container: Any) -> Status:
    with told_as_environment(f"container {container.name}"):
        container.reload()
    attributes = container.attrs
    state = attributes["State"]
    url = _base_url(attributes)
    running = container.status == "running"
    health = str((state.get("Health") or {}).get("Status", "not checked"))
    # a replica behind a router has no port of its own: Docker's own check tells
    answers = health == "healthy" if url is None else http.get(f"{url}/health").status == 200
    serving = running and answers
    log = BootLog()
    causes: tuple[Cause, ...] = ()
    metrics = Metrics()
    if serving:
        log.phase = "serving"
    if serving and url is not None:
        page = http.get(f"{url}/metrics")
        metrics = parse_metrics(page.text if page.status == 200 else "")
    if not serving:
        log, causes = _looked_into(container)
    return Status(
        name=str(container.name),
        container_id=str(container.id),
        plan_id=found.plan_of(container),
        state=str(container.status),
        health=health,
        serving=serving,
        phase=PHASES[log.phase] if running else f"exited while {PHASES[log.phase]}",
        image=found.details_of(container).get("image") or str(attributes["Config"]["Image"]),
        base_url=url,
        started_at=str(state["StartedAt"]),
        restarts=int(attributes.get("RestartCount", 0)),
        exit_code=None if running else int(state["ExitCode"]),
        running_requests=metrics.get("running"),
        waiting_requests=metrics.get("waiting"),
        kv_usage=metrics.get("kv_usage"),
        causes=causes,
    )


def _looked_into(container: Any) -> tuple[BootLog, tuple[Cause, ...]]:
    """Return the boot log and what the last lines name as cause."""
    from qwendeploy.diagnosis import causes

    log = start_of_log(container, within_s=LONGEST_BOOT_S)
    with told_as_environment(f"container {container.name}"):
        last = container.logs(tail=LAST_LINES).decode("utf-8", "replace").splitlines()
    return log, causes(last)


def _base_url(attributes: dict[str, Any]) -> str | None:
    ports = (attributes["NetworkSettings"]["Ports"] or {}).get(f"{CONTAINER_PORT}/tcp")
    if not ports:
        return None
    host = ports[0]["HostIp"]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)
    return (
        f"http://{f'[{host}]' if ':' in host and '[' not in host else host}:{ports[0]['HostPort']}"
    )


def logs(name: str, *, follow: bool, tail: int | None) -> Iterator[str]:
    """Yield the log lines of a container; the one that is starting if there are two.

    Raises:
        EnvironmentProblem: nothing of that name is there, or the daemon does not answer.
    """
    with connected() as client:
        present = found.find(client, name)
        container = present.upcoming or present.current
        if container is None:
            raise EnvironmentProblem(
                f"qwendeploy has no container named {name}",
                hint="`qwendeploy status` lists them",
            )
        with told_as_environment(f"container {container.name}"):
            stream = container.logs(
                stream=True, follow=follow, tail="all" if tail is None else max(tail, 0)
            )
            with contextlib.closing(stream):
                yield from lines_of(stream)


@dataclass(frozen=True)
class Down:
    """What ``down`` did."""

    removed: tuple[str, ...]
    kept_volumes: tuple[str, ...]


def down(name: str, *, timeout_s: int = places.STOP_S) -> Down:
    """Stop and remove what carries ``name``; done before is done too. Caches are kept.

    Raises:
        UserError: the container was made by somebody else.
        EnvironmentProblem: the daemon does not answer.
    """
    removed = []
    with connected() as client:
        # the starting one first, so that nothing takes the name meanwhile
        for container in reversed(found.find(client, name).all):
            with told_as_environment(f"container {container.name}"):
                # no restart between stop and removal
                container.update(restart_policy={"Name": "no"})
                container.stop(timeout=timeout_s)
                container.remove(force=True)
            removed.append(str(container.name))
        with told_as_environment():
            volumes = client.volumes.list(filters={"name": "qwendeploy-"})
    return Down(tuple(removed), tuple(sorted(str(volume.name) for volume in volumes)))
