"""``up``: a plan becomes a serving container, or everything is as it was before.

A new container starts under ``NAME-next`` and takes the name once it serves. If it needs the
port or GPUs of the present one, that one is stopped, but kept until then: when the new one fails
or the user interrupts, the new one is removed and the old one started again. After a kill that
leaves no time for this, both are there, labelled, and the next ``up`` goes on from there.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from qwendeploy.documents import Cause, Plan
from qwendeploy.errors import DataError, EnvironmentProblem, ExitCode, QwendeployError, UserError
from qwendeploy.hardware.live.docker_host import docker_host
from qwendeploy.rendering import container as places
from qwendeploy.rendering.launch import Launch, launch_of
from qwendeploy.running import evidence, found
from qwendeploy.running.alone import alone
from qwendeploy.running.container_spec import (
    create_arguments,
    description,
    differences,
    fingerprint,
    hub_directory,
)
from qwendeploy.running.daemon import connected, told_as_environment
from qwendeploy.running.images import Image, OnProgress, ensure_image
from qwendeploy.running.interrupts import interrupts_wait, terminate_as_interrupt
from qwendeploy.running.preflight import check_machine
from qwendeploy.running.readback import Check, ServerPages, compare, server_pages
from qwendeploy.running.secrets import read_secrets
from qwendeploy.running.settings import UpSettings
from qwendeploy.running.waiting import Boot, wait_until_serving

if TYPE_CHECKING:
    from docker import DockerClient


ONCE_IT_SERVED = {"Name": "unless-stopped"}
"""Restart policy of a container that has served: its configuration is no error, so it comes back
after every crash and with the daemon after a reboot. ``on-failure`` would do neither: Docker counts
restarts over the container's whole life, and an engine that a shutdown ends in order stays down."""

INTERRUPTED = (
    "interrupted: the previous container restarts after it has finished its requests"
    f" (at most {places.STOP_S} s); press Ctrl-C again to abort them"
)


@dataclass(frozen=True)
class UpReport:
    """What runs now and how it compares with the plan."""

    name: str
    container_id: str
    plan_id: str
    did: str
    """``started``, ``replaced``, ``was running`` or ``was started again``."""
    base_url: str
    image: Image
    boot_s: float | None
    checks: tuple[Check, ...]
    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """Done if everything applied is as asked, else refuted."""
        agree = all(check.agrees for check in self.checks)
        return ExitCode.DONE if agree else ExitCode.REFUTED


def up(plan: Plan, settings: UpSettings, told: OnProgress) -> UpReport:
    """Start the plan, wait until it serves, and compare what is applied with what was asked.

    Raises:
        UserError: the plan is impossible, a foreign container has the name, or the user said no.
        EnvironmentProblem: Docker, image, port or GPUs are not to be had.
        FailedStart: the engine ended or hung; carries causes and the last lines of its log.
    """
    launch = launch_of(plan, name=settings.name, writable=settings.writable)
    if launch.engine == "llama.cpp" and launch.replicas > 1:
        raise DataError(
            "llama-server runs one replica per process, and `up` starts one",
            key="option.replicas",
            hint="use generate -f compose, which starts several behind a router",
        )
    if launch.image is None:
        raise DataError(
            "the plan has no image",
            key="option.image",
            hint="recommend with --image, or generate a script for a virtual environment",
        )
    secrets = read_secrets(launch, settings.secrets_file)
    with (
        alone(docker_host(os.environ), settings.name),
        connected() as client,
        terminate_as_interrupt(),
    ):
        return _up(client, plan, launch, settings, secrets, told)


def _up(
    client: DockerClient,
    plan: Plan,
    launch: Launch,
    settings: UpSettings,
    secrets: Mapping[str, str],
    told: OnProgress,
) -> UpReport:
    present = found.find(client, settings.name)
    wanted = fingerprint(launch, network=settings.network)
    found.check_own_host(present.upcoming)
    current = present.current
    same = current is not None and found.launch_of(current) == wanted
    if current is not None and same and _runs(current):
        _discard(present.upcoming)
        return _again(client, plan, launch, current, settings, secrets, told)
    if current is not None and not same:
        _ask(settings, found.details_of(current), description(launch, network=settings.network))
    if settings.checks:
        occupied = any(_runs(one) for one in present.all)
        check_machine(plan, launch, occupied=occupied, secrets=secrets)
    image = ensure_image(client, launch.image or "", told)
    return _start(Swap(client, launch, image, present, wanted, same), plan, settings, secrets, told)


