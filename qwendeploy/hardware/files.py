"""Machines from files: saved tool output, or the machine document that ``detect -o`` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from qwendeploy import __version__
from qwendeploy.documents import Machine, MachineDocument, Tool
from qwendeploy.documents.disk import write_file
from qwendeploy.documents.files import dump_document, read_document
from qwendeploy.errors import DataError, UserError
from qwendeploy.hardware.catalogue import Catalogue
from qwendeploy.hardware.merge import machine_of
from qwendeploy.hardware.reading import GpuReading, Rank, Reading
from qwendeploy.hardware.stated import System
from qwendeploy.hardware.stated_card import MAX_GIB
from qwendeploy.hardware.texts.sniff import read_paths

_SCHEMA = "qwendeploy/machine"
_DOCUMENT = re.compile(r"""^[\s{]*["']?schema["']?\s*:\s*["']?qwendeploy/""", re.MULTILINE)
"""The head of any document of ours: one that is no machine is refused by its name."""

_HEAD_BYTES = 4096

OWN_KEYS = {"gpus", "usable", "usable_gpu_indices"}
"""Keys by which the JSON of ``detect`` is told from that of other tools."""


def machine_from_files(
    paths: Iterable[str | Path],
    *,
    catalogue: Catalogue,
    gpu: str | None = None,
    count: int | None = None,
    vram_gib: float | None = None,
    driver: str | None = None,
    system: System | None = None,
) -> Machine:
    """Return the machine of saved output; what is stated fills what the texts do not show.

    A stated name, memory or driver never replaces one that was read: a contradiction is an
    error. ``-`` is stdin.

    Raises:
        UserError: nothing is recognised, a file is unreadable, binary or too large, or a
            statement contradicts the texts.
    """
    readings = read_paths(paths)
    machine = _possible(machine_of(readings, catalogue))
    if gpu is None and count is None and vram_gib is None and driver is None and system is None:
        return machine
    stated = Reading("stated")
    memory = round(vram_gib * 1024) if vram_gib is not None else None
    _check(machine, catalogue, gpu=gpu, count=count, driver=driver)
    listed = [item.index or 0 for item in machine.gpus] or list(range(count or 0))
    card = catalogue.find(gpu, memory_mib=memory) if gpu else None
    for position, index in enumerate(listed):
        reading = GpuReading(Rank.STATED, position, index=index, memory_mib=memory)
        reading.name = _printed(card, gpu)
        stated.gpus.append(reading)
    stated.driver = driver
    if system in ("wsl2", "windows", "linux"):
        stated.platform_hints.append(system)
    return machine_of([*readings, stated], catalogue)


def _possible(machine: Machine) -> Machine:
    """Return the machine unless a card of it has more memory than any could be stated to have."""
    for gpu in machine.gpus:
        if gpu.memory_mib is not None and gpu.memory_mib > MAX_GIB * 1024:
            raise UserError(
                f"GPU {gpu.index}: {gpu.memory_mib:,} MiB is not a plausible size",
                where="hardware input",
                hint="pass the unmodified output of nvidia-smi",
            )
    return machine


def _printed(card: Any, gpu: str | None) -> str | None:
    """Return the name as nvidia-smi would print it, which the texts then would have said."""
    names: tuple[str, ...] = getattr(card, "printed_names", ())
    typed = (gpu or "").casefold()
    return next((name for name in names if name.casefold() == typed), names[0] if names else gpu)


def _check(
    machine: Machine,
    catalogue: Catalogue,
    *,
    gpu: str | None,
    count: int | None,
    driver: str | None,
) -> None:
    if driver and machine.driver and not machine.driver.startswith(driver):
        raise UserError(f"--driver is {driver}, the input shows {machine.driver}", where="--driver")
    if count is not None and machine.gpus and count > len(machine.gpus):
        raise UserError(
            f"--gpus is {count}, the input shows {len(machine.gpus)}",
            where="--gpus",
            hint="select GPUs of the input with --devices",
        )
    if gpu is None:
        return
    meant = {card.name for card in catalogue.candidates(gpu)}
    if not meant:
        near = ", ".join(catalogue.near(gpu))
        raise UserError(
            f"unknown GPU {gpu!r}",
            where="--gpu",
            hint=f"did you mean {near}?" if near else "use the name printed by nvidia-smi",
        )
    for item in machine.gpus:
        shown = {card.name for card in catalogue.candidates(item.name)} if item.name else set()
        if shown and not shown & meant:
            raise UserError(f"--gpu is {gpu}, the input shows {item.name}", where="--gpu")


def load_machine(path: str | Path, *, catalogue: Catalogue) -> Machine:
    """Return the machine of a machine document, of ``detect --json``, or of saved output.

    Raises:
        UserError: nothing is recognised, or the file is unreadable, binary or too large.
        DataError: a machine document with an impossible value.
    """
    path = Path(path)
    if str(path) != "-" and path.is_file():
        head = _head(path)
        if _SCHEMA in head or _DOCUMENT.search(head):
            return read_document(path, MachineDocument).machine
        if head.lstrip().startswith("{") and '"gpus"' in head and (own := _own_json(path)):
            return own
    return machine_from_files([path], catalogue=catalogue)


def _head(path: Path) -> str:
    try:
        with path.open("rb") as handle:
            return handle.read(_HEAD_BYTES).decode("utf-8", errors="replace")
    except OSError as problem:
        raise UserError(f"cannot be read: {problem.strerror or problem}", where=str(path)) from None


def _own_json(path: Path) -> Machine | None:
    """Return the machine that ``detect --json`` printed, ``None`` for JSON of other tools."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or not OWN_KEYS.issubset(content):
        return None
    try:
        return Machine.model_validate(content)
    except ValidationError as problem:
        first = problem.errors()[0]
        raise DataError(
            first["msg"],
            file=str(path),
            key=".".join(str(part) for part in first["loc"]) or None,
            hint="create it again with 'qwendeploy detect -o machine.yaml'",
        ) from None


def machine_document(machine: Machine, inputs: dict[str, Any] | None = None) -> MachineDocument:
    """Return the document that holds the machine."""
    now = datetime.now(UTC).replace(microsecond=0)
    return MachineDocument(
        created=now.isoformat().replace("+00:00", "Z"),
        tool=Tool(version=__version__),
        inputs=inputs or {},
        machine=machine,
    )


def save_machine(
    machine: Machine, path: Path, *, force: bool = False, inputs: dict[str, Any] | None = None
) -> None:
    """Write the machine document that ``load_machine`` reads back to an equal machine."""
    text = dump_document(machine_document(machine, inputs))
    write_file(path, text.encode(), 0o644, force=force)
