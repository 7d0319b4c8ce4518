"""Checks that need only the machine's facts, so they also run on saved output."""

from __future__ import annotations

from collections.abc import Iterator

from qwendeploy.documents import Gpu
from qwendeploy.hardware.checks.findings import DoctorFinding, Examined
from qwendeploy.hardware.placing import kind_of
from qwendeploy.hardware.texts.platforms import is_windows_release
from qwendeploy.hardware.usable import capability_of, objection

HELD_SHARE = 0.02
"""Share of a GPU's memory that display and driver may take unnoticed."""

CAP_SHARE = 0.98
"""A power cap below this share of the default is lowered."""


def check_usable(examined: Examined) -> Iterator[DoctorFinding]:
    """Yield whether the machine can serve, and which GPUs cannot."""
    machine = examined.machine
    if machine.usable is False:
        yield DoctorFinding(
            id="gpu-unusable",
            severity="error",
            text="no GPU of this machine can serve",
            evidence=machine.usable_reason,
            fix="fix the problem above; until then no image starts",
        )
    elif machine.usable is None and machine.gpus:
        names = ", ".join(dict.fromkeys(gpu.name or "name not shown" for gpu in machine.gpus))
        yield DoctorFinding(
            id="gpu-unknown",
            severity="warning",
            text="the GPU model is unknown, so it is unknown whether the GPUs can serve",
            evidence=names,
            fix="add the output of nvidia-smi -L, which has full names; or state the model:"
            " qwendeploy detect --from PATH --gpu NAME -o machine.yaml",
        )
    for gpu in machine.gpus:
        if gpu.health != "ok":
            fix = {
                "requires_reset": f"nvidia-smi --gpu-reset -i {gpu.index}, else reboot",
                "lost": "reboot; if it is still lost, check seating, riser and power",
            }
            yield DoctorFinding(
                id="gpu-faulty",
                severity="error" if gpu.index in examined.serving else "warning",
                text=f"GPU {gpu.index} does not respond",
                evidence=gpu.health_reason or gpu.health,
                fix=fix.get(gpu.health, "look for Xid lines in dmesg, reset the GPU or reboot"),
            )
    yield from _named_gpus(examined)
    for missing in machine.missing_gpus:
        place = f"GPU {missing.index}" if missing.index is not None else "a GPU"
        yield DoctorFinding(
            id="gpu-missing",
            severity="warning",
            text=f"{place} at {missing.bus_id or 'an unknown address'} is missing",
            evidence=missing.reason,
            fix="reboot; if it is still missing, check seating, riser, power and dmesg (Xid 79)",
        )


def _named_gpus(examined: Examined) -> Iterator[DoctorFinding]:
    """Yield requested GPUs that do not exist, and GPUs that are too old."""
    machine = examined.machine
    there = {gpu.index: gpu for gpu in machine.gpus}
    for index in examined.needs.gpu_indices:
        if machine.gpus and index not in there:
            yield DoctorFinding(
                id="gpu-not-there",
                severity="error",
                text=f"this machine has no GPU {index}",
                evidence=f"GPUs {', '.join(map(str, there))}",
                fix="select one of these with --devices",
            )
    if not machine.usable:
        return
    for gpu in machine.gpus:
        problem = objection(gpu, machine.driver) if gpu.health == "ok" else None
        if problem is not None:
            yield DoctorFinding(
                id="gpu-too-old",
                severity="error" if gpu.index in examined.serving else "info",
                text=f"GPU {gpu.index} cannot serve",
                evidence=problem,
                fix="select the other GPUs with --devices",
            )


