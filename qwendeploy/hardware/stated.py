"""A machine stated on the command line, and the assumed machine."""

from __future__ import annotations

import re
from typing import Literal, cast, get_args

from qwendeploy.documents import Gpu, GpuLink, Links, Machine
from qwendeploy.errors import UserError
from qwendeploy.hardware.catalogue import Catalogue, CatalogueGpu
from qwendeploy.hardware.interconnect import with_interconnect
from qwendeploy.hardware.memory import serving_memory_mib
from qwendeploy.hardware.naming import vgpu_board
from qwendeploy.hardware.stated_card import NVIDIA_ONLY, stated_card
from qwendeploy.hardware.usable import judge
from qwendeploy.hardware.values import VERSION
from qwendeploy.units import MIB

STUDY_CARD = "RTX PRO 6000 Blackwell Workstation"
"""The card of the published study (two of them)."""
STUDY_COUNT = 2

_COUNTED = re.compile(r"^\s*([1-9]\d?)\s*(?:x|×|\*)\s*(?=\S)", re.IGNORECASE | re.ASCII)
_COUNTED_LAST = re.compile(
    r"(?<=\S)(?:\s*[×*]|\s+x|(?<=\d)x)\s*([1-9]\d?)\s*$", re.IGNORECASE | re.ASCII
)
_DRIVER = re.compile(rf"^(?:{VERSION}|\d{{3}})$")

System = Literal["linux", "wsl2", "windows", "container", "unknown"]


def stated_machine(
    gpu: str,
    count: int | None = None,
    *,
    catalogue: Catalogue,
    vram_gib: float | None = None,
    driver: str | None = None,
    cuda: str | None = None,
    nvlink: bool | None = None,
    system: System = "linux",
    host_memory_gib: float | None = None,
) -> Machine:
    """Return the machine that the settings describe; ``2x RTX 3090`` states a count too.

    ``vram_gib``, or a size behind the name (``4090 48GB``), chooses between sizes of a card or
    describes a rebuilt one. A card that nobody listed needs its memory and, where no series tells
    it, its compute capability behind the name (``Foo 9000 cc 12.0``). Without ``nvlink`` the card
    decides: none where it has no connector, boards whose GPUs always have it, else unknown.

    Raises:
        UserError: an unknown or ambiguous name of which too little is stated, or contradicting
            settings.
    """
    gpu, count = _counted(gpu, count)
    if not gpu.strip():
        raise UserError("no GPU name given", where="--gpu", hint="for example 'RTX PRO 6000'")
    if driver is not None and not _DRIVER.match(driver):
        raise UserError(
            f"{driver!r} is not a driver version",
            where="--driver",
            hint="for example 580 or 580.65.06",
        )
    stated = stated_card(gpu, vram_gib, catalogue)
    card, memory = stated.card, stated.memory_mib
    _check_joined(card, count, nvlink)
    gpus = tuple(
        Gpu(
            index=index,
            name=stated.name,
            model=card.name if card else None,
            memory_mib=_stated_memory(card, memory),
            compute_capability=stated.compute_capability,
            compute_capability_by_name=stated.by_name,
            vgpu=vgpu_board(stated.name) is not None,
        )
        for index in range(count)
    )
    unified = bool(card and card.unified)
    machine = Machine(
        gpus=gpus,
        count=count,
        driver=driver,
        cuda=cuda,
        links=_links(card, count, nvlink),
        unified_memory=unified,
        host_memory_mib=_host_memory(card, unified, memory, host_memory_gib),
        os=system,
        platform="linux-aarch64" if unified else "wsl2" if system == "wsl2" else "linux-x86_64",
        origin="stated",
        notes=_rebuilt(card, memory),
    )
    return with_interconnect(_of_other_vendor(judge(machine), card), catalogue)


def name_and_count(gpu: str) -> tuple[str, int | None]:
    """Return name and number of ``2x RTX 3090`` or ``3090 x2``, ``None`` without a number."""
    if first := _COUNTED.match(gpu):
        return gpu[first.end() :], int(first[1])
    if last := _COUNTED_LAST.search(gpu):
        return gpu[: last.start()], int(last[1])
    return gpu, None


