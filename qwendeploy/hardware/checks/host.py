"""Checks of this computer: Docker, NVIDIA runtime, disk, shared memory, IOMMU, port, token."""

from __future__ import annotations

import glob
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from qwendeploy.hardware.checks.findings import DockerState, DoctorFinding, Examined
from qwendeploy.hardware.live.docker_host import docker_environment, docker_host, knock
from qwendeploy.hardware.live.machine import in_container
from qwendeploy.hardware.live.probe import Probe

IMAGE_GIB = 28.6e9 / 2**30
"""vllm-openai unpacked: 28.6 GB (vllm-project/vllm pull request 22377, December 2025)."""
SHM_MIB = 1024
"""Shared memory that NCCL and vLLM's broadcast want at least; Docker gives 64 MiB by default."""
GIB = 2**30
DOCKER_S = 10
"""Longest wait for the daemon, in seconds."""


def docker_state() -> DockerState:
    """Return what the daemon says; a daemon that is not there is a state, not an error."""
    import docker
    from docker.errors import DockerException

    address = docker_host(os.environ)
    try:
        knock(address, DOCKER_S)
    except OSError as problem:
        return _silent(f"{address}: {problem.strerror or problem}")
    try:
        found = docker_environment(os.environ)
        with closing(docker.from_env(timeout=DOCKER_S, environment=found)) as client:
            info = client.info()
            images = tuple(tag for image in client.images.list() for tag in image.tags)
    except (DockerException, OSError) as problem:
        return _silent(f"{address}: {problem}")
    return DockerState(
        True,
        version=str(info.get("ServerVersion", "")),
        runtimes=tuple(sorted(info.get("Runtimes") or {})),
        root_dir=str(info.get("DockerRootDir") or "/var/lib/docker"),
        cdi_devices=any(
            "nvidia.com/gpu" in str(item) for item in info.get("DiscoveredDevices") or ()
        ),
        images=images,
    )


def _silent(problem: str) -> DockerState:
    return DockerState(False, problem=" ".join(problem.split())[:300])


_RUNNERS = {"podman": "quadlet", "vllm": "vllm", "llama-server": "llama-server"}
"""Programs that run what ``generate -f`` writes in that format, without Docker."""
_ENGINE_OF = {"vllm": "vllm", "llama-server": "llama.cpp"}


def other_runners(probe: Probe, engine: str | None) -> tuple[str, ...]:
    """Return the programs on the path that run a plan of the engine without Docker."""
    places = [place for place in (probe.environ("PATH") or "").split(":") if place]
    return tuple(
        name
        for name in _RUNNERS
        if engine is None or _ENGINE_OF.get(name, engine) == engine
        if any(probe.matches(f"{glob.escape(place)}/{name}") for place in places)
    )


def _unreachable(docker: DockerState, others: tuple[str, ...]) -> DoctorFinding:
    """Return the finding for an unreachable daemon: an error if nothing else can run a plan."""
    denied = "permission denied" in docker.problem.lower()
    remedy = (
        "add your user to the docker group and log in again"
        if denied
        else "install or start Docker, or set DOCKER_HOST"
    )
    evidence = docker.problem or "no response"
    if not others:
        return DoctorFinding(
            id="docker-unreachable",
            severity="error",
            text="cannot reach Docker, and podman, vllm and llama-server are not installed",
            evidence=evidence,
            fix=f"{remedy}; or install vLLM and run the script of generate -f vllm",
        )
    return DoctorFinding(
        id="docker-unreachable",
        severity="warning",
        text=f"cannot reach Docker: 'up' does not work, but {others[0]} can run a plan",
        evidence=f"{evidence}; installed: {', '.join(others)}",
        fix=f"qwendeploy generate PLAN -f {_RUNNERS[others[0]]}; to use 'up' {remedy}",
    )


