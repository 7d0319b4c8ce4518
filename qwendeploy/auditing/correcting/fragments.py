"""Corrected launches as fragments in the format of their source file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

HOME = r"^(~|\$HOME|\$\{HOME\})/"
SHARED_MEMORY = "8Gi"
"""Room for NCCL's buffers of a few cards; its documentation asks for gigabytes."""


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of ``docker run`` among words, each with its value."""
    index = 0
    while index < len(words):
        name, equals, value = words[index].partition("=")
        index += 1
        if not equals and index < len(words) and not words[index].startswith("-"):
            value = words[index]
            index += 1
        yield name, value.strip('"')


def compose(
    program: Sequence[str],
    words: Sequence[str],
    env: Mapping[str, str],
    container: Sequence[str],
) -> str:
    """Return the keys of a compose service; ``program`` is empty where the image starts its own."""
    lines = [f"entrypoint: {json.dumps(list(program))}"] if program else []
    lines += ["command:", *(f"  - {json.dumps(word)}" for word in words)]
    if env:
        lines += ["environment:", *(f"  {key}: {json.dumps(value)}" for key, value in env.items())]
    for name, value in _options(container):
        if name == "--ipc":
            lines.append(f"ipc: {value}")
        elif name in ("--gpus", "--device"):
            lines += ["deploy:", "  resources:", "    reservations:", "      devices:"]
            lines.append("        - {driver: nvidia, count: all, capabilities: [gpu]}")
        elif name in ("-v", "--volume"):
            lines += ["volumes:", f"  - {json.dumps(value)}"]
        else:
            lines.append(f"# as a key of the service: {name} {value}".rstrip())
    return "\n".join(lines) + "\n"


def manifest(
    program: Sequence[str],
    words: Sequence[str],
    env: Mapping[str, str],
    container: Sequence[str],
    cards: int,
) -> str:
    """Return the keys of a container in a pod, and the pod's volumes that they need.

    ``program`` is empty where the image starts its own.
    """
    lines = [f"command: {json.dumps(list(program))}"] if program else []
    lines += ["args:", *(f"  - {json.dumps(word)}" for word in words)]
    if env:
        pairs = (f"  - {{name: {key}, value: {json.dumps(text)}}}" for key, text in env.items())
        lines += ["env:", *pairs]
    for name, value in _options(container):
        if name == "--ipc":
            lines += ["volumeMounts:", "  - {name: shm, mountPath: /dev/shm}"]
            lines += ["# in the pod's spec", "volumes:"]
            lines.append(
                f"  - {{name: shm, emptyDir: {{medium: Memory, sizeLimit: {SHARED_MEMORY}}}}}"
            )
        elif name in ("--gpus", "--device"):
            lines.append(f"resources: {{limits: {{nvidia.com/gpu: {cards}}}}}")
        else:
            lines.append(f"# in the pod's spec: {name} {value}".rstrip())
    return "\n".join(lines) + "\n"


def quadlet(
    image: str, words: Sequence[str], env: Mapping[str, str], container: Sequence[str]
) -> str:
    """Return the container section of a quadlet, without what is left as it is."""
    lines = [
        "[Container]",
        "# in place of the keys of these names; the others stay",
        f"Image={image}",
    ]
    for name, value in _options(container):
        if name in ("--gpus", "--device"):
            lines.append("AddDevice=nvidia.com/gpu=all")
        elif name in ("-v", "--volume"):
            # systemd knows the home directory by a specifier and expands no variable there
            lines.append(f"Volume={re.sub(HOME, '%h/', value)}")
        else:
            lines.append(f"PodmanArgs={name}={value}" if value else f"PodmanArgs={name}")
    lines += [f'Environment="{key}={value}"' for key, value in env.items()]
    lines.append("Exec=" + " \\\n  ".join(_quoted(word) for word in words))
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    """Return a word as systemd reads it back."""
    if word and not set(word) & set(" \t\"'\\"):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def dockerfile(image: str, program: str, words: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the instructions of an image; ``program`` is empty where it has its own entry."""
    lines = [f"FROM {image}", *(f"ENV {key}={json.dumps(value)}" for key, value in env.items())]
    if program:
        lines.append(f"ENTRYPOINT {json.dumps(program.split())}")
    return "\n".join([*lines, f"CMD {json.dumps(list(words))}"]) + "\n"
