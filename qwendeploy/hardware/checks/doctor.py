"""``doctor``: problems of this environment, found before anything is pulled or started."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from qwendeploy.errors import EnvironmentProblem, NoPlan
from qwendeploy.hardware.catalogue import Catalogue
from qwendeploy.hardware.checks.findings import (
    DockerState,
    DoctorFinding,
    DoctorReport,
    Examined,
    Needs,
    ordered,
)
from qwendeploy.hardware.checks.gpu import GPU_CHECKS
from qwendeploy.hardware.checks.host import HOST_CHECKS, docker_state
from qwendeploy.hardware.live.machine import NvmlReader, live_readings, nvidia_devices
from qwendeploy.hardware.live.nvml import read_nvml
from qwendeploy.hardware.live.probe import Probe, ThisComputer
from qwendeploy.hardware.merge import machine_of
from qwendeploy.hardware.reading import ProcessReading, Reading
from qwendeploy.hardware.texts.sniff import read_paths


def _processes(readings: Iterable[Reading]) -> tuple[ProcessReading, ...]:
    """Return the programs that the texts show, each once."""
    found = {(item.gpu, item.pid): item for reading in readings for item in reading.processes}
    return tuple(found.values())


def examine(examined: Examined) -> DoctorReport:
    """Return the findings of every check that the examined's facts allow."""
    checks: list[Callable[[Examined], Iterable[DoctorFinding]]] = [*GPU_CHECKS]
    if examined.probe is not None:
        checks += HOST_CHECKS
    findings = [finding for check in checks for finding in check(examined)]
    return DoctorReport(findings=ordered(findings), machine=examined.machine)


def doctor_files(
    paths: Iterable[str | Path], needs: Needs, *, catalogue: Catalogue
) -> DoctorReport:
    """Return the findings that saved output allows; this computer is not examined.

    Raises:
        UserError: nothing is recognised in the paths.
    """
    readings = read_paths(paths)
    return examine(Examined(machine_of(readings, catalogue), needs, _processes(readings)))


def doctor_here(
    needs: Needs,
    *,
    catalogue: Catalogue,
    probe: Probe | None = None,
    nvml: NvmlReader = read_nvml,
    docker: Callable[[], DockerState] = docker_state,
) -> DoctorReport:
    """Return the findings of this computer; a missing GPU is a finding and not an error."""
    probe = probe or ThisComputer()
    readings = live_readings(probe, nvml)
    machine = machine_of(readings, catalogue, origin="detected")
    report = examine(Examined(machine, needs, _processes(readings), probe, docker()))
    if machine.gpus or any(reading.failures for reading in readings):
        return report
    devices = nvidia_devices(probe)
    absent = DoctorFinding(
        id="gpu-absent",
        severity="error",
        text="no NVIDIA GPU found",
        evidence=f"{devices[0]} but no nvidia-smi and no NVML"
        if devices
        else "no nvidia-smi, no NVML, no NVIDIA device",
        fix="install the NVIDIA driver"
        if devices
        else "run doctor on the GPU machine, or pass its saved output with --from",
    )
    return report.model_copy(update={"findings": ordered((absent, *report.findings))})


def refuse_errors(report: DoctorReport, *, live: bool) -> None:
    """Raise if a finding prevents a server from starting, naming the first.

    Raises:
        EnvironmentProblem: this computer was examined (``live``).
        NoPlan: saved output was.
    """
    first = next((item for item in report.findings if item.severity == "error"), None)
    if first is not None:
        what = f"{report.errors} error{'s' if report.errors > 1 else ''} will prevent a server"
        what += f" from starting, first: {first.text}"
        kind = EnvironmentProblem if live else NoPlan
        raise kind(what, where="doctor", hint=first.fix or None)


def describe_report(report: DoctorReport) -> str:
    """Return the findings as text, most severe first."""
    lines = []
    for item in report.findings:
        lines.append(f"{item.severity:<8}{item.text}  [{item.id}]")
        lines.append(f"        found: {item.evidence}")
        if item.fix:
            lines.append(f"        fix:   {item.fix}")
    counts = {
        word: sum(item.severity == word for item in report.findings)
        for word in ("error", "warning", "info", "ok")
    }
    lines.append(", ".join(f"{count} {word}" for word, count in counts.items()))
    return "\n".join(lines)