def check_driver(examined: Examined) -> Iterator[DoctorFinding]:
    """Compare the driver with what the image's CUDA needs."""
    machine, needs = examined.machine, examined.needs
    if machine.driver is None and not machine.gpus:
        return
    if machine.driver is None:
        yield DoctorFinding(
            id="driver-unknown",
            severity="info",
            text="the driver version is unknown",
            evidence="no driver version in the input",
            fix="add the output of nvidia-smi --query-gpu=driver_version --format=csv",
        )
        return
    floor, have = needs.image_min_driver, int(machine.driver.split(".")[0])
    shown = f"driver {machine.driver}" + (f", CUDA up to {machine.cuda}" if machine.cuda else "")
    if floor is not None and have < floor:
        yield DoctorFinding(
            id="driver-too-old",
            severity="error",
            text=f"{needs.image} needs driver {floor} or newer (CUDA {needs.image_cuda})",
            evidence=shown,
            fix="update the driver, or use the -cu129 image of the same version (driver 525+)",
        )
    elif floor is not None:
        yield DoctorFinding(
            id="driver", severity="ok", text=f"the driver supports {needs.image}", evidence=shown
        )
    elif needs.newest_min_driver is not None:
        runs = have >= needs.newest_min_driver
        yield DoctorFinding(
            id="driver" if runs else "driver-below-newest",
            severity="ok" if runs else "warning",
            text=f"the driver {'supports' if runs else 'is too old for'} the newest upstream image",
            evidence=f"{shown}; {needs.newest_image} needs {needs.newest_min_driver}",
            fix="" if runs else "update the driver, or use a -cu129 image (driver 525 or newer)",
        )
    unbuilt = [
        gpu
        for gpu in machine.gpus
        if gpu.index in examined.serving and not _is_covered(gpu, needs.image_capabilities)
    ]
    for gpu in unbuilt[:1]:
        yield DoctorFinding(
            id="image-lacks-architecture",
            severity="error",
            text=f"{needs.image} has no kernels for {gpu.name}",
            evidence=f"compute capability {gpu.compute_capability};"
            f" built for {' '.join(needs.image_capabilities)}",
            fix="use an image built for this architecture",
        )


def _is_covered(gpu: Gpu, built: tuple[str, ...]) -> bool:
    """Say whether code for a capability is in the image: the same major, no newer minor."""
    have = capability_of(gpu)
    known = [
        (int(major), int(minor))
        for major, _, minor in (text.strip("?af").partition(".") for text in built)
        if major.isdigit() and minor.isdigit()
    ]
    if have is None or not known:
        return True
    return any(major == have[0] and minor <= have[1] for major, minor in known)


def check_memory_held(examined: Examined) -> Iterator[DoctorFinding]:
    """Yield GPUs whose memory other processes use, with the processes if known."""
    for gpu in examined.machine.gpus:
        if not (gpu.memory_mib and gpu.memory_used_mib) or gpu.mig:
            continue
        programs = [item for item in examined.processes if item.gpu == gpu.index]
        held = gpu.memory_used_mib
        if held <= HELD_SHARE * gpu.memory_mib and not any(p.kind == "C" for p in programs):
            continue
        names = ", ".join(
            f"{item.name.rsplit('/', 1)[-1][:40]} ({item.memory_mib or '?'} MiB)"
            for item in programs[:4]
        )
        yield DoctorFinding(
            id="gpu-memory-held",
            severity="warning" if gpu.index in examined.serving else "info",
            text=f"GPU {gpu.index}: other processes use memory that the server needs",
            evidence=f"{held} of {gpu.memory_mib} MiB in use" + (f": {names}" if names else ""),
            fix="stop them, select other GPUs (--devices), or lower the memory fraction",
        )


def check_power(examined: Examined) -> Iterator[DoctorFinding]:
    """Yield lowered power limits, throttled clocks and disabled persistence mode."""
    for gpu in examined.machine.gpus:
        cap, default = gpu.power_cap_w, gpu.power_cap_default_w
        if cap and default and cap < CAP_SHARE * default:
            yield DoctorFinding(
                id="power-cap-lowered",
                severity="warning",
                text=f"GPU {gpu.index} has a lowered power limit: predictions assume the default",
                evidence=f"limit {cap:g} W, default {default:g} W",
                fix=f"sudo nvidia-smi -i {gpu.index} -pl {default:g}, or expect lower rates",
            )
        if gpu.slowdown:
            yield DoctorFinding(
                id="clock-slowdown",
                severity="warning",
                text=f"GPU {gpu.index} is throttled right now",
                evidence=gpu.slowdown,
                fix="check cooling and power supply",
            )
    off = [gpu.index for gpu in examined.machine.gpus if gpu.persistence is False]
    if off and examined.machine.os in ("linux", "container"):
        yield DoctorFinding(
            id="persistence-off",
            severity="info",
            text="persistence mode is off: the driver unloads when idle and loads slowly",
            evidence=f"off on GPU {', '.join(map(str, off))}",
            fix="sudo nvidia-smi -pm 1, or enable nvidia-persistenced",
        )


