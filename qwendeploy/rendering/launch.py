"""What a plan starts, before any format: argument vector, environment, devices, places, health.

Everything about the engine comes from the plan: its flags and variables in their order. Added
here is only what belongs to the place where it runs: address and port, model argument, offline
mode for a checkpoint on disk, and the number of engine replicas. Values that cannot be true (a
plan edited by hand) are refused here, by key, for every kind alike.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from qwendeploy.documents import Plan, Setting
from qwendeploy.errors import DataError
from qwendeploy.rendering.devices import gpu_indices, gpu_names, shows_all_gpus

CONTAINER_PORT = 8000
"""Port inside the container; the plan's port is the published one."""

BOOT_WITHOUT_EVIDENCE_S = 900
"""Start period when the plan has no boot time: the longest that a published recipe for this
model uses (kelnei/vllm-qwen36 docker-compose.spark.yml, 2026-07)."""

DOWNLOAD_BYTES_PER_S = 25e6
"""Line assumed for the first download of the weights (200 Mbit/s); only the start period
depends on it, and a healthy server ends that period at once."""

API_KEY = {"vllm": "VLLM_API_KEY", "llama.cpp": "LLAMA_API_KEY"}
"""Variable from which each engine reads the key it asks of clients."""

HUB_TOKEN = "HF_TOKEN"

