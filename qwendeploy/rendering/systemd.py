"""A systemd unit that runs Docker in the foreground and counts as started once it serves."""

from __future__ import annotations

from qwendeploy.rendering import container, docker_run, page
from qwendeploy.rendering.launch import Launch

DOCKER = "/usr/bin/docker"


def files(launch: Launch, header: list[str]) -> dict[str, tuple[str, int]]:
    """Return the unit named after the launch."""
    hub = (
        "--mount",
        f"type=volume,source={container.HUB_VOLUME},target={container.hub_target(launch)}",
    )
    text = page.fill(
        "systemd.service.j2",
        header=header,
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
        limit_interval=restart_window_s(launch),
        wait=_wait_until_healthy(launch),
    )
    return {f"{launch.name}.service": (text, page.TEXT)}


def restart_window_s(launch: Launch) -> int:
    """Return a window in which ``RESTARTS`` failing boots certainly fall, each bounded by health.

    Docker calls a container unhealthy after the start period and the retries.
    """
    boot = (
        launch.start_period_s
        + container.HEALTH_RETRIES * (container.HEALTH_INTERVAL_S + container.HEALTH_TIMEOUT_S)
        + container.STOP_S
    )
    return (container.RESTARTS + 1) * boot


def _wait_until_healthy(launch: Launch) -> str:
    """Return the shell loop that ends with the container's health, or with the container."""
    return (
        "while kill -0 $MAINPID; do"
        f" case $({DOCKER} inspect -f '{{{{.State.Health.Status}}}}' {launch.name}"
        " 2>/dev/null) in healthy) exit 0;; unhealthy) exit 1;; esac;"
        " sleep 2; done; exit 1"
    )
