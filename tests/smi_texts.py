"""Texts in the form of nvidia-smi's output, written for tests: machines that nobody posted."""

from __future__ import annotations

from collections.abc import Sequence

RULE = "+-----------------------------------------+------------------------+----------------------+"
HEAD = (
    "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
    "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
    "|                                         |                        |               MIG M. |\n"
    "|=========================================+========================+======================|"
)


def row(
    index: int,
    name: str,
    *,
    total: int | None = 24576,
    used: int = 12,
    bus: str | None = None,
    display: str = "Off",
    mode: str = "Off",
    ecc: str = "N/A",
    sensors: str = "30%   41C    P8             22W /  350W",
    util: str = "0%",
    mig: str = "N/A",
) -> str:
    """Return the three lines of one GPU."""
    bus = bus or f"00000000:{index + 1:02X}:00.0"
    memory = f"{used:7d}MiB / {total:6d}MiB" if total is not None else "Not Supported         "
    return "\n".join(
        (
            f"| {index:3d}  {name:<28}{mode:>5}  |   {bus} {display:>3} | {ecc:>20} |",
            f"| {sensors:<39} | {memory} | {util:>8}      Default |",
            f"|                                         |                        | {mig:>20} |",
            RULE,
        )
    )


def table(
    rows: Sequence[str], *, driver: str = "580.65.06", cuda: str = "13.0", smi: str | None = None
) -> str:
    """Return a table with a header of drivers 535 to 595."""
    first = (
        f"| NVIDIA-SMI {smi or driver:<22} Driver Version: {driver:<14} CUDA Version: {cuda:<8} |"
    )
    return "\n".join((RULE, first, RULE, HEAD, *rows))


def matrix(
    cells: dict[int, Sequence[str]], *, tail: str = "\t0-31\t0\t\tN/A", nics: int = 0
) -> str:
    """Return ``topo -m`` of the GPUs; ``cells`` are the rows without the GPU's label."""
    names = [f"GPU{index}" for index in cells] + [f"NIC{index}" for index in range(nics)]
    lines = ["\t" + "\t".join((*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"))]
    for index, values in cells.items():
        shown = ["SYS"] * nics
        lines.append("\t".join((f"GPU{index}", *values, *shown)) + tail)
    lines += [
        "\t".join((f"NIC{nic}", *(["PIX"] * len(cells)), *([" X "] * nics))) for nic in range(nics)
    ]
    legend = "X    = Self", "PIX  = one bridge", "NV#  = a bonded set of # NVLinks"
    return "\n".join((*lines, "", "Legend:", "", *(f"  {line}" for line in legend)))
