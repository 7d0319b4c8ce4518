"""``serve.sh``: environment and command for an engine without a container."""

from __future__ import annotations

from qwendeploy.documents import Plan
from qwendeploy.errors import DataError
from qwendeploy.rendering import docker_run, page
from qwendeploy.rendering.devices import cuda_devices
from qwendeploy.rendering.launch import Launch
from qwendeploy.rendering.quoting import comment

PROGRAMS = {"vllm": ("vllm", "VLLM"), "llama.cpp": ("llama-server", "LLAMA_SERVER")}
"""Program of each engine and the variable that names another path of it."""

FILES = {"vllm": "serve.sh", "llama.cpp": "llama-server.sh"}
KINDS = {"vllm": "vllm", "llama.cpp": "llama-server"}


def files(plan: Plan, launch: Launch, header: list[str], kind: str) -> dict[str, tuple[str, int]]:
    """Return the script that runs the engine of the active virtual environment.

    Raises:
        DataError: the plan is for the other engine, or the engine cannot be given its slice.
    """
    if KINDS[launch.engine] != kind:
        raise DataError(
            f"the plan is for {launch.engine}, whose flags are not those of {kind}",
            key="option.engine",
            hint=f"generate -f {KINDS[launch.engine]}, or recommend with the other --engine",
        )
    program, variable = PROGRAMS[launch.engine]
    text = page.fill(
        "vllm.sh.j2",
        header=header,
        launch=launch,
        program=program,
        program_variable=variable,
        version=comment(plan.option.engine_version or "") if launch.engine == "vllm" else "",
        devices=cuda_devices(plan, launch.gpu_indices),
        secrets=page.SECRETS_FILE,
        secret_names=page.secret_names(launch),
        engine=docker_run.pair_up(launch.arguments(launch.listen, launch.port)),
    )
    return {FILES[launch.engine]: (text, page.SCRIPT)}
