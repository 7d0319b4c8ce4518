"""A podman quadlet: systemd makes the service from it; GPUs by CDI, secrets by podman."""

from __future__ import annotations

import re
import shlex

from qwendeploy.errors import DataError
from qwendeploy.rendering import container, page
from qwendeploy.rendering.kind import ArtefactKind, Files, Order
from qwendeploy.rendering.launch import CONTAINER_PORT, Launch
from qwendeploy.rendering.quoting import systemd as systemd_word

HUB_HOST = "docker.io"
"""Where an image name without a host lies: podman asks for the host to be written."""


def files(order: Order) -> Files:
    """Return the ``.container`` file named after the launch.

    Raises:
        DataError: a path holds what podman reads as the end of a mount's field.
    """
    launch = order.launch
    for path in launch.local_paths:
        if "," in path or '"' in path:
            raise DataError(
                f"{path!r} holds a comma or quote, which podman cannot mount",
                key="option.checkpoint",
                hint="rename the directory, or generate -f docker",
            )
    engine = launch.arguments("0.0.0.0", CONTAINER_PORT)
    _check_control_characters((*engine, *(value for _, value in launch.env), launch.plan_id))
    text = page.fill(
        "quadlet.container.j2",
        header=order.header,
        launch=launch,
        image=qualified(launch.image or ""),
        engine=engine,
        secrets=[(name, secret_of(launch, name)) for name in launch.required_secrets],
        volumes=((container.HUB_VOLUME, container.hub_target(launch)), *container.caches(launch)),
        env=container.environment(launch),
        mounts=[_mount(path) for path in launch.local_paths],
        tmpfs=container.tmpfs(launch),
        ulimits=container.ULIMITS,
        health=shlex.join(container.health_command(launch)),
        interval=container.HEALTH_INTERVAL_S,
        timeout=container.HEALTH_TIMEOUT_S,
        retries=container.HEALTH_RETRIES,
        stop=container.STOP_S,
        restarts=container.RESTARTS,
        limit_interval=container.restart_window_s(launch),
        log_max_size=container.LOG_MAX_SIZE,
        plan_label=container.PLAN_LABEL,
    )
    return {f"{launch.name}.container": (text, page.TEXT)}


def _mount(path: str) -> str:
    """Return the line that mounts a checkpoint.

    ``Mount=`` is copied as it stands into a systemd dependency, where some characters mean
    something: such a path goes to podman directly.
    """
    mount = f"type=bind,source={path},destination={path},ro=true"
    if re.fullmatch(r"[^\s'\\$%]+", path):
        return f"Mount={systemd_word(mount)}"
    return f"PodmanArgs={systemd_word(f'--mount={mount}')}"


def _check_control_characters(texts: tuple[str, ...]) -> None:
    """Refuse C1 control characters, which quadlet 5.4 splits at or writes as invalid UTF-8."""
    for text in texts:
        if any("\x80" <= char <= "\x9f" for char in text):
            raise DataError(
                f"{text!r} holds a control character that quadlet cannot carry",
                key="flags, env or plan_id",
                hint="remove it, or generate -f docker",
            )


def qualified(image: str) -> str:
    """Return the image name with its host."""
    first = image.split("/", 1)[0]
    if "/" in image and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"{HUB_HOST}/{image}" if "/" in image else f"{HUB_HOST}/library/{image}"


def secret_of(launch: Launch, variable: str) -> str:
    """Return the name of the secret that holds ``variable``."""
    return f"{launch.name}-{variable.lower().replace('_', '-')}"


KIND = ArtefactKind(
    name="quadlet",
    title="a podman quadlet",
    main_file="{name}.container",
    build=files,
    start="the lines on top of {file}, then {place}/verify.sh",
    checks=("quadlet -dryrun",),
)
