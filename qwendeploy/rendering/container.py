"""What every container of ours has, whichever tool starts it: places, limits, health, log, restart.

The root file system is read-only where the image is known. What the engine writes then lies under
a home directory in memory with named volumes in it: Triton, the compile cache, FlashInfer and
usage statistics all go below ``HOME`` (llm-d/llm-d#1430, #1711 on vLLM 0.19.1). Inductor loads
compiled objects from ``/tmp``, which must allow execution (pytorch/pytorch#91005).
"""

from __future__ import annotations

from qwendeploy.rendering.engine_settings import SECONDS_TO_END
from qwendeploy.rendering.launch import CONTAINER_PORT, Launch

HUB_VOLUME = "qwendeploy-hub"
"""Volume for the weights where no host directory is shared."""

HUB_PLACE = ".cache/huggingface"
"""The weights below the home directory; the parent of ``hub/``, as HF_HOME."""

CACHES = {
    "vllm": (
        ("qwendeploy-vllm", ".cache/vllm"),
        ("qwendeploy-flashinfer", ".cache/flashinfer"),
        ("qwendeploy-triton", ".triton"),
    ),
    "llama.cpp": (("qwendeploy-llama-cpp", ".cache/llama.cpp"),),
}
"""Named volumes per engine, below the home directory: with them a boot takes 120 s instead of
295 s on the study's cards. The names are the same for every plan, so that plans share compiled
kernels."""

IMAGE_HOME = "/root"
"""Home directory of the engines' images; it holds parts of the image and is not covered."""

OWN_HOME = "/home/engine"
"""Home directory in memory under a read-only root."""

ULIMITS = (("memlock", -1), ("stack", 67108864), ("nofile", 65536))
"""Pinned host memory and stack as NVIDIA's container images ask; files above the 20,000 at
which vLLM 0.20.1 warns (own H200 boot logs)."""

LOG_MAX_SIZE = "50m"
LOG_MAX_FILES = 4

RESTARTS = 3
"""Failing starts until it stays down, so that a configuration error does not loop.

Docker counts them over the container's whole life, and brings a container with ``on-failure`` back
after a reboot only if it ended with an error: ``unless-stopped`` is for what has served once."""

HEALTH_INTERVAL_S = 10
HEALTH_TIMEOUT_S = 5
HEALTH_RETRIES = 6

STOP_S = SECONDS_TO_END + 10
"""Until a server that was told to stop is killed: running requests end, then the engine does."""

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


def restart_window_s(launch: Launch) -> int:
    """Return a window in which ``RESTARTS`` failing boots certainly fall, each bounded by health.

    Docker calls a container unhealthy after the start period and the retries.
    """
    boot = launch.start_period_s + HEALTH_RETRIES * (HEALTH_INTERVAL_S + HEALTH_TIMEOUT_S) + STOP_S
    return (RESTARTS + 1) * boot


def home(launch: Launch) -> str:
    """Return the home directory that the engine writes below."""
    return OWN_HOME if launch.read_only else IMAGE_HOME


def hub_target(launch: Launch) -> str:
    """Return where the weights lie inside the container."""
    return f"{home(launch)}/{HUB_PLACE}"


def caches(launch: Launch) -> tuple[tuple[str, str], ...]:
    """Return (volume, target) of the compile caches."""
    return tuple((volume, f"{home(launch)}/{place}") for volume, place in CACHES[launch.engine])


def environment(launch: Launch) -> tuple[tuple[str, str], ...]:
    """Return the plan's variables, after those that say where home, weights and GPUs are."""
    found: dict[str, str] = {}
    if devices := _device_order(launch):
        listed = ",".join(str(device) for device in devices)
        found |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": listed}
    if launch.read_only:
        found |= {"HOME": OWN_HOME, "HF_HOME": hub_target(launch)}
    return tuple({**found, **dict(launch.env)}.items())


def _device_order(launch: Launch) -> tuple[int, ...]:
    """Return the devices for CUDA, counted as the container sees them; empty if any order will do.

    Replicas of one process take them in turn, and a container sees its GPUs in the order of their
    slots, whatever order it is given them in.
    """
    if launch.hides_some:
        return launch.gpu_indices
    seen = sorted(launch.gpu_indices)
    if launch.replicas == 1 or seen == list(launch.gpu_indices):
        return ()
    return tuple(seen.index(index) for index in launch.gpu_indices)


def tmpfs(launch: Launch) -> tuple[tuple[str, str], ...]:
    """Return (target, options) of memory-backed directories; none when the root is writable."""
    if not launch.read_only:
        return ()
    return (("/tmp", "exec,mode=1777"), (OWN_HOME, "exec,mode=0700"))
