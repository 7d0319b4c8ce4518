"""``serve.sh``: vLLM of the active virtual environment."""

from __future__ import annotations

from qwendeploy.rendering.kind import ArtefactKind, Files, Order
from qwendeploy.rendering.page import SCRIPT_CHECKS
from qwendeploy.rendering.venv import script


def files(order: Order) -> Files:
    """Return the script. Raises DataError where vLLM cannot be given its slice."""
    return script(order, KIND.main_file, "vllm", "VLLM", order.plan.option.engine_version)


KIND = ArtefactKind(
    name="vllm",
    title="a plain `vllm` script",
    main_file="serve.sh",
    build=files,
    start="{file}",
    checks=SCRIPT_CHECKS,
    engines=("vllm",),
    container=False,
)
