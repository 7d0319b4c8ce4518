"""A script for an engine without a container: environment and command."""

from __future__ import annotations

from qwendeploy.rendering import docker_run, page
from qwendeploy.rendering.devices import cuda_devices
from qwendeploy.rendering.kind import Files, Order
from qwendeploy.rendering.quoting import comment


def script(order: Order, file: str, program: str, variable: str, version: str | None) -> Files:
    """Return the script ``file`` that runs ``program``, or what ``variable`` names instead.

    Raises:
        DataError: the engine cannot be given its slice.
    """
    launch = order.launch
    text = page.fill(
        "vllm.sh.j2",
        header=order.header,
        launch=launch,
        program=program,
        program_variable=variable,
        version=comment(version or ""),
        devices=cuda_devices(order.plan, launch.gpu_indices),
        secrets=page.SECRETS_FILE,
        secret_names=page.secret_names(launch),
        engine=docker_run.pair_up(launch.arguments(launch.listen, launch.port)),
    )
    return {file: (text, page.SCRIPT)}
