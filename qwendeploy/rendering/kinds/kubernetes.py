"""``kubernetes.yaml``: claim, Deployment and Service; the Secret is only referred to."""

from __future__ import annotations

import math
from dataclasses import replace

from qwendeploy.documents import Plan
from qwendeploy.errors import DataError
from qwendeploy.rendering import container, page
from qwendeploy.rendering.devices import resource_name
from qwendeploy.rendering.kind import ArtefactKind, Files, Order
from qwendeploy.rendering.launch import CONTAINER_PORT, HUB_TOKEN

STORAGE_WITHOUT_SIZE_GIB = 128
"""Claim when the plan has no download size: twice the BF16 checkpoint (52 GiB) and caches."""

PROCESSES_BESIDE_WORKERS = 2
"""vLLM's API server and engine core; each GPU has a worker besides, and each keeps a core busy
(vLLM documentation, Architecture Overview). A pod that asks for no processor gets what others
leave, and is the first to be put out."""

COMPILED_GIB = 8
"""Room beside the weights for compiled kernels."""


def files(order: Order) -> Files:
    """Return the manifests; replicas are pods of one engine each.

    Raises:
        DataError: a path cannot be a mount path, or Kubernetes does not give out the slice.
    """
    plan, launch = order.plan, order.launch
    if any(len(path) > 1024 or ".." in path.split("/") for path in launch.local_paths):
        raise DataError("is not a mount path", key="option.checkpoint")
    single = replace(launch, replicas=1)
    resource, remark = resource_name(plan, launch.gpu_indices)
    text = page.fill(
        "kubernetes.yaml.j2",
        header=order.header,
        launch=launch,
        cores=PROCESSES_BESIDE_WORKERS + launch.tp if launch.engine == "vllm" else 1,
        resource=resource,
        resource_remark=remark,
        engine=single.arguments("0.0.0.0", CONTAINER_PORT),
        mounts=[
            (volume.removeprefix("qwendeploy-"), target)
            for volume, target in (
                (container.HUB_VOLUME, container.hub_target(launch)),
                *container.caches(launch),
            )
        ],
        scratch=[
            (target.strip("/").replace("/", "-").replace(".", ""), target)
            for target, _ in container.tmpfs(launch)
        ],
        env=container.environment(replace(launch, hides_some=False)),
        storage_gib=_storage_gib(plan),
        container_port=CONTAINER_PORT,
        hub_token=HUB_TOKEN,
        interval=container.HEALTH_INTERVAL_S,
        timeout=container.HEALTH_TIMEOUT_S,
        retries=container.HEALTH_RETRIES,
        stop=container.STOP_S,
        plan_label=container.PLAN_LABEL,
        secrets=page.SECRETS_FILE,
    )
    return {"kubernetes.yaml": (text, page.TEXT)}


def _storage_gib(plan: Plan) -> int:
    if plan.download_gib is None:
        return STORAGE_WITHOUT_SIZE_GIB
    return math.ceil(2 * plan.download_gib.high) + COMPILED_GIB


KIND = ArtefactKind(
    name="kubernetes",
    title="a Kubernetes manifest",
    main_file="kubernetes.yaml",
    build=files,
    start="kubectl create secret generic {name} --from-env-file={place}/{secrets}"
    " && kubectl apply -f {file}",
    checks=("kubernetes-validate --strict {file}",),
    replicas="pods",
)
