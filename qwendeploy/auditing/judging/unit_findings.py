"""What service managers and images make of a server: starts given up, words that are lost."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from qwendeploy.auditing.judging.findings import Finding
from qwendeploy.auditing.reading.launch import Launch, Service
from qwendeploy.auditing.reading.text import Word
from qwendeploy.auditing.understanding.understand import Understood
from qwendeploy.tables.boot import boot_rows

_HIDDEN = {
    "PrivateDevices": ("the server gets a /dev without the cards", "PrivateDevices=no"),
    "DevicePolicy": (
        "only the devices that are named are allowed, and no card is",
        "DeviceAllow=/dev/nvidia0 rw with the control devices, or DevicePolicy=auto",
    ),
    "ProtectHome": ("the paths below the home are empty for the server", "ProtectHome=read-only"),
}


def unit_findings(understood: Understood) -> Iterator[Finding]:
    """Yield faults of the unit or quadlet around a server (systemd.service, systemd.exec)."""
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
            f"systemd starts programs without a shell: {told} reaches the program as an argument, "
            "or is looked for as a program",
            "ExecStart=/bin/bash -c '…', Environment=, or StandardOutput=append:FILE",
        )
    for word in service.paths:
        home = word.text.startswith("~")
        yield _stops(
            "unit-path",
            word.text,
            word,
            "~ is a shell's: systemd hands it on as it stands"
            if home
            else "systemd takes an absolute path or a bare name for the program",
            "%h in a user's unit, or the whole path" if home else "the whole path",
        )
    simple = service.kind is None or service.kind.text in ("simple", "exec")
    if service.detached and simple and (service.restarts or service.stops is not None):
        yield _stops(
            "unit-detached-container",
            "docker run -d",
            Word("-d", launch.place),
            "the client returns at once and the unit counts as ended: "
            + (
                "ExecStop stops the container that has just started"
                if service.stops is not None
                else "Restart starts it over and over"
            ),
            "leave out -d, so that the unit lives as long as the container",
        )


def _lost_words(launch: Launch) -> Iterator[Finding]:
    """Yield what an image's forms of command and entry point do to the words."""
    if launch.dropped:
        told = " ".join(word.text for word in launch.dropped[:3])
        yield Finding(
            "command-dropped",
            "error",
            f"CMD {told}",
            launch.dropped[0].place,
            "an entry point in shell form is run as /bin/sh -c: neither CMD nor what follows the "
            "image in docker run reaches the server",
            'ENTRYPOINT ["program", "argument"] as a JSON array',
            "degraded",
        )
    for word in launch.literal:
        yield Finding(
            "variable-not-expanded",
            "error",
            word.text,
            word.place,
            f"no shell runs a JSON array: the server is given {word.text!r} as it stands",
            "the value itself, or the shell form with exec",
            "fails_at_start",
        )


def _stops(name: str, about: str, word: Word, text: str, fix: str) -> Finding:
    return Finding(name, "error", about, word.place, text, fix, "fails_at_start")


def _never_ready(launch: Launch, service: Service) -> Iterator[Finding]:
    kind = service.kind
    if kind is None:
        return
    if kind.text == "healthy":
        yield from _gives_up(service, kind)
        return
    outside = launch.runtime == "podman"
    waits = {
        "notify": "for a notice that the server never sends",
        "notify-reload": "for a notice that the server never sends",
        "forking": "for the started process to leave a child and end, which it does not",
    }.get(kind.text)
    if waits is None or outside or (kind.text == "forking" and not service.direct):
        return
    if kind.text == "forking" and service.detached:
        return
    limit = f"after {service.patience_s:.0f} s it is killed"
    forever = service.patience_s == float("inf")
    yield Finding(
        "unit-never-ready",
        "warning" if forever else "error",
        f"Type={kind.text}",
        kind.place,
        f"systemd waits {waits}; " + ("what waits for the unit never starts" if forever else limit),
        "Type=exec, or leave it out",
        "degraded" if forever else "fails_at_start",
    )


def _gives_up(service: Service, kind: Word) -> Iterator[Finding]:
    starts = [row.seconds for row in boot_rows() if row.loader != "dummy" and row.start != "warm"]
    if not starts or service.patience_s >= median(starts):
        return
    sure = service.patience_s < min(starts)
    yield Finding(
        "unit-never-ready",
        "error" if sure else "warning",
        "Notify=healthy",
        kind.place,
        f"the start is given up after {service.patience_s:.0f} s without a healthy answer; "
        f"{len(starts)} measured starts took {min(starts):.0f} to {max(starts):.0f} s",
        "TimeoutStartSec=900 under [Service]",
        "fails_at_start" if sure else None,
    )
