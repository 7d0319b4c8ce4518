"""``compose.yaml``: one service, or one per replica behind nginx."""

from __future__ import annotations

from dataclasses import dataclass

from qwendeploy import __version__
from qwendeploy.rendering import container, page
from qwendeploy.rendering.kind import ArtefactKind, Files, Order
from qwendeploy.rendering.launch import CONTAINER_PORT, Launch

ROUTER_IMAGE = "nginx:1.30-alpine"
"""The stable branch of nginx; least_conn and, since 1.27.3, ``resolve`` are built in."""

REPLICA_REASON = (
    "Independent servers behind nginx: the prediction adds up independent servers, a replica that"
    " crashes restarts alone, and each has its own metrics."
)


@dataclass(frozen=True)
class Service:
    """One engine of the compose file."""

    name: str
    launch: Launch
    publish: str | None
    """``None`` behind the router, which alone is reached from outside."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The engine's arguments inside the container."""
        return self.launch.arguments("0.0.0.0", CONTAINER_PORT)

    @property
    def env(self) -> tuple[tuple[str, str], ...]:
        """The engine's variables."""
        return container.environment(self.launch)


def files(order: Order) -> Files:
    """Return the compose file, with ``nginx.conf`` when a router splits the replicas."""
    launch, header, router = order.launch, order.header, order.router
    services = _replicas(launch) if router else [Service("engine", launch, launch.publish)]
    text = page.fill(
        "compose.yaml.j2",
        header=header,
        launch=launch,
        services=services,
        router=REPLICA_REASON if router else "",
        router_image=ROUTER_IMAGE,
        front="router" if router else "engine",
        container_port=CONTAINER_PORT,
        hub_target=container.hub_target(launch),
        caches=container.caches(launch),
        tmpfs=container.tmpfs(launch),
        ulimits=container.ULIMITS,
        health=container.health_command(launch),
        interval=container.HEALTH_INTERVAL_S,
        timeout=container.HEALTH_TIMEOUT_S,
        retries=container.HEALTH_RETRIES,
        stop=container.STOP_S,
        restarts=container.RESTARTS,
        log_max_size=container.LOG_MAX_SIZE,
        log_max_files=container.LOG_MAX_FILES,
        plan_label=container.PLAN_LABEL,
        secrets=page.SECRETS_FILE,
        tool_version=__version__,
    )
    found = {"compose.yaml": (text, page.TEXT)}
    if router:
        found["nginx.conf"] = (_nginx(services, header), page.TEXT)
    return found


def _replicas(launch: Launch) -> list[Service]:
    """Return one service per replica; the router shows the metrics of each."""
    return [
        Service(f"engine-{number + 1}", launch.replica(number), None)
        for number in range(launch.replicas)
    ]


def _nginx(services: list[Service], header: list[str]) -> str:
    return page.fill(
        "nginx.conf.j2",
        header=header,
        services=services,
        reason=REPLICA_REASON,
        container_port=CONTAINER_PORT,
    )


KIND = ArtefactKind(
    name="compose",
    title="a compose file",
    main_file="compose.yaml",
    build=files,
    start="docker compose -f {file} up -d --wait && {place}/verify.sh",
    checks=("docker compose -f {file} config --quiet",),
    replicas="router",
)
