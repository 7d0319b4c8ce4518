"""``run.sh``: one ``docker run``."""

from __future__ import annotations

from qwendeploy.rendering import container, docker_run, page
from qwendeploy.rendering.kind import ArtefactKind, Files, Order


def files(order: Order) -> Files:
    """Return the script that starts the plan with ``docker run``."""
    launch = order.launch
    text = page.fill(
        "docker.sh.j2",
        header=order.header,
        launch=launch,
        groups=[
            docker_run.isolation(launch),
            docker_run.places(launch),
            docker_run.watching(launch),
            docker_run.environment(launch),
        ],
        engine=docker_run.engine_lines(launch),
        restarts=container.RESTARTS,
        hub_target=container.hub_target(launch),
        plan_label=container.PLAN_LABEL,
        secrets=page.SECRETS_FILE,
    )
    return {"run.sh": (text, page.SCRIPT)}


KIND = ArtefactKind(
    name="docker",
    title="a `docker run` script",
    main_file="run.sh",
    build=files,
    start="{file} && {place}/verify.sh",
    checks=page.SCRIPT_CHECKS,
)
