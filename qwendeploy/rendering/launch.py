"""What a plan starts, before any format: argument vector, environment, devices, places, health.

Everything about the engine comes from the plan: its flags and variables in their order. Added
here is only what belongs to the place where it runs: address and port, model argument, offline
mode for a checkpoint on disk, and the number of engine replicas. Values that cannot be true (a
plan edited by hand) are refused here, by key, for every kind alike.
"""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from qwendeploy.documents import Plan
from qwendeploy.engines.interface import Flags
from qwendeploy.engines.registry import ENGINES
from qwendeploy.engines.vllm.engine import speculation
from qwendeploy.errors import DataError
from qwendeploy.figures import Figure
from qwendeploy.image_names import image_name
from qwendeploy.rendering.devices import gpu_indices, gpu_names, shows_all_gpus
from qwendeploy.rendering.engine_settings import (
    check_text,
    flags_of,
    variables_of,
    with_place,
)

CONTAINER_PORT = 8000
"""Port inside the container; the plan's port is the published one."""

BOOT_WITHOUT_EVIDENCE_S = 900
"""Start period when the plan has no boot time: the longest that a published recipe for this
model uses (kelnei/vllm-qwen36 docker-compose.spark.yml, 2026-07)."""

DOWNLOAD_BYTES_PER_S = 25e6
"""Line assumed for the first download of the weights (200 Mbit/s); only the start period
depends on it, and a healthy server ends that period at once."""

LONGEST_BOOT_S = 86400.0
"""A day, the longest that ``up --timeout`` takes too."""

LARGEST_DOWNLOAD_GIB = 1024.0
"""Twenty times the BF16 checkpoint."""

HUB_TOKEN = "HF_TOKEN"

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?\Z")
_SNAPSHOT = re.compile(r"(.*/models--[^/]+)/snapshots/[^/]+")
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf\Z")
_PLACED = {"--host", "--port", "--model", "--hf-repo"}


@dataclass(frozen=True)
class Launch:
    """One engine start: what every artefact kind and ``up`` share."""

    name: str
    """Of container, unit and service."""
    plan_id: str
    engine: Literal["vllm", "llama.cpp"]
    image: str | None
    pinned: bool
    """Whether ``image`` names a digest."""
    model: str
    flags: tuple[tuple[str, str | None], ...]
    env: tuple[tuple[str, str], ...]
    gpus: tuple[str, ...]
    """UUIDs where the order can change and they are known, else indices."""
    gpu_indices: tuple[int, ...]
    sees_all: bool
    """Whether a container is given all GPUs of the host (WSL2) and CUDA is told which serve."""
    hides_some: bool
    """Whether there are others than those that serve in such a container."""
    tp: int
    replicas: int
    listen: str
    port: int
    local_paths: tuple[str, ...]
    """Folders and files that hold the checkpoints on disk, mounted read-only at the same path."""
    start_period_s: int
    start_period_basis: str
    required_secrets: tuple[str, ...]
    read_only: bool
    """Root file system; off for a third-party image, of which nobody knows where it writes."""

    @property
    def is_public(self) -> bool:
        """Whether anything but this host reaches the port."""
        return not ipaddress.ip_address(self.listen).is_loopback

    @property
    def publish(self) -> str:
        """Docker's ``address:port:port``."""
        return f"{self.bracketed_listen}:{self.port}:{CONTAINER_PORT}"

    @property
    def bracketed_listen(self) -> str:
        """The address as URLs and port mappings write it."""
        return f"[{self.listen}]" if ":" in self.listen else self.listen

    @property
    def base_url(self) -> str:
        """Where a client on this host reaches the server."""
        address = ipaddress.ip_address(self.listen)
        if address.is_unspecified:
            return f"http://{'[::1]' if address.version == 6 else '127.0.0.1'}:{self.port}"
        return f"http://{self.bracketed_listen}:{self.port}"

    @property
    def api_key_variable(self) -> str:
        """Variable that holds the server's key."""
        return ENGINES[self.engine].api_key_variable

    @property
    def share_ipc(self) -> bool:
        """Whether several workers exchange tensors through shared memory."""
        return self.tp > 1 or self.replicas > 1

    def arguments(self, host: str, port: int) -> tuple[str, ...]:
        """Return the arguments after ``vllm serve`` (or ``llama-server``)."""
        engine = ENGINES[self.engine]
        head = engine.model_words(self.model, is_path=_is_path(self.model))
        rest = [word for name, value in self.flags for word in _words(name, value)]
        parallel = engine.replica_words(self.replicas)
        return (*head, "--host", host, "--port", str(port), *rest, *parallel)

    def replica(self, index: int) -> Launch:
        """Return the launch of one of several independent servers."""
        first = index * self.tp
        return replace(
            self,
            replicas=1,
            gpus=self.gpus[first : first + self.tp],
            gpu_indices=self.gpu_indices[first : first + self.tp],
            hides_some=self.sees_all,
        )


