"""A launch: one server with its arguments, variables and container."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from qwendeploy.auditing.reading.text import Place, Word, whole_number
from qwendeploy.image_names import EngineName, image_name

Runtime = Literal["docker", "podman", "kubernetes", "none"]


@dataclass(frozen=True)
class Port:
    """A port of a container that the host publishes; ``address`` empty is every interface."""

    address: str
    host: str
    container: str
    place: Place


@dataclass(frozen=True)
class VisibleGpus:
    """The GPUs that a container is given."""

    passed: bool
    count: int | None = None
    """``None`` is all of them."""
    devices: tuple[str, ...] = ()
    place: Place | None = None


@dataclass(frozen=True)
class Container:
    """How the server is boxed; ``None`` fields are not stated."""

    image: Word | None
    gpus: VisibleGpus | None = None
    """``None``: the file does not say how it is run (a Dockerfile)."""
    ports: tuple[Port, ...] = ()
    volumes: tuple[Word, ...] = ()
    network: Word | None = None
    shared_memory: bool | None = None
    platform: Word | None = None
    devices: tuple[Word, ...] = ()
    published_by_cluster: bool = False
    workdir: Word | None = None
    opaque: bool = False
    """Volumes come from elsewhere too (``--volumes-from``)."""
    refused: tuple[Word, ...] = ()
    """What the container program refuses about the description, in its words."""
    restart: Word | None = None
    replicas: int = 1
    """Containers of this kind that the file starts."""

    @property
    def on_host_network(self) -> bool:
        """The container has no network of its own: what it publishes is dropped."""
        return self.network is not None and self.network.text == "host"

    @property
    def targets(self) -> tuple[str, ...]:
        """Where the container finds its volumes."""
        return tuple(mount_of(volume.text)[1] for volume in self.volumes)

    @property
    def amd(self) -> bool:
        """Whether AMD or Intel devices are handed in by path."""
        return any(word.text.startswith(("/dev/kfd", "/dev/dri")) for word in self.devices)


@dataclass(frozen=True)
class Supervision:
    """What a cluster does to the server from outside its command."""

    patience_s: int | None = None
    """Seconds after which a server that does not answer yet is given up; ``None``: never."""
    probe: Place | None = None
    link: Place | None = None
    """A Service whose name makes the cluster set ``VLLM_PORT`` in the server's environment."""
    restarts: bool = True
    """Giving up kills the server; otherwise only what waits for it is not started."""


@dataclass(frozen=True)
class ManagedService:
    """What a service manager makes of the command that it starts; ``None`` is not stated."""

    kind: Word | None = None
    """``Type=``, or the kind of notice that a quadlet waits for."""
    patience_s: float = 90.0
    """Seconds after which a start that is not reported is given up (systemd.service(5))."""
    hides: tuple[Word, ...] = ()
    """Settings that take devices or homes out of the server's sight."""
    restarts: bool = False
    stops: Word | None = None
    """The command that is run when the started one ends."""
    shell: tuple[Word, ...] = ()
    """Words that only a shell would understand."""
    paths: tuple[Word, ...] = ()
    """Paths that are not what they look like without a shell."""
    direct: bool = True
    """The server is the started process, not a shell's child."""
    detached: bool = False
    """The command returns while a container goes on."""