def _runs(container: Any) -> bool:
    return container.status in {"running", "restarting"}


def _again(
    client: DockerClient,
    plan: Plan,
    launch: Launch,
    current: Any,
    settings: UpSettings,
    secrets: Mapping[str, str],
    told: OnProgress,
) -> UpReport:
    """Report on a container that already runs this launch, waiting if it is still booting."""
    boot = wait_until_serving(current, launch, plan, told, timeout_s=settings.timeout_s)
    with told_as_environment(f"container {current.name}"):
        # an `up` that was killed in its last step has not come to this
        current.update(restart_policy=ONCE_IT_SERVED)
    image = ensure_image(client, launch.image or "", told)
    report = _report(plan, launch, current, image, boot, secrets, did="was running")
    return replace(report, boot_s=None)


def _ask(settings: UpSettings, before: dict[str, str], after: dict[str, str]) -> None:
    lines = differences(before, after) or ["other settings differ"]
    if settings.yes or (settings.confirm is not None and settings.confirm(lines)):
        return
    raise UserError(
        "another plan runs under this name: " + "; ".join(lines),
        where=f"container {settings.name}",
        hint="repeat with --yes to replace it, or with another --name",
    )


@dataclass
class Swap:
    """The change from the present container to the new one."""

    client: DockerClient
    launch: Launch
    image: Image
    present: found.Present
    fingerprint: str
    same: bool
    """Whether the present container, which does not run, is of the same launch."""
    attempt: str = field(default_factory=lambda: token_hex(8))
    """Label by which this process knows the container that it made."""
    stopped: bool = False
    """Whether the present container was stopped for the new one."""
    new: Any | None = None


def _start(
    swap: Swap, plan: Plan, settings: UpSettings, secrets: Mapping[str, str], told: OnProgress
) -> UpReport:
    try:
        if not _adopted(swap):
            _make_room(swap, told)
            _create(swap, settings, secrets)
        boot = wait_until_serving(swap.new, swap.launch, plan, told, timeout_s=settings.timeout_s)
    except BaseException as problem:
        with interrupts_wait():
            _undo(swap, problem, told)
        raise
    try:
        with interrupts_wait():
            did = _take_over(swap)
        report = _report(plan, swap.launch, swap.new, swap.image, boot, secrets, did=did)
    except BaseException as problem:
        problem.add_note(
            "the server runs, but renaming the container or checking its settings did not"
            " finish: run `qwendeploy up` again"
        )
        raise
    if did != "replaced":
        return report
    return replace(report, notes=(*report.notes, "the previous container was removed"))


def _adopted(swap: Swap) -> bool:
    """Go on with the container that an ``up`` which was killed had started, if it is the same."""
    upcoming, current = swap.present.upcoming, swap.present.current
    wanted = found.launch_of(upcoming) if upcoming is not None else None
    if wanted != swap.fingerprint or not _runs(upcoming):
        return False
    swap.new = upcoming
    swap.stopped = current is not None and not _runs(current)
    return True


def _make_room(swap: Swap, told: OnProgress) -> None:
    """Remove the rest of an earlier attempt and stop the present container if it is in the way."""
    _discard(swap.present.upcoming)
    current = swap.present.current
    if current is None or not _runs(current) or not _in_the_way(current, swap.launch):
        return
    told(f"stopping the previous container: at most {places.STOP_S} s for its requests", None)
    swap.stopped = True

    def hurry(times: int) -> None:
        told(INTERRUPTED, None)
        if times > 1:
            # in a thread: the client is in the middle of a call
            threading.Thread(target=_kill, args=(current,), daemon=True).start()

    # left in the middle, the daemon would go on, and end what was started again meanwhile
    with told_as_environment(f"container {current.name}"), interrupts_wait(hurry):
        current.stop(timeout=places.STOP_S)