def launch_of(plan: Plan, *, name: str = "qwendeploy", writable: bool = False) -> Launch:
    """Return what ``plan`` starts.

    Raises:
        DataError: a value of the plan cannot be true or must not stand in an artefact.
    """
    if not _NAME.match(name):
        raise DataError(
            f"{name!r} is not a name",
            key="--name",
            hint="lower-case letters, digits and hyphens, at most 40",
        )
    option = plan.option
    flags = flags_of(plan)
    image, pinned = _image(plan)
    named = (value for flag, value in flags if flag in ("--model", "--hf-repo") and value)
    model = next(named, option.checkpoint)
    check_text(model, "option.checkpoint")
    if not model:
        raise DataError("names no checkpoint", key="option.checkpoint")
    checkpoints = _checkpoints(model, flags)
    local = _local_paths(checkpoints)
    offline = all(_is_path(name) for name in checkpoints)
    flags = with_place(plan, tuple(pair for pair in flags if pair[0] not in _PLACED))
    indices = gpu_indices(plan)
    period, basis = _start_period(plan, local=offline)
    listen = _listen(plan)
    check_text(plan.plan_id, "plan_id")
    return Launch(
        name=name,
        plan_id=plan.plan_id,
        engine=option.engine,
        image=image,
        pinned=pinned,
        model=model,
        flags=flags,
        env=variables_of(plan, offline=offline),
        gpus=gpu_names(plan, indices),
        gpu_indices=indices,
        sees_all=shows_all_gpus(plan),
        hides_some=shows_all_gpus(plan) and len(plan.machine.gpus) > len(indices),
        tp=option.tp,
        replicas=option.replicas,
        listen=listen,
        port=plan.port,
        local_paths=local,
        start_period_s=period,
        start_period_basis=basis,
        required_secrets=_required_secrets(plan, listen),
        read_only=not (writable or option.fork),
    )


def _words(name: str, value: str | None) -> tuple[str, ...]:
    if value is None:
        return (name,)
    # argparse takes a separate word with a leading dash for the next option; quadlet drops an
    # empty word and writes a lone semicolon without quotes
    joined = value.startswith("-") or value in {"", ";"}
    return (f"{name}={value}",) if joined else (name, value)


def _image(plan: Plan) -> tuple[str | None, bool]:
    image = plan.option.image
    if image is None:
        return None, False
    name = image_name(image)
    if not name.is_reference:
        raise DataError(f"{image!r} is not an image reference", key="option.image")
    if name.digest is not None and not name.digest_is_whole:
        raise DataError(
            f"{image} cannot be pulled: {name.digest} is not a whole digest",
            key="option.image",
            hint="recommend with --image and a tag, or the full sha256 digest",
        )
    return image, name.digest is not None


