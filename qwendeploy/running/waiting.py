"""Waiting for a started container until it is ready or has failed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qwendeploy.diagnosis import causes, consequences, first_error
from qwendeploy.documents import Cause, Plan
from qwendeploy.engines.vllm.boot_log import PHASES, BootLog
from qwendeploy.errors import ExitCode, QwendeployError
from qwendeploy.rendering.launch import CONTAINER_PORT, Launch
from qwendeploy.running import http
from qwendeploy.running.daemon import told_as_environment
from qwendeploy.running.gpu_load import GpuWatch

if TYPE_CHECKING:
    from qwendeploy.running.images import OnProgress

POLL_S = 0.3
SILENT_S = 60.0
"""Without a line of the log, that is told: a compilation takes as long, a hang longer."""
ASK_S = 1.0
"""Between two looks at container and health."""
KILLED = 137
"""Exit code of a process that SIGKILL ended."""
LAST_LINES = 15
"""Lines of the log shown with a failed start."""


@dataclass
class Boot:
    """One start as it was watched."""

    log: BootLog
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds after which each phase began."""
    heard: float = 0.0
    """Seconds after which the last line of the log came."""


class FailedStart(QwendeployError):
    """The engine ended or hung before it served: the plan does not run here."""

    exit_code = ExitCode.REFUTED

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        causes: tuple[Cause, ...] = (),
        lines: tuple[str, ...] = (),
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.causes = causes
        self.lines = lines


def wait_until_serving(
    container: Any, launch: Launch, plan: Plan, told: OnProgress, *, timeout_s: float | None
) -> Boot:
    """Return once ``/health`` answers 200 on the published address.

    Raises:
        FailedStart: the engine ended, or did not serve in time.
        EnvironmentProblem: the daemon went away.
    """
    limit = timeout_s if timeout_s is not None else float(launch.start_period_s)
    boot = Boot(BootLog())
    tail = Tail(container)
    cards = GpuWatch(launch.gpus)
    begin = asked = time.monotonic()
    while True:
        with told_as_environment(f"container {container.name}"):
            for line in tail.read():
                boot.heard = time.monotonic() - begin
                if boot.log.read(line):
                    boot.phases[boot.log.phase] = boot.heard
            container.reload()
        boot.seconds = time.monotonic() - begin
        cards.sample()
        told(_progress(boot, plan), _share(boot, plan))
        if container.status not in {"created", "running", "restarting"}:
            raise _ended(container, boot)
        if time.monotonic() - asked >= ASK_S:
            asked = time.monotonic()
            if http.get(f"{launch.base_url}/health").status == 200:
                boot.log = start_of_log(container, within_s=limit)
                return boot
            if boot.seconds > limit:
                raise _hung(container, boot, cards.metrics(), limit)
        time.sleep(POLL_S)


def start_of_log(container: Any, *, within_s: float) -> BootLog:
    """Return the log of the container's present start: its first ``within_s`` seconds."""
    log = BootLog()
    started = _epoch(container.attrs["State"]["StartedAt"])
    if started <= 0:
        # made, but not started yet: Docker writes the year 1
        return log
    with told_as_environment(f"container {container.name}"):
        text = container.logs(since=started, until=started + within_s + POLL_S)
    return log.read_all(text.decode("utf-8", "replace").splitlines())


def _epoch(text: str) -> float:
    """Return Docker's RFC 3339 time, which has nanoseconds, as seconds; the API takes both."""
    from datetime import datetime

    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = datetime.fromisoformat(f"{whole}+00:00").timestamp()
    return seconds + float(f"0.{fraction[:6] or 0}")


class Tail:
    """The lines of a container that came since the last look.

    Asked for anew each time rather than followed: a stream of Docker's client cannot be left
    without a socket that stays open.
    """

    def __init__(self, container: Any) -> None:
        self._container = container
        self._last = ""

    def read(self) -> list[str]:
        """Return the new lines."""
        since = _epoch(self._last) if self._last else None
        text = self._container.logs(timestamps=True, **({"since": since} if since else {}))
        found = []
        for line in text.decode("utf-8", "replace").splitlines():
            stamp, _, rest = line.partition(" ")
            # Docker's times are of one form and length: text order is time order
            if stamp > self._last:
                self._last = stamp
                found.append(rest)
        return found