def check_docker(examined: Examined) -> Iterator[DoctorFinding]:
    """Yield whether Docker is reachable and can pass GPUs to containers."""
    docker, probe = examined.docker, examined.probe
    if docker is None or probe is None:
        return
    others = other_runners(probe, examined.needs.engine)
    if not docker.reachable:
        yield _unreachable(docker, others)
    else:
        evidence = f"server {docker.version}, runtimes {', '.join(docker.runtimes) or 'none'}"
        yield DoctorFinding(id="docker", severity="ok", text="Docker is running", evidence=evidence)
    specs = [
        path
        for pattern in ("/etc/cdi/nvidia*", "/var/run/cdi/nvidia*")
        for path in probe.matches(pattern)
    ]
    if "nvidia" in docker.runtimes or docker.cdi_devices or specs:
        how = "runtime nvidia" if "nvidia" in docker.runtimes else "CDI devices"
        yield DoctorFinding(
            id="nvidia-runtime",
            severity="ok",
            text="containers can use GPUs",
            evidence=f"{how}{': ' + specs[0] if specs else ''}",
        )
        return
    if not docker.reachable and "podman" not in others:
        return
    hook = probe.run("nvidia-container-runtime-hook", "--version")
    toolkit = probe.run("nvidia-ctk", "--version")
    found = "nvidia-ctk is installed" if toolkit else "no nvidia-ctk"
    yield DoctorFinding(
        id="nvidia-runtime-absent",
        severity="warning"
        if hook or not docker.reachable or {"vllm", "llama-server"} & set(others)
        else "error",
        text="Docker has no NVIDIA runtime and no CDI devices",
        evidence=f"runtimes {', '.join(docker.runtimes) or 'unknown'}; no CDI file; {found}",
        fix="sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
        if toolkit
        else "install nvidia-container-toolkit, then run nvidia-ctk runtime configure",
    )