def _listen(plan: Plan) -> str:
    listen = "127.0.0.1" if plan.listen == "localhost" else plan.listen
    if "%" in listen:
        raise DataError(
            f"{listen!r} names an interface, which Docker and podman do not take",
            key="listen",
            hint="write the address alone, one that is not link-local",
        )
    try:
        address = ipaddress.ip_address(listen)
    except ValueError:
        raise DataError(
            f"{plan.listen!r} is not an address",
            key="listen",
            hint="write 127.0.0.1, or the address of one interface, or 0.0.0.0 for all",
        ) from None
    if not 1 <= plan.port <= 65535:
        raise DataError(f"{plan.port} is not a port", key="port", hint="write 1 to 65535")
    return str(address)


def _is_path(model: str) -> bool:
    return model.startswith(("/", "./", "../", "~"))


def _checkpoints(model: str, flags: Flags) -> tuple[str, ...]:
    """Return what the server loads: target, and draft and tokenizer where they are named."""
    found = [model]
    for name, value in flags:
        draft = speculation(value).get("model") if name == "--speculative-config" else None
        if isinstance(draft, str):
            found.append(draft)
        if name in ("--tokenizer", "--hf-config-path") and value:
            found.append(value)
    return tuple(dict.fromkeys(found))


def _local_paths(checkpoints: tuple[str, ...]) -> tuple[str, ...]:
    """Return what must be mounted for those of ``checkpoints`` that lie on disk.

    A snapshot of the hub's cache is links into the folder of its repository, and the first file of
    a GGUF in parts needs the others: those folders are mounted.
    """
    found = tuple(name for name in checkpoints if _is_path(name))
    for path in found:
        if not path.startswith("/"):
            raise DataError(
                f"{path!r} depends on where the server starts",
                key="option.checkpoint",
                hint="write the absolute path of the checkpoint's directory",
            )
        if ":" in path or not path.isprintable():
            raise DataError(
                f"{path!r} cannot be mounted: it holds a colon or a control character",
                key="option.checkpoint",
                hint="rename the directory",
            )
    return tuple(dict.fromkeys(_mounted(path) for path in found))


def _mounted(path: str) -> str:
    if match := _SNAPSHOT.match(path):
        return match[1]
    return path.rpartition("/")[0] or "/" if _PART.search(path) else path


def _start_period(plan: Plan, *, local: bool) -> tuple[int, str]:
    """Return seconds until a silent server counts as failed, in whole minutes, and why."""
    _check_figure(plan.boot_first_s, "boot_first_s", "s", LONGEST_BOOT_S)
    _check_figure(plan.download_gib, "download_gib", "GiB", LARGEST_DOWNLOAD_GIB)
    if plan.boot_first_s is not None:
        boot = plan.boot_first_s.high
        basis = f"first boot {plan.boot_first_s.value:.0f} s, at most {boot:.0f} s"
    else:
        boot = float(BOOT_WITHOUT_EVIDENCE_S)
        basis = f"no boot time is known for this option; {boot:.0f} s as published recipes use"
    if plan.download_gib is not None and not local:
        size = plan.download_gib.high
        boot += size * 2**30 / DOWNLOAD_BYTES_PER_S
        basis += (
            f"; plus {size:.0f} GiB of weights at {DOWNLOAD_BYTES_PER_S * 8 / 1e6:.0f} Mbit/s once"
        )
    return math.ceil(boot / 60) * 60, basis


def _check_figure(figure: Figure | None, key: str, unit: str, most: float) -> None:
    """Refuse what no start takes and no checkpoint weighs; the band's end sets times and sizes."""
    if figure is not None and (figure.unit != unit or not 0 < figure.high <= most):
        raise DataError(
            f"{figure.high:g} {figure.unit} is not between 0 and {most:g} {unit}", key=f"{key}.high"
        )


def _required_secrets(plan: Plan, listen: str) -> tuple[str, ...]:
    needed = []
    if not ipaddress.ip_address(listen).is_loopback:
        needed.append(ENGINES[plan.option.engine].api_key_variable)
    if plan.gated_repositories:
        needed.append(HUB_TOKEN)
    return tuple(needed)