_FLAG = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9._-]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SECRET = re.compile(r"(_API_KEY|_TOKEN|_SECRET|_PASSWORD|_SECRET_KEY|_ACCESS_KEY)\Z")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?\Z")
_REFERENCE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9._-]*(?::[0-9]+)?(?:/[a-z0-9][a-z0-9._-]*)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z0-9:]+))?\Z",
    re.ASCII,
)
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
    """Checkpoints on disk, mounted read-only under the same path."""
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
        return API_KEY[self.engine]

    @property
    def share_ipc(self) -> bool:
        """Whether several workers exchange tensors through shared memory."""
        return self.tp > 1 or self.replicas > 1

    def arguments(self, host: str, port: int) -> tuple[str, ...]:
        """Return the arguments after ``vllm serve`` (or ``llama-server``)."""
        head: tuple[str, ...]
        if self.engine == "llama.cpp":
            head = ("--model" if _is_path(self.model) else "--hf-repo", self.model)
        else:
            words = _words("--model", self.model)
            head = words if len(words) == 1 else words[1:]
        rest = [word for name, value in self.flags for word in _words(name, value)]
        parallel: tuple[str, ...] = ()
        if self.engine == "vllm" and self.replicas > 1:
            parallel = ("--data-parallel-size", str(self.replicas))
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
    flags = _flags(plan)
    image, pinned = _image(plan)
    named = (value for flag, value in flags if flag in ("--model", "--hf-repo") and value)
    model = next(named, option.checkpoint)
    _check_text(model, "option.checkpoint")
    if not model:
        raise DataError("names no checkpoint", key="option.checkpoint")
    local = _local_paths(model, flags)
    flags = _with_served_name(plan, tuple(pair for pair in flags if pair[0] not in _PLACED))
    indices = gpu_indices(plan)
    period, basis = _start_period(plan, local=_is_path(model))
    listen = _listen(plan)
    _check_text(plan.plan_id, "plan_id")
    return Launch(
        name=name,
        plan_id=plan.plan_id,
        engine=option.engine,
        image=image,
        pinned=pinned,
        model=model,
        flags=flags,
        env=_env(plan, offline=_is_path(model)),
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


def _flags(plan: Plan) -> tuple[tuple[str, str | None], ...]:
    """Return the plan's flags with dashes; the layout and the key are checked."""
    found: dict[str, str | None] = {}
    for position, setting in enumerate(plan.flags):
        key = f"flags.{position}"
        name = _flag_name(setting, key)
        if name in found or _opposite(name) in found:
            raise DataError(f"{name} is set twice", key=key, hint="keep one of them")
        if setting.value is not None:
            _check_text(setting.value, key)
        found[name] = setting.value
    _check_layout(plan, found)
    return tuple((name, value) for name, value in found.items() if name != "--data-parallel-size")


def _flag_name(setting: Setting, key: str) -> str:
    if not _FLAG.match(setting.name):
        raise DataError(f"{setting.name!r} is not a flag", key=key)
    name = setting.name if setting.name.startswith("-") else f"--{setting.name}"
    if name in {"--api-key", "--hf-token"} and setting.value:
        raise DataError(
            f"{name} would put the secret into artefact and process list",
            key=key,
            hint="remove it; the key belongs in secrets.env",
        )
    if name == "--trust-remote-code":
        raise DataError(
            "--trust-remote-code runs code that comes with the checkpoint",
            key=key,
            hint="remove it: no engine here needs it for Qwen3.6-27B",
        )
    return name


def _opposite(name: str) -> str:
    return "--" + name[5:] if name.startswith("--no-") else "--no-" + name.lstrip("-")


def _check_layout(plan: Plan, flags: dict[str, str | None]) -> None:
    """Refuse flags that contradict the option: what was predicted would not be what runs."""
    option = plan.option
    stated: dict[str, float | str | None] = {
        "--tensor-parallel-size": option.tp,
        "--data-parallel-size": option.replicas,
        "--max-model-len": option.max_model_len,
        "--max-num-seqs": option.max_num_seqs,
        "--max-num-batched-tokens": option.max_num_batched_tokens,
        "--gpu-memory-utilization": option.gpu_memory_utilization,
    }
    for name, value in stated.items():
        given = flags.get(name)
        if name not in flags or value is None:
            continue
        try:
            equal = given is not None and math.isclose(float(given), float(value))
        except ValueError:
            equal = False
        if not equal:
            raise DataError(
                f"{name} {given} contradicts the plan's option, which says {value}",
                key="flags",
                hint="make the plan anew with `qwendeploy recommend` instead of editing it",
            )
    fraction = option.gpu_memory_utilization
    if fraction is not None and not 0 < fraction <= 1:
        raise DataError(f"{fraction} is not in (0, 1]", key="option.gpu_memory_utilization")


def _with_served_name(
    plan: Plan, flags: tuple[tuple[str, str | None], ...]
) -> tuple[tuple[str, str | None], ...]:
    name = "--alias" if plan.option.engine == "llama.cpp" else "--served-model-name"
    if any(flag == name for flag, _ in flags):
        return flags
    _check_text(plan.served_model_name, "served_model_name")
    return ((name, plan.served_model_name), *flags)


def _env(plan: Plan, *, offline: bool) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for position, setting in enumerate(plan.env):
        key = f"env.{position}"
        if not _VARIABLE.match(setting.name):
            raise DataError(f"{setting.name!r} is not a variable's name", key=key)
        if setting.name in found:
            raise DataError(f"{setting.name} is set twice", key=key, hint="keep one of them")
        if _SECRET.search(setting.name):
            raise DataError(
                f"{setting.name} would put a secret into the artefact",
                key=key,
                hint="remove it; secrets belong in secrets.env",
            )
        _check_text(setting.value or "", key)
        found[setting.name] = setting.value or ""
    if offline:
        found.setdefault("HF_HUB_OFFLINE", "1")
    return tuple(found.items())


def _image(plan: Plan) -> tuple[str | None, bool]:
    image = plan.option.image
    if image is None:
        return None, False
    match = _REFERENCE.match(image)
    if match is None:
        raise DataError(f"{image!r} is not an image reference", key="option.image")
    digest = match["digest"]
    if digest is not None and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise DataError(
            f"{image} cannot be pulled: {digest} is not a whole digest",
            key="option.image",
            hint="recommend with --image and a tag, or the full sha256 digest",
        )
    return image, digest is not None


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


def _local_paths(model: str, flags: tuple[tuple[str, str | None], ...]) -> tuple[str, ...]:
    """Return the directories of target and draft checkpoints on disk."""
    found = [model] if _is_path(model) else []
    for name, value in flags:
        if name == "--speculative-config" and value:
            try:
                draft = json.loads(value).get("model")
            except (ValueError, AttributeError):
                continue
            if isinstance(draft, str) and _is_path(draft):
                found.append(draft)
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
    return tuple(dict.fromkeys(found))


def _start_period(plan: Plan, *, local: bool) -> tuple[int, str]:
    """Return seconds until a silent server counts as failed, in whole minutes, and why."""
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


def _required_secrets(plan: Plan, listen: str) -> tuple[str, ...]:
    needed = []
    if not ipaddress.ip_address(listen).is_loopback:
        needed.append(API_KEY[plan.option.engine])
    if plan.gated_repositories:
        needed.append(HUB_TOKEN)
    return tuple(needed)


def _check_text(text: str, key: str) -> None:
    """Refuse what no argument vector or UTF-8 file can hold."""
    if "\x00" in text or any(0xD800 <= ord(char) <= 0xDFFF for char in text):
        raise DataError("holds a NUL or half of a surrogate pair", key=key)