def model_cache(probe: Probe) -> Path:
    """Return the directory that checkpoints are downloaded to."""
    for name, below in (("HF_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if value := probe.environ(name):
            return Path(value) / below
    return Path(probe.environ("HOME") or "/root") / ".cache/huggingface/hub"


def check_disk(examined: Examined) -> Iterator[DoctorFinding]:
    """Compare free disk with the checkpoint's download and the image."""
    probe, needs = examined.probe, examined.needs
    if probe is None:
        return
    wanted: list[tuple[str, Path, float]] = []
    if needs.download_gib:
        wanted.append(("the checkpoint", model_cache(probe), needs.download_gib))
    docker = examined.docker
    if docker is not None and docker.reachable and needs.image not in docker.images:
        wanted.append(("the image", Path(docker.root_dir), IMAGE_GIB))
    for what, place, size in wanted:
        free = _free_gib(place)
        if free is None:
            continue
        short = free < size
        yield DoctorFinding(
            id="disk-short" if short else "disk",
            severity="error" if short else "ok",
            text=f"{'not ' if short else ''}enough disk space for {what} ({size:.0f} GiB)",
            evidence=f"{free:.0f} GiB free at {place}",
            fix="free disk space, or use another disk: HF_HOME for checkpoints, data-root for"
            " Docker"
            if short
            else "",
        )


def _free_gib(place: Path) -> float | None:
    """Return the free space of the file system that will hold ``place``."""
    for candidate in (place, *place.parents):
        try:
            return shutil.disk_usage(candidate).free / GIB
        except OSError:
            continue
    return None


def check_shared_memory(examined: Examined) -> Iterator[DoctorFinding]:
    """Yield a /dev/shm that is too small for several workers."""
    probe = examined.probe
    if probe is None or not Path("/dev/shm").is_dir():
        return
    total = shutil.disk_usage("/dev/shm").total / 2**20
    if total >= SHM_MIB:
        return
    inside = in_container(probe)
    yield DoctorFinding(
        id="shared-memory-small",
        severity="error" if len(examined.serving) > 1 else "warning",
        text="/dev/shm is too small for NCCL and the engine's workers",
        evidence=f"/dev/shm has {total:.0f} MiB",
        fix="start this container with --ipc=host or --shm-size 16g"
        if inside
        else "sudo mount -o remount,size=16G /dev/shm",
    )


def check_iommu(examined: Examined) -> Iterator[DoctorFinding]:
    """Yield an IOMMU that intercepts peer traffic between PCIe GPUs: NCCL then hangs at start.

    Seen on two RTX PRO 6000 (vllm-project/vllm issue 33041) and two RTX 5880 (NVIDIA/nccl issue
    2079).
    """
    probe = examined.probe
    if probe is None or len(examined.serving) < 2 or examined.machine.interconnect == "nvlink":
        return
    units = probe.matches("/sys/class/iommu/*")
    command_line = probe.read("/proc/cmdline") or ""
    options = " ".join(re.findall(r"\S*(?:iommu|noacs)\S*", command_line)) or "no iommu option"
    passed = re.search(r"iommu=(?:pt|off)\b|pci=noacs", command_line) is not None
    if units and not passed and not in_container(probe):
        yield DoctorFinding(
            id="iommu-on",
            severity="warning",
            text="the IOMMU is on: NCCL may hang at start if GPUs use peer access over PCIe",
            evidence=f"{len(units)} IOMMU units; kernel command line: {options}",
            fix="boot with iommu=pt or disable ACS in the BIOS; NCCL_P2P_DISABLE=1 also avoids"
            " the hang, but is slower",
        )


def check_port(examined: Examined) -> Iterator[DoctorFinding]:
    """Yield a port that is already in use on the listen address."""
    if examined.probe is None:
        return
    needs = examined.needs
    family = socket.AF_INET6 if ":" in needs.listen else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe_socket:
            probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe_socket.bind((needs.listen, needs.port))
    except OSError as problem:
        yield DoctorFinding(
            id="port-in-use",
            severity="error",
            text=f"cannot listen on port {needs.port}",
            evidence=f"{needs.listen}:{needs.port}: {problem.strerror or problem}",
            fix="stop the program that uses it (see ss -ltnp), or choose another with --port",
        )


def has_token(probe: Probe) -> str | None:
    """Return where a Hugging Face token is stored, never the token."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if probe.environ(name):
            return name
    home = probe.environ("HF_HOME") or f"{probe.environ('HOME') or '/root'}/.cache/huggingface"
    places = [probe.environ("HF_TOKEN_PATH"), f"{home}/token"]
    return next(
        ("the token file" for place in places if place and (probe.read(place) or "").strip()), None
    )


def check_token(examined: Examined) -> Iterator[DoctorFinding]:
    """Yield whether a token exists for gated repositories."""
    if examined.probe is None:
        return
    perhaps = examined.needs.perhaps_gated
    if perhaps and has_token(examined.probe) is None:
        yield DoctorFinding(
            id="token-absent",
            severity="info",
            text=f"{', '.join(perhaps)} is gated: a plan that uses it for drafting needs a token",
            evidence="neither HF_TOKEN nor a token file",
            fix="accept the licence on its page, then export HF_TOKEN",
        )
    if not examined.needs.gated:
        return
    names = ", ".join(examined.needs.gated)
    where = has_token(examined.probe)
    if where is None:
        yield DoctorFinding(
            id="token-absent",
            severity="error",
            text=f"{names} is gated: downloading it needs an accepted licence and a token",
            evidence="neither HF_TOKEN nor a token file",
            fix="accept the licence on its page, then export HF_TOKEN",
        )
    else:
        yield DoctorFinding(
            id="token",
            severity="ok",
            text=f"a Hugging Face token is set for {names}",
            evidence=f"found in {where}",
        )


HOST_CHECKS = (
    check_docker,
    check_disk,
    check_shared_memory,
    check_iommu,
    check_port,
    check_token,
)
