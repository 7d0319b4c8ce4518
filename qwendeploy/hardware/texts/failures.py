"""Error texts of the GPU tools, with cause and fix."""

from __future__ import annotations

import re

from qwendeploy.hardware.reading import Failure, MissingReading, Reading
from qwendeploy.hardware.values import VERSION

_KINDS: tuple[tuple[str, str, str, int | None], ...] = (
    (
        "driver-absent",
        r"NVIDIA-SMI has failed because it couldn.{1,3}t communicate with the NVIDIA driver",
        "the kernel module is not loaded: install the driver, or rebuild it for this kernel (DKMS,"
        " Secure Boot), then reboot",
        None,
    ),
    (
        "driver-mismatch",
        r"Failed to initialize NVML: Driver/library version mismatch",
        "kernel module and user library differ after an update: reboot or reload the module",
        None,
    ),
    (
        "container-lost-gpu",
        r"Failed to initialize NVML: Unknown Error",
        "the container lost its device nodes (systemd cgroup reload); the host may be healthy:"
        " restart the container, or use the cgroupfs driver or CDI",
        None,
    ),
    (
        "driver-absent",
        r"Failed to initialize NVML: Driver Not Loaded",
        "the kernel module is not loaded: load or reinstall the driver",
        None,
    ),
    (
        "driver-absent",
        r"The NVIDIA Driver was not detected|Found no NVIDIA driver on your system",
        "no driver found: install it, or start the container with GPUs (--gpus all)",
        None,
    ),
    (
        "blocked",
        r"GPU access blocked by the operating system",
        "the operating system refuses access: on WSL2 update Windows and the WSL kernel",
        None,
    ),
    (
        "nvml",
        r"Failed to initialize NVML: [A-Z]\w[\w /]{0,60}",
        "NVML does not start: check driver, /dev/nvidia* permissions and the container runtime",
        None,
    ),
    (
        "library-absent",
        r"NVIDIA-SMI couldn.{1,3}t find libnvidia-ml\.so",
        "the driver's user library is missing: install it, or start the container with the NVIDIA"
        " runtime",
        None,
    ),
    (
        "no-devices",
        r"No devices were found",
        "the driver is loaded but no GPU is usable (often a Blackwell card with the closed kernel"
        " module, or a card that failed to start: see dmesg)",
        0,
    ),
    (
        "runtime-absent",
        r"could not select device driver \S{0,20} with capabilities"
        r"|unknown or invalid runtime name: \S{0,4}nvidia",
        "Docker has no NVIDIA runtime: install and configure nvidia-container-toolkit",
        None,
    ),
    (
        "cdi-absent",
        r"unresolvable CDI devices [\w./=:,-]{3,80}"
        r"|failed to discover GPU vendor from CDI(?:: [a-zA-Z ]{3,60})?",
        "Docker finds no CDI description of the GPUs: sudo nvidia-ctk cdi generate"
        " --output=/etc/cdi/nvidia.yaml, or register the NVIDIA runtime",
        None,
    ),
    (
        "runtime-failed",
        r"nvidia-container-cli: [a-z]\w* error",
        "the NVIDIA container runtime failed: check the host's driver first",
        None,
    ),
    (
        "smi-absent",
        r"(?:command not found|Unknown command): nvidia-smi"
        r"|nvidia-smi['’”\"]?(?:: |：)\s*(?:command not found|not found|No such file|未找到命令"
        r"|Befehl|Kommando nicht|commande introuvable|orden no encontrada|comando non trovato"
        r"|comando n[ãa]o encontrado|команда не найдена|コマンドが見つかりません|명령을 찾을 수)"
        r"|(?:Command|[Tt]erm) ['‘“\"]?nvidia-smi['’”\"]? (?:is )?not (?:found|recognized)"
        r"|['‘“\"]?nvidia-smi['’”\"]? is not recognized(?: as an internal or external command)?"
        r"|['‘“\"«]\s?nvidia-smi\s?['’”\"»] (?:wurde nicht als Name|ist entweder falsch geschrieben"
        r"|n['’]est pas reconnu|non è riconosciuto|no se reconoce|não é reconhecido|не является)"
        r"|['‘“\"]nvidia-smi['’”\"]\s?(?:项识别为|不是内部或外部命令|は、(?:コマンドレット|内部コマンド))"
        r"|nvidia-smi.{0,20}executable file not found",
        "nvidia-smi is not installed: no NVIDIA driver here, or a container without its tools",
        None,
    ),
    (
        "not-root",
        r"NVIDIA-SMI has failed because you are not",
        "nvidia-smi needs more permissions: run it as administrator",
        None,
    ),
)
_PATTERNS = tuple((code, re.compile(pattern), why, n) for code, pattern, why, n in _KINDS)
_LIBRARY = re.compile(rf"NVML library version:\s*({VERSION})")
_HANDLE = re.compile(
    r"Unable to determine the device handle for (?:gpu|GPU)\s?(?:(\d{1,3}):)?\s?"
    r"((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])?:?\s*"
    r"([^.\n]{0,80})",
)


def read_failures(text: str, reading: Reading) -> None:
    """Take the known error texts; a message broken over lines is one message."""
    flat = " ".join(line.strip() for line in text[:200_000].split("\n"))
    seen: set[str] = set()
    for code, pattern, why, count in _PATTERNS:
        match = pattern.search(text) or pattern.search(flat)
        if match is None or code in seen or (code == "nvml" and reading.failures):
            continue
        seen.add(code)
        line = _line_of(flat, match[0])
        reading.failures.append(Failure(code, line, why, count))
    if library := _LIBRARY.search(text):
        reading.nvml_library_version = library[1]
    for number, match in enumerate(_HANDLE.finditer(text)):
        if number >= 64:
            break
        index, address, reason = match.groups()
        reading.missing.append(
            MissingReading(
                int(index) if index else None,
                address,
                reason.strip().removeprefix(":").strip() or "does not respond",
            )
        )


def _line_of(flat: str, found: str) -> str:
    """Return the message from its start to the end of its sentence, at most 160 characters."""
    start = flat.find(re.sub(r"\s*\n\s*", " ", found))
    sentence = flat[start : start + 160] if start >= 0 else found
    cut = re.search(r"(?<=[a-z])\.(?:\s|$)", sentence[len(found) :])
    return sentence[: len(found) + cut.start()].strip() if cut else found.strip()
