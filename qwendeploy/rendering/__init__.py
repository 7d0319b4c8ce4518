"""Artefacts: files that run a plan, each set with the plan and its verification script.

``render`` is a pure function of the plan. What the engine does was decided by planning and stands
in ``plan.flags`` and ``plan.env``; here it is only written down, quoted for each format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qwendeploy.documents import Plan
from qwendeploy.documents.files import dump_document
from qwendeploy.errors import DataError, UserError
from qwendeploy.rendering import (
    compose,
    docker,
    kubernetes,
    page,
    quadlet,
    systemd,
    venv,
)
from qwendeploy.rendering.launch import Launch, launch_of
from qwendeploy.rendering.quoting import comment

Files = dict[str, tuple[str, int]]
"""Text and mode by file name."""

KINDS = ("docker", "compose", "systemd", "quadlet", "vllm", "llama-server", "kubernetes")

CONTAINER_KINDS = ("docker", "compose", "systemd", "quadlet", "kubernetes")

__all__ = ["CONTAINER_KINDS", "KINDS", "Files", "Launch", "launch_of", "render"]


def render(
    plan: Plan,
    kind: str,
    *,
    name: str = "qwendeploy",
    replicas_by: str = "auto",
    writable: bool = False,
    tool_version: str | None = None,
) -> Files:
    """Return the files of one artefact kind, with ``plan.yaml`` and ``verify.sh``.

    ``replicas_by`` is ``engine`` (one process with ``--data-parallel-size``), ``router`` (one
    server per replica behind nginx) or ``auto``: router where the kind holds several containers.

    Raises:
        DataError: a value of the plan cannot be true.
        UserError: the kind does not fit the plan.
    """
    if kind not in KINDS:
        raise UserError(f"{kind!r} is no artefact kind", where="-f", hint=", ".join(KINDS))
    launch = launch_of(plan, name=name, writable=writable)
    if kind in CONTAINER_KINDS and launch.image is None:
        raise DataError(
            "the plan names no image",
            key="option.image",
            hint=f"generate -f {venv.KINDS[launch.engine]}, or recommend with --image",
        )
    router = _use_router(launch, kind, replicas_by)
    layout = "" if router or kind == "kubernetes" else _one_process(launch)
    header = page.header(plan, launch, layout=layout, tool_version=tool_version)
    builders: dict[str, Callable[[], Files]] = {
        "docker": lambda: docker.files(launch, header),
        "compose": lambda: compose.files(launch, header, router=router),
        "systemd": lambda: systemd.files(launch, header),
        "quadlet": lambda: quadlet.files(launch, header),
        "vllm": lambda: venv.files(plan, launch, header, kind),
        "llama-server": lambda: venv.files(plan, launch, header, kind),
        "kubernetes": lambda: kubernetes.files(plan, launch, header),
    }
    found = builders[kind]()
    found["plan.yaml"] = (dump_document(plan), page.TEXT)
    # Kubernetes' port-forward listens on the loopback, whatever the plan's address
    local = replace(launch, listen="127.0.0.1") if kind == "kubernetes" else launch
    found["verify.sh"] = (_verify_script(local), page.SCRIPT)
    return found


def _one_process(launch: Launch) -> str:
    """Return why replicas share a process, nothing where there is one."""
    if launch.replicas == 1:
        return ""
    return (
        f"{launch.replicas} replicas run in one process (--data-parallel-size), since one command"
        " is started here: they share its port and metrics, and end together. The prediction adds"
        " up independent servers, which `generate -f compose` starts behind nginx."
    )


def _use_router(launch: Launch, kind: str, replicas_by: str) -> bool:
    if replicas_by not in {"auto", "engine", "router"}:
        raise UserError(
            f"{replicas_by!r} is no way to replicate",
            where="--replicas-by",
            hint="auto, engine or router",
        )
    if replicas_by == "router" and kind != "compose":
        raise UserError(
            "a router needs several containers, which only the compose kind holds",
            where="--replicas-by",
            hint="generate -f compose",
        )
    if launch.replicas == 1:
        return False
    if launch.engine == "llama.cpp" and kind not in {"compose", "kubernetes"}:
        raise DataError(
            "llama-server runs one replica per process",
            key="option.replicas",
            hint="generate -f compose or -f kubernetes",
        )
    return kind == "compose" and (replicas_by != "engine" or launch.engine == "llama.cpp")


def _verify_script(launch: Launch) -> str:
    return page.fill(
        "verify.sh.j2",
        plan_id=comment(launch.plan_id),
        secrets=page.SECRETS_FILE,
        api_key_variable=launch.api_key_variable,
        base_url=launch.base_url,
    )
