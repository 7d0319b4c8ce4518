"""Artefacts: files that run a plan, each set with the plan and its verification script.

``render`` is a pure function of the plan. What the engine does was decided by planning and stands
in ``plan.flags`` and ``plan.env``; here it is only written down, quoted for each format.
"""

from __future__ import annotations

from dataclasses import replace

from qwendeploy.documents import Plan
from qwendeploy.documents.files import dump_document
from qwendeploy.errors import DataError, UserError
from qwendeploy.rendering import page
from qwendeploy.rendering.kind import ArtefactKind, Files, Order
from qwendeploy.rendering.kinds import KINDS
from qwendeploy.rendering.launch import Launch, launch_of
from qwendeploy.rendering.quoting import comment

__all__ = ["KINDS", "ArtefactKind", "Files", "Launch", "launch_of", "render"]


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
    made = KINDS[kind]
    launch = launch_of(plan, name=name, writable=writable)
    _check_fit(made, launch)
    router = _use_router(launch, made, replicas_by)
    layout = "" if router or made.replicas == "pods" else _one_process(launch)
    header = page.header(plan, launch, layout=layout, tool_version=tool_version)
    found = made.build(Order(plan, launch, header, router))
    found["plan.yaml"] = (dump_document(plan), page.TEXT)
    # a forwarded port of a cluster listens on the loopback, whatever the plan's address
    local = replace(launch, listen="127.0.0.1") if made.replicas == "pods" else launch
    found["verify.sh"] = (_verify_script(local), page.SCRIPT)
    return found


def _check_fit(kind: ArtefactKind, launch: Launch) -> None:
    """Refuse a plan for an engine that the kind does not start, or without the image it needs."""
    plain = next(
        other.name
        for other in KINDS.values()
        if not other.container and launch.engine in other.engines
    )
    if kind.container and launch.image is None:
        raise DataError(
            "the plan has no image",
            key="option.image",
            hint=f"generate -f {plain}, or recommend with --image",
        )
    if launch.engine not in kind.engines:
        raise DataError(
            f"the plan is for {launch.engine}, whose flags are not those of {kind.name}",
            key="option.engine",
            hint=f"generate -f {plain}, or recommend with the other --engine",
        )


def _one_process(launch: Launch) -> str:
    """Return why replicas share a process, nothing where there is one."""
    if launch.replicas == 1:
        return ""
    return (
        f"{launch.replicas} replicas run in one process (--data-parallel-size), since one command"
        " is started here: they share its port and metrics, and end together. The prediction adds"
        " up independent servers, which `generate -f compose` starts behind nginx."
    )


def _use_router(launch: Launch, kind: ArtefactKind, replicas_by: str) -> bool:
    if replicas_by not in {"auto", "engine", "router"}:
        raise UserError(
            f"{replicas_by!r} is no way to replicate",
            where="--replicas-by",
            hint="auto, engine or router",
        )
    if replicas_by == "router" and kind.replicas != "router":
        raise UserError(
            "a router needs several containers, which only the compose kind holds",
            where="--replicas-by",
            hint="generate -f compose",
        )
    if launch.replicas == 1:
        return False
    if launch.engine == "llama.cpp" and kind.replicas == "process":
        several = (other.name for other in KINDS.values() if other.replicas != "process")
        raise DataError(
            "llama-server runs one replica per process",
            key="option.replicas",
            hint=f"generate -f {' or -f '.join(several)}",
        )
    return kind.replicas == "router" and (replicas_by != "engine" or launch.engine == "llama.cpp")


def _verify_script(launch: Launch) -> str:
    return page.fill(
        "verify.sh.j2",
        plan_id=comment(launch.plan_id),
        secrets=page.SECRETS_FILE,
        api_key_variable=launch.api_key_variable,
        base_url=launch.base_url,
    )
