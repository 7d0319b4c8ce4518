"""``llama-server.sh``: llama.cpp's server without a container."""

from __future__ import annotations

from qwendeploy.rendering.kind import ArtefactKind, Files, Order
from qwendeploy.rendering.page import SCRIPT_CHECKS
from qwendeploy.rendering.venv import script


def files(order: Order) -> Files:
    """Return the script."""
    return script(order, KIND.main_file, "llama-server", "LLAMA_SERVER", None)


KIND = ArtefactKind(
    name="llama-server",
    title="a plain `llama-server` script",
    main_file="llama-server.sh",
    build=files,
    start="{file}",
    checks=SCRIPT_CHECKS,
    engines=("llama.cpp",),
    container=False,
)
