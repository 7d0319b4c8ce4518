"""A machine by its description: what somebody states on the command line, and the assumed one."""

from __future__ import annotations

import re
from typing import Literal, cast, get_args

from qwendeploy.documents import Gpu, GpuLink, Links, Machine
from qwendeploy.errors import UserError
from qwendeploy.hardware.catalogue import Catalogue, CatalogueGpu
from qwendeploy.hardware.interconnect import with_interconnect
from qwendeploy.hardware.memory import serving_memory_mib
from qwendeploy.hardware.naming import series_capability, vgpu_board
from qwendeploy.hardware.usable import judge
from qwendeploy.hardware.values import VERSION
from qwendeploy.units import MIB

STUDY_CARD = "RTX PRO 6000 Blackwell Workstation"
"""The card of the published study (two of them)."""
STUDY_COUNT = 2

_COUNTED = re.compile(r"^\s*([1-9]\d?)\s*(?:x|×|\*)\s+(?=\S)", re.IGNORECASE)
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

    ``vram_gib`` chooses between sizes of a card or describes a rebuilt one. Without ``nvlink``
    the card decides: none where it has no connector, boards whose GPUs always have it, else
    unknown.

    Raises:
        UserError: an unknown or ambiguous name without memory size, or contradicting settings.
    """
    gpu, count = _counted(gpu, count)
    if driver is not None and not _DRIVER.match(driver):
        raise UserError(
            f"{driver!r} is not a driver version", where="--driver", hint="write 580 or 580.65.06"
        )
    if vram_gib is not None and not 0.5 <= vram_gib <= 2048:
        raise UserError(f"{vram_gib:g} GiB is no memory of a GPU", where="--vram")
    memory = round(vram_gib * 1024) if vram_gib is not None else None
    card = catalogue.find(gpu, memory_mib=memory)
    capability = card.compute_capability if card else series_capability(gpu)
    if card is None and (capability is None or memory is None):
        raise _unknown(gpu, catalogue)
    _check_nvlink(card, count, nvlink)
    gpus = tuple(
        Gpu(
            index=index,
            name=card.name if card else gpu.strip(),
            model=card.name if card else None,
            memory_mib=_stated_memory(card, memory),
            compute_capability=capability,
            compute_capability_by_name=capability is not None,
            vgpu=vgpu_board(gpu) is not None,
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
    )
    return with_interconnect(_of_other_vendor(judge(machine), card), catalogue)


def _counted(gpu: str, count: int | None) -> tuple[str, int]:
    """Return name and number of a text such as ``2x RTX 3090``; one GPU unless stated."""
    match = _COUNTED.match(gpu)
    if match is None:
        return gpu, count or 1
    if count is not None and count != int(match[1]):
        raise UserError(f"{gpu!r} states {match[1]} GPUs but --gpus says {count}", where="--gpu")
    return gpu[match.end() :], int(match[1])


def _of_other_vendor(machine: Machine, card: CatalogueGpu | None) -> Machine:
    if card is None or card.vendor == "NVIDIA":
        return machine
    reason = (
        f"{card.name} is a card of {card.vendor}: plans are for NVIDIA cards, of others there are"
        " no measurements here"
    )
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
    raise UserError(f"{text!r} is no system", where="--os", hint="linux, wsl2 or windows")


def assumed_machine(catalogue: Catalogue, count: int | None = None) -> Machine:
    """Return the study's machine, for somebody who is on no GPU box and names none."""
    machine = stated_machine(STUDY_CARD, count or STUDY_COUNT, catalogue=catalogue)
    note = "no GPU is stated and none is in this computer: the study's card is assumed"
    return machine.model_copy(update={"origin": "assumed", "notes": (note,)})


def _unknown(gpu: str, catalogue: Catalogue) -> UserError:
    near = catalogue.near(gpu)
    meant = f"; did you mean {', '.join(near)}?" if near else ""
    meanings = [card.name for card in catalogue.candidates(gpu)]
    if len(meanings) > 1:
        return UserError(
            f"{gpu!r} names unlike cards: {', '.join(meanings)}",
            where="--gpu",
            hint="name one of them, or add --vram",
        )
    hint = "state --vram too, or read the box with 'qwendeploy detect -o machine.yaml'"
    if series_capability(gpu) is None:
        hint = "use the name that nvidia-smi prints, or give what it prints with --machine"
    return UserError(f"no card is known as {gpu!r}{meant}", where="--gpu", hint=hint)


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


def _host_memory(
    card: CatalogueGpu | None, unified: bool, memory: int | None, host_gib: float | None
) -> int | None:
    if host_gib is not None:
        return round(host_gib * 1024)
    if not unified or card is None or not card.memory_gb_nominal:
        return None
    return memory or int(card.memory_gb_nominal * 1e9 / MIB)


def _check_nvlink(card: CatalogueGpu | None, count: int, nvlink: bool | None) -> None:
    if nvlink and count < 2:
        raise UserError("NVLink joins two or more GPUs", where="--nvlink", hint="add --gpus 2")
    if nvlink and card is not None and card.nvlink == "none":
        raise UserError(f"{card.name} has no NVLink", where="--nvlink", hint="leave it out")


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
