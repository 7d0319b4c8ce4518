"""Checks that need only the machine's facts, so they run on saved output too."""

from __future__ import annotations

from collections.abc import Iterator

from qwendeploy.documents import Gpu
from qwendeploy.hardware.checks.findings import Finding, Patient
from qwendeploy.hardware.placing import kind_of
from qwendeploy.hardware.texts.platforms import is_windows_release
from qwendeploy.hardware.usable import capability_of, objection

HELD_SHARE = 0.02
"""Share of a GPU's memory that display and driver may take unnoticed."""

CAP_SHARE = 0.98
"""A power cap below this share of the default is lowered."""


def check_usable(patient: Patient) -> Iterator[Finding]:
    """Say whether the machine can serve at all, and which GPUs are out."""
    machine = patient.machine
    if machine.usable is False:
        yield Finding(
            id="gpu-unusable",
            severity="error",
            text="no GPU of this machine can serve",
            evidence=machine.usable_reason,
            fix="repair what the evidence names; no image will start before",
        )
    elif machine.usable is None and machine.gpus:
        names = ", ".join(dict.fromkeys(gpu.name or "name not shown" for gpu in machine.gpus))
        yield Finding(
            id="gpu-unknown",
            severity="warning",
            text="which cards these are cannot be told, and so not whether they can serve",
            evidence=names,
            fix="add nvidia-smi -L, which prints whole names; or name the card: qwendeploy detect"
            " --from PATH --gpu NAME -o machine.yaml",
        )
    for gpu in machine.gpus:
        if gpu.health != "ok":
            fix = {
                "requires_reset": f"nvidia-smi --gpu-reset -i {gpu.index}, else reboot",
                "lost": "reboot; if it comes back lost, check seating, riser and power",
            }
            yield Finding(
                id="gpu-faulty",
                severity="error" if gpu.index in patient.serving else "warning",
                text=f"GPU {gpu.index} does not answer",
                evidence=gpu.health_reason or gpu.health,
                fix=fix.get(gpu.health, "look for Xid lines in dmesg, reset the GPU or reboot"),
            )
    yield from _named_gpus(patient)
    for missing in machine.missing_gpus:
        place = f"GPU {missing.index}" if missing.index is not None else "a GPU"
        yield Finding(
            id="gpu-missing",
            severity="warning",
            text=f"{place} at {missing.bus_id or 'an unknown address'} has dropped out",
            evidence=missing.reason,
            fix="reboot; if it stays away, check seating, riser, power and dmesg (Xid 79)",
        )


def _named_gpus(patient: Patient) -> Iterator[Finding]:
    """Name the GPUs that are asked for and are not there or too old, and those left out."""
    machine = patient.machine
    there = {gpu.index: gpu for gpu in machine.gpus}
    for index in patient.needs.gpu_indices:
        if machine.gpus and index not in there:
            yield Finding(
                id="gpu-not-there",
                severity="error",
                text=f"GPU {index} is not in this machine",
                evidence=f"GPUs {', '.join(map(str, there))}",
                fix="name one of those with --devices",
            )
    if not machine.usable:
        return
    for gpu in machine.gpus:
        problem = objection(gpu, machine.driver) if gpu.health == "ok" else None
        if problem is not None:
            yield Finding(
                id="gpu-too-old",
                severity="error" if gpu.index in patient.serving else "info",
                text=f"GPU {gpu.index} cannot serve",
                evidence=problem,
                fix="serve on the others with --devices",
            )


