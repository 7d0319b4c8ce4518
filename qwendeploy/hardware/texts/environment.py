"""Operating system, architecture and host memory from the text around the GPU output.

``uname -a``, ``/proc/version``, ``lscpu``, ``/proc/meminfo``, ``free -m`` and environment reports
are recognised by their own lines only, so that a word in a process name decides nothing.
"""

from __future__ import annotations

import re

from qwendeploy.hardware.reading import Reading

_SYSTEM_LINE = re.compile(
    r"^\W{0,4}(?:Linux \S+ \d+\.\d+|Linux version \d|Python platform:|Platform:|OS:"
    r"|Operating System:|Architecture:|Kernel:|NVRM version:|Microsoft Windows)",
    re.IGNORECASE,
)
_ARCHITECTURES = (
    ("aarch64", re.compile(r"\b(?:aarch64|arm64)\b", re.IGNORECASE)),
    ("ppc64le", re.compile(r"\bppc64le\b", re.IGNORECASE)),
    ("x86_64", re.compile(r"\b(?:x86_64|amd64|x86-64)\b", re.IGNORECASE)),
)
_WSL = re.compile(r"microsoft-standard|microsoft@|\bWSL2?\b", re.IGNORECASE)
_WINDOWS_PATH = re.compile(r"^(?:[A-Z]:\\|\.\.\..*\.exe$|.*\\.*\.exe$|.*\.exe$)", re.IGNORECASE)
_LINUX_PATH = re.compile(r"^(?:/(?:usr|opt|bin|home|root|snap|lib)/|.*/(?:Xorg|gnome-shell)\b)")
_WINDOWS_PROMPT = re.compile(r"^\W{0,4}(?:PS )?[A-Z]:\\[^<>|\n]{0,120}>\s*(?!wsl\b)\S")
_WINDOWS_ANSWER = re.compile(
    r"nvidia-smi.{0,80}(?:cmdlet|コマンドレット|internal or external|内部或外部命令"
    r"|entweder falsch geschrieben)",
    re.IGNORECASE,
)
"""How cmd and PowerShell say that they do not find a program."""
_WSL_PROMPT = re.compile(r"^\W{0,4}[\w.-]{1,32}@[\w.-]{1,64}:/mnt/[a-z](?:/\S{0,120})?[#$] ")
_WSL_CALL = re.compile(
    r"^\W{0,4}(?:PS )?[A-Z]:\\[^<>|\n]{0,120}>\s*wsl(?:\.exe)?\b.{0,60}nvidia-smi"
)
_MEM_TOTAL = re.compile(r"^[ \t]*MemTotal:\s*(\d{4,12})\s*kB", re.MULTILINE)
_FREE = re.compile(r"^[ \t]*Mem:[ \t]+(\d{3,12})(Gi)?\s", re.MULTILINE)
_KERNEL_DRIVER = re.compile(
    r"NVRM version:.{0,60}?Kernel Module(?: for (\S{3,10}))?\s+(\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)"
)


def read_environment(text: str, lines: list[str], reading: Reading) -> None:
    """Take hints about the host; they are weighed when the machine is put together."""
    hints = reading.platform_hints
    for line in lines[:5000]:
        if _SYSTEM_LINE.match(line):
            hints.extend(_hints_of(line))
        elif _WSL_PROMPT.match(line) or _WSL_CALL.match(line):
            hints.append("wsl2")
        elif _WINDOWS_ANSWER.search(line) or ("\\" in line and _WINDOWS_PROMPT.match(line)):
            hints.append("windows")
    for process in reading.processes:
        if _WINDOWS_PATH.match(process.name):
            hints.append("windows-process")
        elif _LINUX_PATH.match(process.name):
            hints.append("linux-process")
    if any(gpu.driver_model in ("WDDM", "TCC", "MCDM") for gpu in reading.gpus):
        hints.append("windows-driver-model")
    if match := _KERNEL_DRIVER.search(text):
        reading.driver = reading.driver or match[2]
        hints.append("linux")
    if match := _MEM_TOTAL.search(text):
        reading.host_memory_mib = int(match[1]) // 1024
    elif match := _FREE.search(text):
        reading.host_memory_mib = int(match[1]) * 1024 if match[2] else _free_mib(int(match[1]))


def _hints_of(line: str) -> list[str]:
    hints = [name for name, pattern in _ARCHITECTURES if pattern.search(line)]
    if _WSL.search(line):
        hints.append("wsl2")
    elif "windows" in line.lower():
        hints.append("windows")
    elif re.search(r"linux|ubuntu|debian|rhel|fedora|rocky|centos", line, re.IGNORECASE):
        hints.append("linux")
    return hints[:1] + hints[1:]


def _free_mib(value: int) -> int | None:
    """Return MiB for the total of ``free``: KiB by default, MiB with ``-m``, GiB with ``-g``."""
    if value >= 4_000_000:
        return value // 1024
    return value if value >= 2_000 else None
