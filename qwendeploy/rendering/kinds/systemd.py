"""A systemd unit that runs Docker in the foreground and counts as started once it serves."""

from __future__ import annotations

from qwendeploy.rendering import container, docker_run, page
from qwendeploy.rendering.kind import ArtefactKind, Files, Order
from qwendeploy.rendering.launch import Launch

DOCKER = "/usr/bin/docker"


def files(order: Order) -> Files:
    """Return the unit named after the launch."""
    launch = order.launch
    hub = (
        "--mount",
        f"type=volume,source={container.HUB_VOLUME},target={container.hub_target(launch)}",
    )
    text = page.fill(
        "systemd.service.j2",
        header=order.header,
        launch=launch,
        groups=[
            docker_run.isolation(launch),
            [hub, *docker_run.places(launch)],
            docker_run.watching(launch),
            docker_run.environment(launch),
        ],
        engine=docker_run.engine_lines(launch),
        docker=DOCKER,
        plan_label=container.PLAN_LABEL,
        secrets=page.SECRETS_FILE,
        secret_names=page.secret_names(launch),
        stop=container.STOP_S,
        restarts=container.RESTARTS,
        limit_interval=container.restart_window_s(launch),
        wait=_wait_until_healthy(launch),
    )
    return {f"{launch.name}.service": (text, page.TEXT)}


def _wait_until_healthy(launch: Launch) -> str:
    """Return the shell loop that ends with the container's health, or with the container."""
    return (
        "while kill -0 $MAINPID; do"
        f" case $({DOCKER} inspect -f '{{{{.State.Health.Status}}}}' {launch.name}"
        " 2>/dev/null) in healthy) exit 0;; unhealthy) exit 1;; esac;"
        " sleep 2; done; exit 1"
    )


KIND = ArtefactKind(
    name="systemd",
    title="a systemd unit",
    main_file="{name}.service",
    build=files,
    start="the three lines on top of {file}, then {place}/verify.sh",
    checks=(
        "systemd-analyze --man=no verify {file}",
        "systemd-analyze security --offline=true --threshold=25 --no-pager {file}",
    ),
)