def _counted(gpu: str, count: int | None) -> tuple[str, int]:
    """Return the name and how many are stated, in the text or beside it; one unless stated."""
    name, stated = name_and_count(gpu)
    if stated is not None and count is not None and count != stated:
        raise UserError(f"{gpu!r} states {stated} GPUs but --gpus is {count}", where="--gpu")
    return name, stated or count or 1


def _of_other_vendor(machine: Machine, card: CatalogueGpu | None) -> Machine:
    if card is None or card.vendor == "NVIDIA":
        return machine
    reason = f"{card.name} is a GPU of {card.vendor}: {NVIDIA_ONLY}"
    return machine.model_copy(update={"usable_reason": reason})


def system_named(text: str | None) -> System | None:
    """Return the operating system of that name.

    Raises:
        UserError: it is none of linux, wsl2, windows, container.
    """
    if text is None:
        return None
    for system in get_args(System):
        if text == system:
            return cast(System, system)
    raise UserError(
        f"unknown operating system {text!r}", where="--os", hint="linux, wsl2 or windows"
    )


def assumed_machine(catalogue: Catalogue, count: int | None = None) -> Machine:
    """Return the study's machine, for somebody who is on no GPU box and names none."""
    machine = stated_machine(STUDY_CARD, count or STUDY_COUNT, catalogue=catalogue)
    note = "no GPU is stated and this computer has none: the study's GPU is assumed"
    return machine.model_copy(update={"origin": "assumed", "notes": (note,)})


def _stated_memory(card: CatalogueGpu | None, memory: int | None) -> int | None:
    """Return the size as the tool would print it when the statement is the card's own size."""
    if card is None:
        return memory
    if card.unified:
        return None
    if memory is not None and not card.has_memory(memory):
        return memory
    empty = Machine(gpus=())
    known = serving_memory_mib(empty, Gpu(index=0, name=card.name), card)
    return known[0] if known else memory


def _rebuilt(card: CatalogueGpu | None, memory: int | None) -> tuple[str, ...]:
    if card is None or memory is None or card.unified or card.has_memory(memory) is not False:
        return ()
    return (f"{card.name} is not sold with {memory} MiB: assumed to be modified",)


def _host_memory(
    card: CatalogueGpu | None, unified: bool, memory: int | None, host_gib: float | None
) -> int | None:
    if host_gib is not None:
        return round(host_gib * 1024)
    if not unified or card is None or not card.memory_gb_nominal:
        return None
    return memory or int(card.memory_gb_nominal * 1e9 / MIB)


def _check_joined(card: CatalogueGpu | None, count: int, nvlink: bool | None) -> None:
    """Raise ``UserError`` if so many of the card, or joined so, stand in no machine."""
    if nvlink and count < 2:
        raise UserError("NVLink needs two or more GPUs", where="--nvlink", hint="add --gpus 2")
    if nvlink and card is not None and card.nvlink == "none":
        raise UserError(f"{card.name} has no NVLink", where="--nvlink", hint="remove --nvlink")
    if card is not None and card.unified and count > 1:
        raise UserError(
            f"a machine with {card.name} has one GPU; {count} GPUs are {count} machines",
            where="--gpus",
            hint="plan for one machine and run it on each; multi-node plans are not supported",
        )


def _links(card: CatalogueGpu | None, count: int, nvlink: bool | None) -> Links:
    """Return the links that the statement implies; a stated NVLink joins every pair."""
    kind = card.nvlink if card else None
    if nvlink is None and kind == "board":
        nvlink = True
    if nvlink is None and kind == "none":
        nvlink = False
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    if nvlink and pairs:
        links = tuple(GpuLink(a=a, b=b, nvlinks=1, p2p="yes") for a, b in pairs)
        return Links(nvlink="pairs", pairs=links)
    if not pairs or nvlink is False:
        return Links(nvlink="none")
    return Links(nvlink="unknown")
