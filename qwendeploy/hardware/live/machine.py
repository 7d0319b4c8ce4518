"""The machine that the program runs on, read with NVML and nvidia-smi.

Three outcomes are kept apart: a machine with GPUs; a computer without any sign of an NVIDIA GPU
(only then may another machine be assumed); and a GPU box whose driver or tools fail, which is a
problem of the environment with the tool's own line.
"""

from __future__ import annotations

from collections.abc import Callable

from qwendeploy.documents import Machine
from qwendeploy.errors import EnvironmentProblem, NoPlan
from qwendeploy.hardware.catalogue import Catalogue
from qwendeploy.hardware.live.nvml import read_nvml
from qwendeploy.hardware.live.probe import Probe, ThisComputer
from qwendeploy.hardware.merge import machine_of
from qwendeploy.hardware.reading import Failure, Reading
from qwendeploy.hardware.texts.sniff import read_text

NvmlReader = Callable[[], Reading | None]

_DEVICES = (
    "/dev/nvidia[0-9]*",
    "/dev/nvidiactl",
    "/proc/driver/nvidia/version",
    "/usr/lib/wsl/lib/libnvidia-ml.so*",
)
_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"


def live_readings(probe: Probe | None = None, nvml: NvmlReader = read_nvml) -> list[Reading]:
    """Return what NVML, nvidia-smi and the operating system say; empty readings left out."""
    probe = probe or ThisComputer()
    readings: list[Reading | None] = []
    direct = nvml()
    if direct is not None and direct.gpus:
        readings.append(direct)
    else:
        readings.append(_smi(probe, "-q", "-x"))
        readings.append(_smi(probe))
        readings.append(_smi(probe, "--query-gpu=index,compute_cap", "--format=csv"))
        if direct is not None and direct.failures:
            readings.append(direct)
    count = max((len(reading.gpus) for reading in readings if reading), default=0)
    if count:
        readings += [_smi(probe, "-L"), _smi(probe, "topo", "-m"), _smi(probe, "nvlink", "-s")]
    if count > 1:
        readings.append(_smi(probe, "topo", "-p2p", "r"))
    readings.append(_host(probe))
    return [reading for reading in readings if reading is not None]


def _smi(probe: Probe, *arguments: str) -> Reading | None:
    ran = probe.run("nvidia-smi", *arguments)
    if ran is None:
        return None
    origin = " ".join(("nvidia-smi", *arguments))
    reading = read_text(ran.text, origin)
    if arguments[:1] not in ((), ("-q",)):
        reading.failures.clear()
    elif ran.timed_out:
        reading.failures.append(
            Failure("timeout", f"{origin} timed out", "a GPU hangs: see dmesg, reboot")
        )
    elif not reading.gpus and not reading.failures:
        line = next((line for line in ran.text.splitlines() if line.strip()), "no output")
        reading.failures.append(
            Failure("smi-failed", f"{line.strip()[:160]} (exit {ran.code})", "see dmesg")
        )
    return reading


def _host(probe: Probe) -> Reading:
    reading = Reading("host")
    if (memory := probe.read("/proc/meminfo")) is not None:
        reading.host_memory_mib = read_text(memory, "host").host_memory_mib
    if (arch := _ARCHITECTURES.get(probe.machine().lower(), probe.machine().lower())) != "":
        reading.platform_hints.append(arch)
    if probe.system() == "Linux":
        reading.platform_hints.append("linux")
    if "microsoft" in (probe.read("/proc/version") or "").lower():
        reading.platform_hints.append("wsl2")
    reading.container = in_container(probe)
    return reading


def in_container(probe: Probe) -> bool:
    """Say whether the program runs in a container."""
    if probe.matches("/.dockerenv") or probe.matches("/run/.containerenv"):
        return True
    groups = probe.read("/proc/1/cgroup") or ""
    return any(word in groups for word in ("/docker/", "/kubepods", "/containerd", "/libpod"))


def nvidia_devices(probe: Probe) -> list[str]:
    """Return signs of an NVIDIA GPU: device nodes, kernel module, PCI display devices."""
    found = [path for pattern in _DEVICES for path in probe.matches(pattern)]
    for vendor in probe.matches("/sys/bus/pci/devices/*/vendor"):
        folder = vendor.rsplit("/", 1)[0]
        if (probe.read(vendor) or "").strip() == _NVIDIA and (
            probe.read(f"{folder}/class") or ""
        ).startswith(_DISPLAY_CLASS):
            found.append(folder)
    return found


def find_machine(
    catalogue: Catalogue, probe: Probe | None = None, nvml: NvmlReader = read_nvml
) -> Machine | None:
    """Return this machine, or ``None`` if it shows no sign of an NVIDIA GPU at all.

    ``None`` is the only case in which another machine may be assumed. A machine without a usable
    GPU is returned with its reason; ``refuse_unusable`` turns it into an error.

    Raises:
        EnvironmentProblem: NVIDIA hardware or tools are here but show no GPU.
    """
    probe = probe or ThisComputer()
    readings = live_readings(probe, nvml)
    if any(reading.gpus for reading in readings):
        return machine_of(readings, catalogue, origin="detected")
    failures = [failure for reading in readings for failure in reading.failures]
    if failures:
        worst = min(
            failures, key=lambda item: (item.code == "smi-failed", "no output" in item.line)
        )
        raise EnvironmentProblem(worst.line, where="nvidia-smi", hint=worst.reason)
    if devices := nvidia_devices(probe):
        raise EnvironmentProblem(
            f"found an NVIDIA device ({devices[0]}) but neither nvidia-smi nor NVML",
            where="hardware",
            hint="install the NVIDIA driver; for a container pass the GPUs with --gpus all",
        )
    return None


def detect(
    catalogue: Catalogue, probe: Probe | None = None, nvml: NvmlReader = read_nvml
) -> Machine:
    """Return this machine.

    Raises:
        EnvironmentProblem: there is no NVIDIA GPU, or driver or tools fail; the tool's line is
            in the message.
    """
    machine = find_machine(catalogue, probe, nvml)
    if machine is None:
        raise EnvironmentProblem(
            "no NVIDIA GPU: no nvidia-smi, no NVML and no NVIDIA device",
            where="this computer",
            hint="describe a machine with --gpu and --gpus, or read saved output with --from",
        )
    return machine


def refuse_unusable(machine: Machine, *, live: bool) -> None:
    """Raise if the machine cannot serve: a problem of this box, or no plan for a described one.

    Raises:
        EnvironmentProblem: it was detected here just now (``live``).
        NoPlan: it comes from a file or a statement.
    """
    if machine.usable is not False:
        return
    what = f"this machine cannot serve: {machine.usable_reason}"
    if live:
        raise EnvironmentProblem(what, where="machine")
    raise NoPlan(what, where="machine")
