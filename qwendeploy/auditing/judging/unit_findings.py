"""Mistakes in systemd units, quadlets and Dockerfiles: start timeouts, lost arguments."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from qwendeploy.auditing.judging.findings import Finding
from qwendeploy.auditing.reading.launch import ForeignLaunch, ManagedService
from qwendeploy.auditing.reading.text import Word
from qwendeploy.auditing.understanding.understand import Understood
from qwendeploy.tables.boot import boot_rows

_HIDDEN = {
    "PrivateDevices": ("the server cannot see the GPUs in /dev", "PrivateDevices=no"),
    "DevicePolicy": (
        "only listed devices are allowed, and no GPU is listed",
        "DeviceAllow=/dev/nvidia0 rw plus the control devices, or DevicePolicy=auto",
    ),
    "ProtectHome": ("home directories appear empty to the server", "ProtectHome=read-only"),
}


def unit_findings(understood: Understood) -> Iterator[Finding]:
    """Yield mistakes in the unit or quadlet of a server (systemd.service, systemd.exec)."""
    launch = understood.launch
    yield from _lost_words(launch)
    service = launch.service
    if service is None:
        return
    yield from _never_ready(launch, service)
    for word in service.hides:
        text, fix = _HIDDEN[word.text]
        name = "unit-hides-home" if word.text == "ProtectHome" else "unit-hides-devices"
        yield _stops(name, word.text, word, text, fix)
    if service.shell:
        told = " ".join(word.text for word in service.shell[:3])
        yield _stops(
            "unit-shell-syntax",
            told,
            service.shell[0],
            f"systemd does not run commands in a shell: {told} is passed to the program as an "
            "argument, or treated as the program",
            "use ExecStart=/bin/bash -c '…', Environment=, or StandardOutput=append:FILE",
        )
    for word in service.paths:
        home = word.text.startswith("~")
        yield _stops(
            "unit-path",
            word.text,
            word,
            "systemd does not expand ~"
            if home
            else "systemd needs an absolute path or a bare name for the program",
            "use %h in a user unit, or the absolute path" if home else "use the absolute path",
        )
    simple = service.kind is None or service.kind.text in ("simple", "exec")
    if service.detached and simple and (service.restarts or service.stops is not None):
        yield _stops(
            "unit-detached-container",
            "docker run -d",
            Word("-d", launch.place),
            "docker run -d returns immediately and systemd considers the unit stopped: "
            + (
                "ExecStop stops the container that just started"
                if service.stops is not None
                else "Restart= starts it again and again"
            ),
            "remove -d, so that the unit runs as long as the container",
        )


def _lost_words(launch: ForeignLaunch) -> Iterator[Finding]:
    """Yield arguments that an image's shell-form entry point drops or does not expand."""
    if launch.dropped:
        told = " ".join(word.text for word in launch.dropped[:3])
        yield Finding(
            "command-dropped",
            "error",
            f"CMD {told}",
            launch.dropped[0].place,
            "a shell-form ENTRYPOINT runs as /bin/sh -c and ignores CMD and the arguments of "
            "docker run",
            'use the exec form: ENTRYPOINT ["program", "argument"]',
            "degraded",
        )
    for word in launch.literal:
        yield Finding(
            "variable-not-expanded",
            "error",
            word.text,
            word.place,
            f"the exec form does not run a shell: the server receives {word.text!r} unexpanded",
            "write the value itself, or use the shell form with exec",
            "fails_at_start",
        )


def _stops(name: str, about: str, word: Word, text: str, fix: str) -> Finding:
    return Finding(name, "error", about, word.place, text, fix, "fails_at_start")


def _never_ready(launch: ForeignLaunch, service: ManagedService) -> Iterator[Finding]:
    kind = service.kind
    if kind is None:
        return
    if kind.text == "healthy":
        yield from _gives_up(service, kind)
        return
    outside = launch.runtime == "podman"
    waits = {
        "notify": "for a notification that the server never sends",
        "notify-reload": "for a notification that the server never sends",
        "forking": "for the process to fork and exit, which it does not do",
    }.get(kind.text)
    if waits is None or outside or (kind.text == "forking" and not service.direct):
        return
    if kind.text == "forking" and service.detached:
        return
    limit = f"it kills the server after {service.patience_s:.0f} s"
    forever = service.patience_s == float("inf")
    yield Finding(
        "unit-never-ready",
        "warning" if forever else "error",
        f"Type={kind.text}",
        kind.place,
        f"systemd waits {waits}; " + ("dependent units never start" if forever else limit),
        "Type=exec, or remove the setting",
        "degraded" if forever else "fails_at_start",
    )


def _gives_up(service: ManagedService, kind: Word) -> Iterator[Finding]:
    starts = [row.seconds for row in boot_rows() if row.loader != "dummy" and row.start != "warm"]
    if not starts or service.patience_s >= median(starts):
        return
    sure = service.patience_s < min(starts)
    yield Finding(
        "unit-never-ready",
        "error" if sure else "warning",
        "Notify=healthy",
        kind.place,
        f"the start fails after {service.patience_s:.0f} s without a healthy response; "
        f"{len(starts)} measured starts took {min(starts):.0f} to {max(starts):.0f} s",
        "set TimeoutStartSec=900 under [Service]",
        "fails_at_start" if sure else None,
    )
