"""The GPUs that a server sees: the machine's, limited by container and variables."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import takewhile
from math import prod

from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.reading.text import whole_number
from qwendeploy.auditing.understanding.context import Context
from qwendeploy.auditing.understanding.settings import Arguments
from qwendeploy.documents import Gpu

MOST_CARDS = 64
"""Cards of a box that are told apart; ``--gpus`` takes as many."""


def gpus_of(launch: ForeignLaunch, context: Context, arguments: Arguments) -> int | None:
    """Return how many cards the server may use, ``None`` if neither machine nor launch says.

    Where a variable of a loop or a template picks them, they are as many as the layout needs.
    """
    count = _visible_gpus(launch, context)
    word = launch.env.get("CUDA_VISIBLE_DEVICES")
    if count and word is not None and "$" in word.text:
        count = min(count, max(1, _layout(arguments)[0]))
    return _reached_gpus(arguments, count)


def used_cards(launch: ForeignLaunch, context: Context, arguments: Arguments) -> Context:
    """Return the context with the cards that the server uses, where the machine's are unlike.

    Of those that container and variables leave, the engine takes the first ones; CUDA counts the
    fastest first unless ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID``. Where the choice is not told by
    indices, the context is returned as it is.
    """
    machine = context.machine
    if machine is None or len({(gpu.name, gpu.memory_mib) for gpu in machine.gpus}) < 2:
        return context
    cards = _handed_in(launch, list(machine.gpus))
    word = launch.env.get("CUDA_DEVICE_ORDER")
    if word is None or word.text.strip() != "PCI_BUS_ID":
        cards = sorted(cards, key=_pace, reverse=True)
    cards = _picked(launch, "CUDA_VISIBLE_DEVICES", cards)
    needed, known = _layout(arguments)
    if known:
        cards = cards[: max(1, needed)]
    if not cards:
        return context
    chosen = tuple(gpu.index if gpu.index is not None else 0 for gpu in cards)
    narrowed = machine.model_copy(
        update={
            "gpus": tuple(sorted(cards, key=lambda gpu: gpu.index or 0)),
            "usable_gpu_indices": chosen,
            "chosen_gpu_indices": chosen,
        }
    )
    return replace(context, machine=narrowed)


_LISTED = re.compile(r"[\w./:-]{1,80}(,[\w./:-]{1,80}){0,63}")


def card_names(launch: ForeignLaunch) -> tuple[str, ...] | None:
    """Return the cards that a launch sees in its own order, ``None`` for all of the machine.

    ``CUDA_VISIBLE_DEVICES`` counts within what the container is given; ``NVIDIA_VISIBLE_DEVICES``
    is read by container runtimes only. Docker counts a bare number of cards from the first.
    """
    handed = _handed_names(launch)
    picked = _listed(launch, "CUDA_VISIBLE_DEVICES")
    if picked is None:
        return handed
    indices = [whole_number(name) for name in picked]
    if handed is None or None in indices:
        return picked
    return tuple(handed[index] for index in indices if index is not None and index < len(handed))


def _handed_names(launch: ForeignLaunch) -> tuple[str, ...] | None:
    if launch.container is None:
        return None
    gpus = launch.container.gpus
    if gpus is not None and gpus.devices:
        return tuple(sorted(gpus.devices, key=card_order))
    if gpus is not None and gpus.passed and gpus.count is not None:
        return tuple(str(index) for index in range(min(gpus.count, MOST_CARDS)))
    return _listed(launch, "NVIDIA_VISIBLE_DEVICES")


def card_order(name: str) -> tuple[int, str]:
    """Return what sorts cards by their index; names without one come last."""
    number = whole_number(name)
    return (number, "") if number is not None else (MOST_CARDS, name)


def _listed(launch: ForeignLaunch, name: str) -> tuple[str, ...] | None:
    word = launch.env.get(name)
    text = word.text.strip() if word is not None else ""
    if not _LISTED.fullmatch(text) or text.lower() in ("all", "none", "void", "-1"):
        return None
    return tuple(text.split(","))


def _pace(gpu: Gpu) -> tuple[int, ...]:
    capability = tuple(int(part) for part in (gpu.compute_capability or "0.0").split("."))
    return (*capability, gpu.memory_mib or 0)


def _handed_in(launch: ForeignLaunch, cards: list[Gpu]) -> list[Gpu]:
    """Return the cards that the container is given, all of them where it does not say by index."""
    gpus = launch.container.gpus if launch.container else None
    indices = [whole_number(name) for name in gpus.devices] if gpus is not None else []
    if indices and None not in indices:
        return [cards[index] for index in indices if index is not None and index < len(cards)]
    return _picked(launch, "NVIDIA_VISIBLE_DEVICES", cards) if launch.container else cards


def _picked(launch: ForeignLaunch, name: str, cards: list[Gpu]) -> list[Gpu]:
    word = launch.env.get(name)
    if word is None or not re.fullmatch(r"\d{1,3}(,\d{1,3})*", word.text.strip()):
        return cards
    return [cards[int(part)] for part in word.text.strip().split(",") if int(part) < len(cards)]


def _visible_gpus(launch: ForeignLaunch, context: Context) -> int | None:
    count = len(context.machine.gpus) if context.machine is not None else None
    gpus = launch.container.gpus if launch.container else None
    if gpus is not None and gpus.passed and gpus.count is not None:
        count = min(count, gpus.count) if count is not None else gpus.count
    names = ["CUDA_VISIBLE_DEVICES"]
    if launch.container is not None:
        names.insert(0, "NVIDIA_VISIBLE_DEVICES")
    for name in names:
        word = launch.env.get(name)
        if word is not None and "$" not in word.text:
            count = _narrowed(word.text.strip(), count, runtime=name.startswith("NVIDIA"))
    return count


_LAYOUT_FLAGS = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")


def _layout(arguments: Arguments) -> tuple[int, bool]:
    """Return the cards that the stated sizes multiply to, and whether every one is a number."""
    sizes = [whole_number(arguments.value(flag) or "1") for flag in _LAYOUT_FLAGS]
    return prod(size for size in sizes if size is not None), None not in sizes


def _reached_gpus(arguments: Arguments, count: int | None) -> int | None:
    """Return the cards with those of the other hosts that a launch over several hosts names.

    A Ray cluster's size is not in the command: it is taken to be large enough. A machine's
    description may count the cards of every host already.
    """
    if not count:
        return count
    needed, _ = _layout(arguments)
    if arguments.value("--distributed-executor-backend") == "ray":
        return max(count, needed)
    nodes = whole_number(arguments.value("--nnodes") or "")
    return count * nodes if nodes is not None and needed > count else count


def _narrowed(listed: str, count: int | None, *, runtime: bool) -> int | None:
    """Return the cards that a list leaves of ``count``; CUDA stops at the first unknown index."""
    if runtime and listed.lower() in ("all", ""):
        return count
    if listed.lower() in ("", "-1", "none", "void"):
        return 0
    if re.fullmatch(r"(GPU|MIG)-[\w/-]+(,(GPU|MIG)-[\w/-]+)*", listed):
        number = len(listed.split(","))
        return min(count, number) if count is not None else number
    if not re.fullmatch(r"-?[0-9]{1,6}(,-?[0-9]{1,6})*", listed):
        return count
    indices = [int(part) for part in listed.split(",")]
    if count is None:
        return sum(1 for index in indices if index >= 0)
    known = [index for index in indices if 0 <= index < count]
    return len(known) if runtime else len(list(takewhile(known.__contains__, indices)))