def check_driver(patient: Patient) -> Iterator[Finding]:
    """Compare the driver with what the image's CUDA needs."""
    machine, needs = patient.machine, patient.needs
    if machine.driver is None and not machine.gpus:
        return
    if machine.driver is None:
        yield Finding(
            id="driver-unknown",
            severity="info",
            text="the driver's version is not shown",
            evidence="no driver version in what was read",
            fix="nvidia-smi --query-gpu=driver_version --format=csv",
        )
        return
    floor, have = needs.image_min_driver, int(machine.driver.split(".")[0])
    shown = f"driver {machine.driver}" + (f", CUDA up to {machine.cuda}" if machine.cuda else "")
    if floor is not None and have < floor:
        yield Finding(
            id="driver-too-old",
            severity="error",
            text=f"{needs.image} needs driver {floor} or newer (CUDA {needs.image_cuda})",
            evidence=shown,
            fix="update the driver, or take the same version's -cu129 image (driver 525 or newer)",
        )
    elif floor is not None:
        yield Finding(
            id="driver", severity="ok", text=f"the driver runs {needs.image}", evidence=shown
        )
    elif needs.newest_min_driver is not None:
        runs = have >= needs.newest_min_driver
        yield Finding(
            id="driver" if runs else "driver-below-newest",
            severity="ok" if runs else "warning",
            text=f"the driver {'runs' if runs else 'does not run'} the newest upstream image",
            evidence=f"{shown}; {needs.newest_image} needs {needs.newest_min_driver}",
            fix="" if runs else "update the driver, or take a -cu129 image (driver 525 or newer)",
        )
    unbuilt = [
        gpu
        for gpu in machine.gpus
        if gpu.index in patient.serving and not _is_covered(gpu, needs.image_capabilities)
    ]
    for gpu in unbuilt[:1]:
        yield Finding(
            id="image-lacks-architecture",
            severity="error",
            text=f"{needs.image} holds no code for {gpu.name}",
            evidence=f"compute capability {gpu.compute_capability};"
            f" built for {' '.join(needs.image_capabilities)}",
            fix="take an image that is built for this architecture",
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


def check_memory_held(patient: Patient) -> Iterator[Finding]:
    """Name the GPUs whose memory others hold, with the programs where they are shown."""
    for gpu in patient.machine.gpus:
        if not (gpu.memory_mib and gpu.memory_used_mib) or gpu.mig:
            continue
        programs = [item for item in patient.processes if item.gpu == gpu.index]
        held = gpu.memory_used_mib
        if held <= HELD_SHARE * gpu.memory_mib and not any(p.kind == "C" for p in programs):
            continue
        names = ", ".join(
            f"{item.name.rsplit('/', 1)[-1][:40]} ({item.memory_mib or '?'} MiB)"
            for item in programs[:4]
        )
        yield Finding(
            id="gpu-memory-held",
            severity="warning" if gpu.index in patient.serving else "info",
            text=f"GPU {gpu.index}: other processes hold memory that the server will count on",
            evidence=f"{held} of {gpu.memory_mib} MiB in use" + (f": {names}" if names else ""),
            fix="stop them, serve on other GPUs (--devices), or lower the memory fraction",
        )


def check_power(patient: Patient) -> Iterator[Finding]:
    """Find lowered power caps, held-down clocks and missing persistence mode."""
    for gpu in patient.machine.gpus:
        cap, default = gpu.power_cap_w, gpu.power_cap_default_w
        if cap and default and cap < CAP_SHARE * default:
            yield Finding(
                id="power-cap-lowered",
                severity="warning",
                text=f"GPU {gpu.index} runs below its default power: predictions are for the"
                " default",
                evidence=f"cap {cap:g} W, default {default:g} W",
                fix=f"sudo nvidia-smi -i {gpu.index} -pl {default:g}, or expect less",
            )
        if gpu.slowdown:
            yield Finding(
                id="clock-slowdown",
                severity="warning",
                text=f"GPU {gpu.index} is held down right now",
                evidence=gpu.slowdown,
                fix="check cooling and power supply",
            )
    off = [gpu.index for gpu in patient.machine.gpus if gpu.persistence is False]
    if off and patient.machine.os in ("linux", "container"):
        yield Finding(
            id="persistence-off",
            severity="info",
            text="persistence mode is off: the driver unloads when idle and starts slowly",
            evidence=f"off on GPU {', '.join(map(str, off))}",
            fix="sudo nvidia-smi -pm 1, or enable nvidia-persistenced",
        )


def check_shape(patient: Patient) -> Iterator[Finding]:
    """Find MIG parents, virtual GPUs, displays, rebuilt memory and unlike cards."""
    machine = patient.machine
    for gpu in machine.gpus:
        if gpu.mig:
            slices = sum(item.gpu == gpu.index for item in machine.mig_devices)
            yield Finding(
                id="mig-mode",
                severity="warning",
                text=f"GPU {gpu.index} is in MIG mode: a server gets one slice, never the whole"
                " card, and slices cannot be joined by tensor parallelism",
                evidence=f"MIG enabled, {slices or 'no'} slice{'' if slices == 1 else 's'} shown",
                fix=f"sudo nvidia-smi -i {gpu.index} -mig 0 when nobody uses the slices",
            )
        if gpu.vgpu:
            yield Finding(
                id="virtual-gpu",
                severity="warning",
                text=f"GPU {gpu.index} is virtual: the licence and the host decide its speed",
                evidence=gpu.name or "virtualisation mode VGPU",
                fix="check the licence: nvidia-smi -q | grep -i licen",
            )
        if gpu.display and gpu.index in patient.serving and len(machine.gpus) > 1:
            yield Finding(
                id="display-attached",
                severity="info",
                text=f"GPU {gpu.index} drives a display, which takes memory and time",
                evidence="display active",
                fix="serve on the others with --devices, or log out of the desktop",
            )
    kinds = {kind_of(gpu) for gpu in machine.gpus if gpu.index in patient.serving}
    if len(kinds) > 1:
        yield Finding(
            id="unlike-cards",
            severity="warning",
            text="unlike cards serve at the pace and memory of the weakest",
            evidence=", ".join(sorted(str(name) for name, _ in kinds)),
            fix="choose like cards with --devices, or run one server per kind",
        )


def check_links(patient: Patient) -> Iterator[Finding]:
    """Say how several GPUs reach each other, and what that asks for."""
    machine = patient.machine
    if len(patient.serving) < 2:
        return
    evidence = f"interconnect {machine.interconnect}, peer access {machine.p2p}"
    if machine.links.worst_pcie_path:
        evidence += f", longest PCIe path {machine.links.worst_pcie_path}"
    if machine.interconnect == "pcie" and machine.p2p == "no":
        yield Finding(
            id="no-peer-access",
            severity="warning",
            text="the GPUs do not reach each other directly: traffic goes through host memory",
            evidence=evidence,
            fix="set NCCL_P2P_DISABLE=1 if start hangs at NCCL; prefer replicas where they fit",
        )
    elif machine.interconnect == "unknown":
        yield Finding(
            id="links-unknown",
            severity="info",
            text="how the GPUs are joined is not known",
            evidence=evidence,
            fix="add the output of nvidia-smi topo -m",
        )
    if machine.links.worst_pcie_path == "SYS":
        yield Finding(
            id="across-sockets",
            severity="warning",
            text="a pair of GPUs talks across CPU sockets",
            evidence=evidence,
            fix="serve on GPUs of one NUMA node (--devices)",
        )


def check_platform(patient: Patient) -> Iterator[Finding]:
    """Find what WSL2 and Windows take away."""
    machine = patient.machine
    if machine.os == "wsl2":
        host = f", {machine.host_memory_mib} MiB of host memory" if machine.host_memory_mib else ""
        yield Finding(
            id="wsl2",
            severity="warning",
            text="WSL2: Windows keeps part of every GPU's memory and of the host's, a kernel longer"
            " than 2 s resets the GPU, and expandable segments crash",
            evidence=f"driver {machine.driver or 'unknown'} under a WSL2 kernel{host}",
            fix="raise TdrDelay, set memory= in .wslconfig, leave PYTORCH_CUDA_ALLOC_CONF unset,"
            " use WSL 2.7 or newer",
        )
    elif machine.platform == "windows":
        yield Finding(
            id="windows",
            severity="error",
            text="the engines run on Linux only",
            evidence=f"driver model {next((g.driver_model for g in machine.gpus), None)}",
            fix="use WSL2 with Docker",
        )
    elif is_windows_release(machine.driver) and machine.platform == "unknown":
        yield Finding(
            id="windows-or-wsl2",
            severity="info",
            text="the driver is a Windows release: Windows itself or WSL2",
            evidence=f"driver {machine.driver}",
            fix="run doctor inside WSL2",
        )
    if machine.platform == "linux-aarch64":
        yield Finding(
            id="arm-host",
            severity="info",
            text="an Arm host needs an image built for arm64",
            evidence=machine.platform,
            fix="docker manifest inspect IMAGE must list linux/arm64",
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