@dataclass(frozen=True)
class ForeignLaunch:
    """One server start as written. ``arguments`` follow the engine's own command."""

    place: Place
    runtime: Runtime
    engine: EngineName
    arguments: tuple[Word, ...]
    env: Mapping[str, Word] = field(default_factory=dict)
    container: Container | None = None
    name: str = ""
    before: tuple[Word, ...] = ()
    """The words in front of the arguments, of launches that are shell commands."""
    lost: tuple[Word, ...] = ()
    """Words after the command that look like its flags but belong to no command any more."""
    unread: tuple[str, ...] = ()
    """Files the launch names that were not read, and other parts that stay unknown."""
    repeated: Word | None = None
    """The program that is named although the image's own entry point starts it already."""
    terminal: Word | None = None
    """The option that asks for a terminal on an attached standard input."""
    unattended: bool = False
    """Started by a service manager, which gives no terminal."""
    supervision: Supervision | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts that the same source puts into the container, by their paths there."""
    service: ManagedService | None = None
    """The unit or quadlet that starts it."""
    stays: bool = True
    """It goes on while what follows in the same text starts."""
    source: str = ""
    """The file of a directory that it comes from."""
    branch: tuple[tuple[int, int], ...] = ()
    """The branches of conditions that it stands in: which condition, which branch."""
    states_program: bool = False
    """A manifest or service names the program itself instead of the image's entry point."""
    profiles: frozenset[str] = frozenset()
    """The profiles of a compose file that start it; without any it is always started."""
    dropped: tuple[Word, ...] = ()
    """Words of a command that the entry point's shell form keeps from the server."""
    literal: tuple[Word, ...] = ()
    """Words with a variable that nothing expands."""
    program: str = ""
    """The engine's program as written, of launches without a container."""
    installed: str | None = None
    """Version of the engine that the same text installs or names (``pip install vllm==0.24.0``)."""

    @property
    def open_ended(self) -> bool:
        """Whether flags are in effect that were not read: what is not given is not known then."""
        return any(part.startswith("configuration file") for part in self.unread)

    @property
    def variables_open(self) -> bool:
        """Whether variables are set that were not read, secrets mostly among them."""
        return any(part.startswith(("environment file", "variables of")) for part in self.unread)


_PROGRAMS = {"vllm", "serve", "sh", "bash", "dash", "zsh", "env", "exec"}


def repeated_program(words: tuple[Word, ...], image: str) -> Word | None:
    """Return the program that a command names again in front of an entry point's arguments.

    ``words`` are those that follow the image's own entry point, in vLLM's images ``vllm serve``
    (Dockerfile of vLLM from 0.11.1; before it the Python module).
    """
    name = image_name(image)
    if not words or not (name.is_upstream and "vllm-openai" in name.path):
        return None
    base = words[0].text.rsplit("/", 1)[-1]
    if base in _PROGRAMS or _PYTHON.search(words[0].text):
        return words[0]
    return None


_VLLM_MODULE = re.compile(r"^vllm\.entrypoints\.(openai\.api_server|api_server|cli\.main)$")
_PYTHON = re.compile(r"(^|/)python(\d(\.\d+)?)?$")


def server_in(words: tuple[Word, ...]) -> tuple[EngineName, tuple[Word, ...]] | None:
    """Return the engine and its arguments when the words start one, else ``None``.

    Wrappers in front (``exec``, ``sudo``, ``env``, ``nohup``, ``uv run`` …) are passed over.
    """
    for index, word in enumerate(words[:40]):
        base = re.split(r"[/\\]", word.text)[-1]
        rest = words[index + 1 :]
        if base == "vllm" and rest and rest[0].text == "serve":
            return "vllm", rest[1:]
        if base in ("llama-server", "llama-server.exe"):
            return "llama.cpp", rest
        if base == "sglang" and rest and rest[0].text == "serve":
            return "sglang", rest[1:]
        if _PYTHON.search(word.text):
            found = _python_module(rest)
            if found is not None:
                return found
    return None


def program_in(words: tuple[Word, ...], arguments: tuple[Word, ...]) -> str:
    """Return the program in front of the arguments that ``server_in`` told apart."""
    before = [word.text for word in words[: len(words) - len(arguments)]]
    if before[-1:] == ["serve"]:
        before = before[-2:]
    else:
        before = before[-3:] if before[-2:-1] == ["-m"] else before[-1:]
    return " ".join(before)


def _python_module(rest: tuple[Word, ...]) -> tuple[EngineName, tuple[Word, ...]] | None:
    for index, word in enumerate(rest[:6]):
        if word.text != "-m" or index + 1 >= len(rest):
            continue
        module, after = rest[index + 1].text, rest[index + 2 :]
        if _VLLM_MODULE.match(module):
            if module.endswith("cli.main") and after and after[0].text == "serve":
                after = after[1:]
            return "vllm", after
        if module == "sglang.launch_server":
            return "sglang", after
        if module.startswith("llama_cpp"):
            return "llama.cpp", after
    return None


