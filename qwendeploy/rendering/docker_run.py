"""The words of ``docker run``, shared by the script and the systemd unit."""

from __future__ import annotations

import shlex

from qwendeploy.rendering import container
from qwendeploy.rendering.launch import CONTAINER_PORT, Launch
from qwendeploy.rendering.quoting import csv_field

Words = tuple[str, ...]


def isolation(launch: Launch) -> list[Words]:
    """Return devices, address, memory sharing and limits, one option with its value each."""
    lines: list[Words] = [
        ("--gpus", "all" if launch.sees_all else '"device=' + ",".join(launch.gpus) + '"'),
        ("--publish", launch.publish),
    ]
    if launch.share_ipc:
        lines.append(("--ipc", "host"))
    lines += [("--ulimit", f"{name}={value}") for name, value in container.ULIMITS]
    lines.append(("--security-opt", "no-new-privileges"))
    if launch.read_only:
        lines.append(("--read-only",))
        for target, options in container.tmpfs(launch):
            lines.append(("--tmpfs", f"{target}:{options}" if options else target))
    return lines


def places(launch: Launch) -> list[Words]:
    """Return the mounts of compile caches and checkpoints on disk."""
    lines: list[Words] = [
        ("--mount", f"type=volume,source={volume},target={target}")
        for volume, target in container.caches(launch)
    ]
    for path in launch.local_paths:
        fields = ("type=bind", f"source={path}", f"target={path}", "readonly")
        lines.append(("--mount", ",".join(csv_field(field) for field in fields)))
    return lines


def watching(launch: Launch) -> list[Words]:
    """Return health check, log rotation and label."""
    return [
        ("--health-cmd", shlex.join(container.health_command(launch))),
        ("--health-interval", f"{container.HEALTH_INTERVAL_S}s"),
        ("--health-timeout", f"{container.HEALTH_TIMEOUT_S}s"),
        ("--health-retries", str(container.HEALTH_RETRIES)),
        ("--health-start-period", f"{launch.start_period_s}s"),
        ("--stop-timeout", str(container.STOP_S)),
        ("--log-driver", "json-file"),
        ("--log-opt", f"max-size={container.LOG_MAX_SIZE}"),
        ("--log-opt", f"max-file={container.LOG_MAX_FILES}"),
    ]


def environment(launch: Launch) -> list[Words]:
    """Return the engine's variables."""
    return [("--env", f"{name}={value}") for name, value in container.environment(launch)]


def engine_lines(launch: Launch) -> list[Words]:
    """Return the engine's arguments, a flag with its value on one line."""
    return pair_up(launch.arguments("0.0.0.0", CONTAINER_PORT))


def pair_up(arguments: tuple[str, ...]) -> list[Words]:
    """Return the arguments grouped for reading: a flag and the words that follow it."""
    lines: list[Words] = []
    for word in arguments:
        if word.startswith("-") or not lines or not lines[-1][0].startswith("--"):
            lines.append((word,))
        else:
            lines[-1] = (*lines[-1], word)
    return lines
