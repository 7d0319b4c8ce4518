"""``run.sh``: one ``docker run``."""

from __future__ import annotations

from qwendeploy.rendering import container, docker_run, page
from qwendeploy.rendering.launch import Launch


def files(launch: Launch, header: list[str]) -> dict[str, tuple[str, int]]:
    """Return the script that starts the plan with ``docker run``."""
    text = page.fill(
        "docker.sh.j2",
        header=header,
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
