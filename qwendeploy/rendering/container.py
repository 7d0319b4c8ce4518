"""What every container of ours has, whichever tool starts it: places, limits, health, log, restart.

The root file system is read-only where the image is known. What the engine writes then lies in
named volumes or memory: Triton, the compile cache and usage statistics go to ``.triton``,
``.cache`` and ``.config`` of the home directory (llm-d/llm-d#1430, #1711 on vLLM 0.19.1), and
Inductor loads compiled objects from ``/tmp``, which must allow execution (pytorch/pytorch#91005).
"""

from __future__ import annotations

from qwendeploy.rendering.launch import CONTAINER_PORT, Launch

HUB_TARGET = "/root/.cache/huggingface"
"""The weights inside the container; the parent of ``hub/``, as HF_HOME."""

HUB_VOLUME = "qwendeploy-hub"
"""Volume for the weights where no host directory is shared."""

CACHES = {
    "vllm": (
        ("qwendeploy-vllm", "/root/.cache/vllm"),
        ("qwendeploy-flashinfer", "/root/.cache/flashinfer"),
        ("qwendeploy-triton", "/root/.triton"),
    ),
    "llama.cpp": (("qwendeploy-llama-cpp", "/root/.cache/llama.cpp"),),
}
"""Named volumes per engine: with them a boot takes 120 s instead of 295 s on the study's cards.
The names are the same for every plan, so that plans share compiled kernels."""

TMPFS = (
    ("/tmp", "exec,mode=1777"),
    ("/root/.cache", "exec"),
    ("/root/.config", ""),
    ("/root/.nv", ""),
)
"""Writable directories in memory under a read-only root, with their mount options."""

ULIMITS = (("memlock", -1), ("stack", 67108864), ("nofile", 65536))
"""Pinned host memory and stack as NVIDIA's container images ask; files above the 20,000 at
which vLLM 0.20.1 warns (own H200 boot logs)."""

LOG_MAX_SIZE = "50m"
LOG_MAX_FILES = 4

RESTARTS = 3
"""After a crash; then it stays down, so that a configuration error does not loop."""

HEALTH_INTERVAL_S = 10
HEALTH_TIMEOUT_S = 5
HEALTH_RETRIES = 6

STOP_S = 60
"""Running requests get this long to end."""

PLAN_LABEL = "org.qwendeploy.plan"
LAUNCH_LABEL = "org.qwendeploy.launch"


def health_command(launch: Launch) -> tuple[str, ...]:
    """Return the command that succeeds when the server in this container answers ``/health``."""
    url = f"http://127.0.0.1:{CONTAINER_PORT}/health"
    if launch.engine == "llama.cpp":
        return ("curl", "-fsS", "-o", "/dev/null", "-m", "4", url)
    # Python is the one program that every vLLM image has
    program = "import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=4)"
    return ("python3", "-c", program, url)


def caches(launch: Launch) -> tuple[tuple[str, str], ...]:
    """Return (volume, target) of the compile caches."""
    return CACHES[launch.engine]


def tmpfs(launch: Launch) -> tuple[tuple[str, str], ...]:
    """Return (target, options) of memory-backed directories; none when the root is writable."""
    return TMPFS if launch.read_only else ()