_ENGINE_MARKS = ("--max-model-len", "--tensor-parallel-size", "--gpu-memory-utilization")


def engine_of_arguments(arguments: tuple[Word, ...]) -> EngineName:
    """Return the engine whose flags the arguments look like."""
    texts = {word.text.split("=")[0] for word in arguments}
    if texts & set(_ENGINE_MARKS) or ("--model" in texts and "--served-model-name" in texts):
        return "vllm"
    if texts & {"-ngl", "--n-gpu-layers", "-hf", "--hf-repo", "--ctx-size"}:
        return "llama.cpp"
    return "other"


def parse_port(text: str, place: Place) -> Port | None:
    """Return a published port of docker's short form, ``None`` if only the container's is given."""
    body = text.partition("/")[0]
    if body.startswith("["):
        address, _, rest = body[1:].partition("]:")
    else:
        parts = body.rsplit(":", 2)
        address, rest = (parts[0], ":".join(parts[1:])) if len(parts) == 3 else ("", body)
    host, colon, container = rest.partition(":")
    if not colon:
        # A bare container port gets a random host port on every interface.
        return Port(address, "", host, place)
    return Port(address, host, container, place)


def mount_of(text: str) -> tuple[str, str]:
    """Return where a volume comes from and where the container finds it."""
    if "target=" in text or "dst=" in text or "destination=" in text:
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        source = fields.get("source") or fields.get("src") or ""
        return source, fields.get("target") or fields.get("dst") or fields.get("destination") or ""
    parts = text.split(":")
    if len(parts) > 2 and len(parts[0]) == 1 and parts[0].isalpha():
        # A drive of Windows: its colon belongs to the path.
        parts = [f"{parts[0]}:{parts[1]}", *parts[2:]]
    return (parts[0], parts[1]) if len(parts) > 1 else ("", text)


LEAST_SHARED_MIB = 256
"""Docker's 64 MiB stop NCCL; the engine's documentation asks for the host's or for gigabytes."""
_BINARY = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def enough_shared_memory(size: Word | None) -> bool:
    """Say whether a size of shared memory is more than the default; unknown sizes are."""
    if size is None:
        return False
    match = re.match(r"^(\d+(?:\.\d+)?)\s*([bkmgt]?)i?b?$", size.text.strip().lower())
    if match is None:
        return True
    return float(match[1]) * _BINARY[match[2]] >= LEAST_SHARED_MIB * 2**20


def parse_gpus(text: str, place: Place) -> VisibleGpus:
    """Return what docker's ``--gpus`` value hands in."""
    body = text.strip().strip("\"'")
    fields = dict(part.split("=", 1) for part in re.split(r",(?=[a-z]+=)", body) if "=" in part)
    devices = fields.get("device", "")
    if devices:
        names = tuple(name for name in devices.strip("\"'").split(",") if name)
        return VisibleGpus(True, len(names), names, place)
    amount = fields.get("count", body)
    count = whole_number(amount)
    if count is not None:
        return VisibleGpus(count > 0, count, (), place)
    return VisibleGpus(True, None, (), place)


_NODE = re.compile(r"/dev/nvidia(\d{1,3})(?=:|$)")


def nvidia_devices(devices: tuple[Word, ...]) -> VisibleGpus | None:
    """Return the GPUs handed in as CDI or device nodes, ``None`` if there are none."""
    names = [
        word.text.split("nvidia.com/gpu=", 1)[1]
        for word in devices
        if "nvidia.com/gpu=" in word.text
    ]
    if names:
        place = devices[0].place
        if "all" in names:
            return VisibleGpus(True, None, (), place)
        return VisibleGpus(True, len(names), tuple(names), place)
    nodes = [(match[1], word) for word in devices if (match := _NODE.match(word.text))]
    if nodes:
        return VisibleGpus(True, len(nodes), tuple(index for index, _ in nodes), nodes[0][1].place)
    amd = [word for word in devices if word.text.startswith("/dev/kfd")]
    return VisibleGpus(True, None, (), amd[0].place) if amd else None
