"""``doctor --bundle``: an archive for bug reports without personal data or secrets.

Only listed outputs go in, each redacted, and the archive itself carries neither owner nor time.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile

from qwendeploy import __version__
from qwendeploy.hardware.checks.doctor import describe_report
from qwendeploy.hardware.checks.findings import DoctorReport
from qwendeploy.hardware.checks.redact import identity_of, redact
from qwendeploy.hardware.live.probe import Probe, ThisComputer

FOLDER = "qwendeploy-doctor"
_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("nvidia-smi",),
    ("nvidia-smi", "-L"),
    ("nvidia-smi", "-q"),
    ("nvidia-smi", "topo", "-m"),
    ("nvidia-smi", "topo", "-p2p", "r"),
    ("nvidia-smi", "nvlink", "-s"),
    ("nvidia-smi", "--version"),
    ("docker", "version"),
    ("nvidia-ctk", "--version"),
    ("uname", "-srmo"),
)
_FILES = (
    "/proc/driver/nvidia/version",
    "/proc/cmdline",
    "/proc/meminfo",
    "/etc/os-release",
    "/etc/docker/daemon.json",
)
_BOOT_WORD = re.compile(r"iommu|^pci|nvidia|nouveau|hugepage|numa", re.IGNORECASE)
"""Boot options that matter to GPUs; the others may name disks, hosts and services."""

_DAEMON_KEYS = (
    *("runtimes", "default-runtime", "features", "exec-opts", "default-shm-size"),
    *("storage-driver", "log-driver", "live-restore", "default-ulimits", "cgroup-parent"),
)
"""Settings of the Docker daemon that matter to GPUs; others name registries, proxies and hosts."""

MAX_PART = 2**20
"""Longest part of the bundle in characters."""


def bundle_parts(
    report: DoctorReport, probe: Probe | None = None, *, live: bool = True
) -> dict[str, str]:
    """Return the redacted parts of the bundle by file name; ``live`` adds this computer's."""
    probe = probe or ThisComputer()
    parts = {
        "findings.txt": describe_report(report) + "\n",
        "findings.json": report.model_dump_json(indent=2, exclude={"machine"}) + "\n",
        "tool.json": json.dumps({"name": "qwendeploy", "version": __version__}) + "\n",
    }
    if report.machine is not None:
        parts["machine.json"] = report.machine.model_dump_json(indent=2) + "\n"
    for command in _COMMANDS if live else ():
        ran = probe.run(*command)
        if ran is not None:
            parts["-".join(command).replace("--", "-") + ".txt"] = ran.text
    for path in _FILES if live else ():
        if (text := probe.read(path)) is not None:
            if path == "/proc/cmdline":
                text = " ".join(word for word in text.split() if _BOOT_WORD.search(word)) + "\n"
            elif path == "/etc/docker/daemon.json":
                text = _daemon_settings(text)
            parts[path.strip("/").replace("/", "_") + ".txt"] = text
    identity = identity_of(probe)
    return {name: redact(text[:MAX_PART], identity) for name, text in parts.items()}


def _daemon_settings(text: str) -> str:
    """Return the settings that matter to GPUs, and the names of the others."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return "not valid JSON\n"
    if not isinstance(content, dict):
        return "not a JSON object\n"
    kept = {key: content[key] for key in _DAEMON_KEYS if key in content}
    return json.dumps({**kept, "left out": sorted(set(content) - set(kept))}, indent=2) + "\n"


def bundle_bytes(report: DoctorReport, probe: Probe | None = None, *, live: bool = True) -> bytes:
    """Return the bundle as a gzipped tar archive, equal for equal content."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in sorted(bundle_parts(report, probe, live=live).items()):
            data = text.encode("utf-8", errors="replace")
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o644, 0
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), mtime=0)
