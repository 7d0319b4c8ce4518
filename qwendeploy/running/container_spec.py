"""The container of a launch: settings for the Docker SDK, and for comparison by people."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qwendeploy.rendering import container
from qwendeploy.rendering.launch import CONTAINER_PORT, Launch

SECOND_NS = 1_000_000_000
DETAIL_LABEL = "org.qwendeploy.detail"


def hub_directory() -> Path:
    """Return the Hugging Face cache of this user."""
    return Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")


def description(launch: Launch, *, network: str | None) -> dict[str, str]:
    """Return what is asked, flat and without secrets: the basis of comparison between plans."""
    found = {
        "image": launch.image or "",
        "model": launch.model,
        "gpus": ",".join(launch.gpus),
        "address": launch.publish,
        "network": network or "default",
        "read-only root": "yes" if launch.read_only else "no",
        "checkpoints on disk": ",".join(launch.local_paths) or "none",
    }
    if launch.replicas > 1:
        found["--data-parallel-size"] = str(launch.replicas)
    found |= {name: "set" if value is None else value for name, value in launch.flags}
    found |= {f"env {name}": value for name, value in launch.env}
    return found


def fingerprint(launch: Launch, *, network: str | None) -> str:
    """Return a digest of ``description``: equal launches have equal ones."""
    text = json.dumps(description(launch, network=network), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return one line for every point in which two descriptions differ."""
    lines = []
    for name in [*after, *(name for name in before if name not in after)]:
        old, new = before.get(name), after.get(name)
        if old != new:
            lines.append(f"{name}: {old or 'not set'} -> {new or 'not set'}")
    return lines


def create_arguments(
    launch: Launch, *, secrets: Mapping[str, str], network: str | None, hub: Path
) -> dict[str, Any]:
    """Return the keyword arguments of ``containers.create`` besides image and name.

    There is no restart policy: a start that fails must be seen to fail. ``up`` sets it once the
    server is healthy.
    """
    from docker.types import DeviceRequest, LogConfig, Ulimit

    asked: dict[str, Any] = {
        "command": list(launch.arguments("0.0.0.0", CONTAINER_PORT)),
        "environment": {**dict(container.environment(launch)), **secrets},
        "device_requests": [DeviceRequest(driver="", capabilities=[["gpu"]], **_devices(launch))],
        "ports": {f"{CONTAINER_PORT}/tcp": (launch.listen, launch.port)},
        "ulimits": [Ulimit(name=name, soft=value, hard=value) for name, value in container.ULIMITS],
        "security_opt": ["no-new-privileges"],
        "mounts": _mounts(launch, hub),
        "healthcheck": {
            "test": ["CMD", *container.health_command(launch)],
            "interval": container.HEALTH_INTERVAL_S * SECOND_NS,
            "timeout": container.HEALTH_TIMEOUT_S * SECOND_NS,
            "retries": container.HEALTH_RETRIES,
            "start_period": launch.start_period_s * SECOND_NS,
        },
        "log_config": LogConfig(
            type="json-file",
            config={
                "max-size": container.LOG_MAX_SIZE,
                "max-file": str(container.LOG_MAX_FILES),
            },
        ),
        "labels": {
            container.PLAN_LABEL: launch.plan_id,
            container.LAUNCH_LABEL: fingerprint(launch, network=network),
            DETAIL_LABEL: json.dumps(description(launch, network=network)),
        },
        "detach": True,
    }
    if launch.share_ipc:
        asked["ipc_mode"] = "host"
    if launch.read_only:
        asked["read_only"] = True
        asked["tmpfs"] = dict(container.tmpfs(launch))
    if network is not None:
        asked["network"] = network
    return asked


def _devices(launch: Launch) -> dict[str, Any]:
    return {"count": -1} if launch.sees_all else {"device_ids": list(launch.gpus)}


def _mounts(launch: Launch, hub: Path) -> list[Any]:
    from docker.types import Mount

    mounts = [Mount(target=container.hub_target(launch), source=str(hub), type="bind")]
    mounts += [
        Mount(target=target, source=volume, type="volume")
        for volume, target in container.caches(launch)
    ]
    mounts += [
        Mount(target=path, source=path, type="bind", read_only=True) for path in launch.local_paths
    ]
    return mounts
