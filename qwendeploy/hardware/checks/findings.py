"""Findings of ``doctor``: problems, notes and passed checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from qwendeploy.documents import Machine, Model
from qwendeploy.hardware.live.probe import Probe
from qwendeploy.hardware.reading import ProcessReading

Severity = Literal["error", "warning", "info", "ok"]
ORDER: tuple[Severity, ...] = ("error", "warning", "info", "ok")


class DoctorFinding(Model):
    """One observation: what it is, the evidence that was read, and what to do."""

    id: str
    severity: Severity
    text: str
    evidence: str
    """The line or value that was read."""
    fix: str = ""


class DoctorReport(Model):
    """All findings, the gravest first."""

    findings: tuple[DoctorFinding, ...]
    machine: Machine | None = None

    @property
    def errors(self) -> int:
        """Findings that keep a server from starting."""
        return sum(item.severity == "error" for item in self.findings)


@dataclass(frozen=True, slots=True)
class Needs:
    """What is about to be run, as far as it is known; ``None`` skips what depends on it."""

    image: str | None = None
    engine: str | None = None
    image_cuda: str | None = None
    image_min_driver: int | None = None
    image_capabilities: tuple[str, ...] = ()
    newest_image: str | None = None
    newest_min_driver: int | None = None
    """Of the newest upstream image, where no image is named."""
    download_gib: float | None = None
    port: int = 8000
    listen: str = "127.0.0.1"
    gated: tuple[str, ...] = ()
    perhaps_gated: tuple[str, ...] = ()
    """Repositories that some plans need, where no plan is named."""
    gpu_indices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DockerState:
    """What the Docker daemon says about itself."""

    reachable: bool
    problem: str = ""
    version: str = ""
    runtimes: tuple[str, ...] = ()
    root_dir: str = "/var/lib/docker"
    cdi_devices: bool = False
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Examined:
    """Everything a check may look at; ``docker`` and ``probe`` are absent for saved output."""

    machine: Machine
    needs: Needs
    processes: tuple[ProcessReading, ...] = ()
    probe: Probe | None = None
    docker: DockerState | None = None

    @property
    def serving(self) -> tuple[int, ...]:
        """GPUs that will serve, as far as known: of unknown cards all that answer."""
        machine = self.machine
        chosen = self.needs.gpu_indices or machine.chosen_gpu_indices or machine.usable_gpu_indices
        if chosen or machine.usable is False:
            return chosen
        return tuple(g.index for g in machine.gpus if g.health == "ok" and g.index is not None)


def ordered(findings: Sequence[DoctorFinding]) -> tuple[DoctorFinding, ...]:
    """Return the findings, the gravest first, each kind in the order found."""
    return tuple(sorted(findings, key=lambda item: ORDER.index(item.severity)))