def lines_of(chunks: Iterator[bytes]) -> Iterator[str]:
    """Yield the lines of a stream of pieces."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode("utf-8", "replace").rstrip("\r") for line in whole)
    if rest:
        yield rest.decode("utf-8", "replace")


def _expected(boot: Boot, plan: Plan) -> tuple[float | None, str]:
    """Return the start time that the plan expects, and whether it is a first or a warm start."""
    if boot.log.warm and plan.boot_warm_s is not None:
        return plan.boot_warm_s.value, "warm boot"
    if plan.boot_first_s is not None:
        return plan.boot_first_s.value, "first boot"
    return None, ""


def _progress(boot: Boot, plan: Plan) -> str:
    text = PHASES[boot.log.phase]
    if boot.log.phase == "weights" and boot.log.shards_percent is not None:
        text += f" {boot.log.shards_percent} %"
    expected, kind = _expected(boot, plan)
    text += f": {boot.seconds:.0f} s"
    if expected is not None:
        text += f" of about {expected:.0f} s ({kind})"
    silent = boot.seconds - boot.heard
    return text if silent < SILENT_S else f"{text}; no log output for {silent:.0f} s"


def _share(boot: Boot, plan: Plan) -> float | None:
    expected, _ = _expected(boot, plan)
    return min(0.99, boot.seconds / expected) if expected else None


def _ended(container: Any, boot: Boot) -> FailedStart:
    with told_as_environment(f"container {container.name}"):
        text = container.logs(tail=4000).decode("utf-8", "replace")
    log = BootLog().read_all(text.splitlines())
    state = container.attrs["State"]
    how = f"exit code {state['ExitCode']}"
    if state.get("OOMKilled"):
        how += ", killed because the host ran out of memory"
    if state.get("Error"):
        how += f": {state['Error']}"
    if state["ExitCode"] == KILLED and not state.get("OOMKilled"):
        how += ", killed by SIGKILL: check `dmesg` for out of memory"
    found = causes(log.lines)
    return FailedStart(
        f"the engine exited while {PHASES[log.phase]}, after {boot.seconds:.0f} s ({how})",
        where=f"container {container.name}",
        hint=_change(log, found) or "see the last log lines above",
        causes=found,
        lines=tuple(list(log.lines)[-LAST_LINES:]),
    )


def _change(log: BootLog, found: tuple[Cause, ...]) -> str:
    """Return the fix, or the first error of the log if no signature names the root cause."""
    if found and found[0].id not in consequences():
        return found[0].fix
    error = first_error(log.lines)
    if error is not None:
        return f"first error in the log: {error}"
    return found[0].fix if found else ""


def _hung(container: Any, boot: Boot, cards: dict[str, float], limit: float) -> FailedStart:
    found = causes(boot.log.lines, {"healthy": 0.0, **cards})
    health = (container.attrs["State"].get("Health") or {}).get("Status", "unknown")
    published = container.attrs["NetworkSettings"]["Ports"].get(f"{CONTAINER_PORT}/tcp")
    if boot.log.phase == "serving" and not published:
        hint = "the container's network does not publish ports: start with another --network"
    else:
        hint = (
            _change(boot.log, found)
            or "--timeout SECONDS waits longer; see the last log lines above"
        )
    return FailedStart(
        f"the engine is not ready after {limit:.0f} s; it is {PHASES[boot.log.phase]}, without log"
        f" output for {boot.seconds - boot.heard:.0f} s (container health: {health})",
        where=f"container {container.name}",
        hint=hint,
        causes=found,
        lines=tuple(list(boot.log.lines)[-LAST_LINES:]),
    )