def _kill(container: Any) -> None:
    import docker.errors

    with contextlib.suppress(docker.errors.APIError):
        container.kill()


def _in_the_way(current: Any, launch: Launch) -> bool:
    """Whether the present container holds the port or a GPU that the new one needs."""
    details = found.details_of(current)
    gpus = set(details.get("gpus", "").split(","))
    port = details.get("address", "").rsplit(":", 2)[-2:-1]
    if not details:
        return True
    return bool(gpus & set(launch.gpus)) or port == [str(launch.port)]


def _create(swap: Swap, settings: UpSettings, secrets: Mapping[str, str]) -> None:
    hub = hub_directory()
    try:
        hub.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise EnvironmentProblem(
            f"cannot create the cache directory of the weights: {problem.strerror}",
            where=str(hub),
            hint="set HF_HOME to a writable directory with enough space for the weights",
        ) from None
    arguments = create_arguments(swap.launch, secrets=secrets, network=settings.network, hub=hub)
    with told_as_environment(f"container {settings.name}"):
        arguments["labels"] |= {
            found.ATTEMPT_LABEL: swap.attempt,
            found.BY_LABEL: found.maker(),
        }
        # left in the middle, the daemon would make it all the same, after it was looked for
        with interrupts_wait():
            swap.new = swap.client.containers.create(
                swap.image.id, name=settings.name + found.NEXT, **arguments
            )
        swap.new.start()


def _take_over(swap: Swap) -> str:
    """Give the name to the new container and let it restart after a crash."""
    current, new = swap.present.current, swap.new
    assert new is not None
    with told_as_environment(f"container {swap.launch.name}"):
        if current is not None:
            current.remove(force=True)
        new.rename(swap.launch.name)
        new.update(restart_policy=ONCE_IT_SERVED)
        new.reload()
    if current is None:
        return "started"
    return "was started again" if swap.same else "replaced"


def _undo(swap: Swap, problem: BaseException, told: OnProgress) -> None:
    """Remove the new container and restart the previous one; add a note if that fails."""
    current = swap.present.current
    try:
        if swap.new is None:
            # made, but the answer did not come; one that somebody else is starting stays
            there = found.find(swap.client, swap.launch.name).upcoming
            if there is not None and found.attempt_of(there) == swap.attempt:
                swap.new = there
        _discard(swap.new)
        if swap.stopped and current is not None:
            told("restarting the previous container", None)
            with told_as_environment(f"container {current.name}"):
                current.start()
    except QwendeployError as second:
        left = f"{swap.launch.name}{found.NEXT}"
        problem.add_note(f"{second.what}: {left} may still exist; `qwendeploy down` removes it")
        return
    state = "the new container was removed" if swap.new is not None else "nothing was started"
    if swap.stopped:
        state += "; the previous one is running again"
    problem.add_note(state)


def _discard(container: Any | None) -> None:
    import docker.errors

    if container is None:
        return
    with told_as_environment(f"container {container.name}"):
        try:
            container.remove(force=True)
        except docker.errors.NotFound:
            return


def _report(
    plan: Plan,
    launch: Launch,
    container: Any,
    image: Image,
    boot: Boot,
    secrets: Mapping[str, str],
    *,
    did: str,
) -> UpReport:
    from qwendeploy.diagnosis import causes

    with told_as_environment(f"container {container.name}"):
        container.reload()
    pages: ServerPages = server_pages(launch, api_key=secrets.get(launch.api_key_variable))
    checks = compare(plan, launch, image, container.attrs, boot.log, pages)
    notes = []
    if image.digest is not None and not launch.pinned:
        notes.append(f"pinned: {image.reference}")
    elif image.digest is None:
        notes.append(f"the image has no registry digest; its id is {image.id}")
    stored = evidence.store(plan, boot.log, pages.blocks, pages.boot_id)
    if stored is not None:
        notes.append(stored)
    return UpReport(
        name=launch.name,
        container_id=str(container.id),
        plan_id=plan.plan_id,
        did=did,
        base_url=launch.base_url,
        image=image,
        boot_s=boot.seconds or None,
        checks=checks,
        causes=causes(boot.log.lines),
        notes=tuple(notes),
    )