def check_shape(examined: Examined) -> Iterator[DoctorFinding]:
    """Yield GPUs in MIG mode, virtual GPUs, displays and mixed GPU models."""
    machine = examined.machine
    for gpu in machine.gpus:
        if gpu.mig:
            slices = sum(item.gpu == gpu.index for item in machine.mig_devices)
            yield DoctorFinding(
                id="mig-mode",
                severity="warning",
                text=f"GPU {gpu.index} is in MIG mode: a server can use one slice only, not the"
                " whole GPU, and tensor parallelism cannot combine slices",
                evidence=f"MIG enabled, {slices or 'no'} slice{'' if slices == 1 else 's'} listed",
                fix=f"sudo nvidia-smi -i {gpu.index} -mig 0 if nobody uses the slices",
            )
        if gpu.vgpu:
            yield DoctorFinding(
                id="virtual-gpu",
                severity="warning",
                text=f"GPU {gpu.index} is virtual: its speed depends on the licence and the host",
                evidence=gpu.name or "virtualisation mode VGPU",
                fix="check the licence: nvidia-smi -q | grep -i licen",
            )
        if gpu.display and gpu.index in examined.serving and len(machine.gpus) > 1:
            yield DoctorFinding(
                id="display-attached",
                severity="info",
                text=f"GPU {gpu.index} drives a display, which uses GPU memory and time",
                evidence="display active",
                fix="select the other GPUs with --devices, or log out of the desktop",
            )
    kinds = {kind_of(gpu) for gpu in machine.gpus if gpu.index in examined.serving}
    if len(kinds) > 1:
        yield DoctorFinding(
            id="unlike-cards",
            severity="warning",
            text="mixed GPU models: speed and memory are limited by the weakest GPU",
            evidence=", ".join(sorted(str(name) for name, _ in kinds)),
            fix="select identical GPUs with --devices, or run one server per model",
        )


def check_links(examined: Examined) -> Iterator[DoctorFinding]:
    """Yield how several GPUs are connected, and what that requires."""
    machine = examined.machine
    if len(examined.serving) < 2:
        return
    evidence = f"interconnect {machine.interconnect}, peer access {machine.p2p}"
    if machine.links.worst_pcie_path:
        evidence += f", longest PCIe path {machine.links.worst_pcie_path}"
    if machine.interconnect == "pcie" and machine.p2p == "no":
        yield DoctorFinding(
            id="no-peer-access",
            severity="warning",
            text="no peer access between the GPUs: transfers go through host memory",
            evidence=evidence,
            fix="set NCCL_P2P_DISABLE=1 if the start hangs in NCCL; prefer replicas if they fit",
        )
    elif machine.interconnect == "unknown":
        yield DoctorFinding(
            id="links-unknown",
            severity="info",
            text="the interconnect between the GPUs is unknown",
            evidence=evidence,
            fix="add the output of nvidia-smi topo -m",
        )
    if machine.links.worst_pcie_path == "SYS":
        yield DoctorFinding(
            id="across-sockets",
            severity="warning",
            text="some GPUs communicate across CPU sockets",
            evidence=evidence,
            fix="select GPUs of one NUMA node with --devices",
        )


def check_platform(examined: Examined) -> Iterator[DoctorFinding]:
    """Yield the limits of WSL2, Windows and Arm hosts."""
    machine = examined.machine
    if machine.os == "wsl2":
        host = f", {machine.host_memory_mib} MiB of host memory" if machine.host_memory_mib else ""
        yield DoctorFinding(
            id="wsl2",
            severity="warning",
            text="WSL2: Windows reserves GPU and host memory, resets the GPU if a kernel runs"
            " longer than 2 s, and expandable segments crash",
            evidence=f"driver {machine.driver or 'unknown'} under a WSL2 kernel{host}",
            fix="increase TdrDelay, set memory= in .wslconfig, do not set PYTORCH_CUDA_ALLOC_CONF,"
            " use WSL 2.7 or newer",
        )
    elif machine.platform == "windows":
        yield DoctorFinding(
            id="windows",
            severity="error",
            text="the engines run on Linux only",
            evidence=f"driver model {next((g.driver_model for g in machine.gpus), None)}",
            fix="use WSL2 with Docker",
        )
    elif is_windows_release(machine.driver) and machine.platform == "unknown":
        yield DoctorFinding(
            id="windows-or-wsl2",
            severity="info",
            text="the driver is a Windows version: this is Windows or WSL2",
            evidence=f"driver {machine.driver}",
            fix="run doctor inside WSL2",
        )
    if machine.platform == "linux-aarch64":
        yield DoctorFinding(
            id="arm-host",
            severity="info",
            text="an Arm host needs an image built for arm64",
            evidence=machine.platform,
            fix="check that docker manifest inspect IMAGE lists linux/arm64",
        )


GPU_CHECKS = (
    check_usable,
    check_driver,
    check_memory_held,
    check_power,
    check_shape,
    check_links,
    check_platform,
)
