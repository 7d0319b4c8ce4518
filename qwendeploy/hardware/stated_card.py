"""A stated GPU: model, memory and compute capability."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qwendeploy.errors import UserError
from qwendeploy.hardware.catalogue import Catalogue, CatalogueGpu
from qwendeploy.hardware.naming import series_capability

MAX_GIB = 2048
"""No GPU has as much; more is a slip of the pen."""
NVIDIA_ONLY = "plans support NVIDIA GPUs only, because there are no measurements of others"

_SIZED = re.compile(r"[\s(_-]+(\d{1,4})\s*g(?:i?b)?(?:\s+mod\w*)?\)?\s*$", re.IGNORECASE | re.ASCII)
_CAPABLE = re.compile(
    r"[\s,(]+(?:cc|sm|compute(?:[ _]cap(?:ability)?)?)[ _:=]*(?:(\d{1,2}\.\d)|(\d{2,3}))\)?\s*$",
    re.IGNORECASE | re.ASCII,
)
"""``cc 12.0`` or ``sm_120`` behind a name."""
_OTHER_MAKER = re.compile(
    r"\b(?:amd|radeon|instinct|rx ?[5-9]\d{3}|w[67]\d00|mi\d{3}\w?|gfx\d+|ryzen|intel|arc"
    r"|flex \d{3}|gaudi ?\d?|apple|m[1-9] (?:pro|max|ultra)|tpu|ascend|910[bc]|trainium\d?"
    r"|inferentia\d?)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class StatedCard:
    """A described card; ``card`` is the catalogue's, ``None`` for one that nobody listed."""

    name: str
    card: CatalogueGpu | None
    memory_mib: int | None
    """The size as stated, ``None`` where only the card tells it."""
    compute_capability: str | None
    by_name: bool
    """Whether the capability is knowledge of the name and was not stated."""


def stated_card(text: str, vram_gib: float | None, catalogue: Catalogue) -> StatedCard:
    """Return the card that a text such as ``4090 48GB`` or ``Foo 9000 cc 12.0`` describes.

    Raises:
        UserError: an unknown or ambiguous name of which too little is stated, a card of another
            maker, an impossible size, or a capability that is not the card's.
    """
    name, stated = _capable(text)
    if vram_gib is not None and not 0.5 <= vram_gib <= MAX_GIB:
        raise UserError(f"{vram_gib:g} GiB is not a plausible GPU memory size", where="--vram")
    memory = round(vram_gib * 1024) if vram_gib is not None else None
    card = catalogue.find(name, memory_mib=memory)
    memory = memory or _size_behind(name, card)
    capability = card.compute_capability if card else None
    capability = capability or stated or series_capability(name)
    if stated not in (None, capability):
        raise UserError(
            f"{name} has compute capability {capability}, not {stated}",
            where="--gpu",
            hint="remove it",
        )
    if card is None and _OTHER_MAKER.search(text):
        raise UserError(f"{text.strip()!r} is not an NVIDIA GPU: {NVIDIA_ONLY}", where="--gpu")
    if card is None and (capability is None or memory is None):
        raise _unknown(text.strip(), name, catalogue, capability, memory)
    return StatedCard(
        card.name if card else name.strip(),
        card,
        memory,
        capability,
        by_name=capability is not None and stated is None,
    )


def _size_behind(name: str, card: CatalogueGpu | None) -> int | None:
    """Return the size behind a name in MiB, ``None`` without one or if it is the card's own."""
    match = _SIZED.search(name)
    if match is None or (card and card.has_memory(int(match[1]) * 1024)):
        return None
    if not 1 <= int(match[1]) <= MAX_GIB:
        raise UserError(f"{match[1]} GiB is not a plausible GPU memory size", where="--gpu")
    return int(match[1]) * 1024


def _capable(gpu: str) -> tuple[str, str | None]:
    """Return a name without the compute capability behind it, and that."""
    match = _CAPABLE.search(gpu)
    if match is None:
        return gpu, None
    return gpu[: match.start()], match[1] or f"{match[2][:-1]}.{match[2][-1]}"


def _unknown(
    as_stated: str, gpu: str, catalogue: Catalogue, capability: str | None, memory: int | None
) -> UserError:
    """Return the refusal of a name, with what resembles it and what else to state of it."""
    near = catalogue.near(gpu)
    meant = f"; did you mean {', '.join(near)}?" if near else ""
    meanings = [card.name for card in catalogue.candidates(gpu)]
    if len(meanings) > 1:
        return UserError(
            f"{gpu!r} is ambiguous: {', '.join(meanings)}",
            where="--gpu",
            hint="use one of these names, or add --vram",
        )
    name = as_stated if capability else f"{as_stated} cc 12.0"
    what = [] if capability else ["its compute capability"]
    what += [] if memory else ["its memory"]
    return UserError(
        f"unknown GPU {gpu!r}{meant}",
        where="--gpu",
        hint=f"for an unlisted GPU add {' and '.join(what)}, for example"
        f" --gpu '{name}' --vram {memory // 1024 if memory else 48}; or pass the output of"
        " nvidia-smi with --machine",
    )
