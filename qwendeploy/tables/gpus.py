"""The GPU catalogue: what is publicly known of each card, and which card a name means.

``benchdata/gpus.csv`` holds one row per card as sold; an empty cell is *not known*. Rates are
dense (no structured sparsity) with FP32 accumulation, in TFLOPS; bandwidths in GB/s (10^9);
``nvlink_gbps`` is the total of one GPU in both directions, as NVIDIA prints it. ``memory_mib`` is
the total that nvidia-smi prints with the card's default ECC setting, ``memory_gb_nominal`` what
is printed on the box.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

from qwendeploy.tables.reader import read_table

MEMORY_TOLERANCE = 0.08
"""Two memory sizes within this share are one size: ECC reserves up to 6.25 % (46068 of 49140 MiB),
and nvidia-smi prints GiB where the box says GB."""

POWER_TOLERANCE = 0.03
"""Power caps within this share of a card's default cap are that default."""


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One card of the catalogue; several names separated by ``|`` in the two name columns."""

    name: str
    aliases: str | None
    smi_names: str | None
    vendor: Literal["NVIDIA", "AMD", "Intel"]
    segment: Literal[
        "consumer", "laptop", "workstation", "datacenter", "unified", "too-old", "other-vendor"
    ]
    architecture: str
    compute_capability: str | None
    memory_mib: int | None
    memory_gb_nominal: float | None
    bandwidth_gbps: float | None
    bf16_tflops: float | None
    fp16_tflops: float | None
    fp8_tflops: float | None
    fp4_tflops: float | None
    sm_count: int | None
    nvlink: Literal["none", "bridge", "board"]
    nvlink_gbps: float | None
    p2p: Literal["yes", "no", "unknown"]
    pcie_gen: int | None
    power_w: float | None
    unified: bool
    sources: str

    @property
    def every_name(self) -> tuple[str, ...]:
        """Return name, aliases and the names nvidia-smi prints."""
        listed = "|".join(part for part in (self.name, self.aliases, self.smi_names) if part)
        return tuple(listed.split("|"))

    @property
    def printed_names(self) -> tuple[str, ...]:
        """Return the names that nvidia-smi prints for this card."""
        return tuple(self.smi_names.split("|")) if self.smi_names else ()

    def has_memory(self, memory_mib: float) -> bool | None:
        """Say whether a total of ``memory_mib`` is this card's; ``None`` if its size is unknown."""
        sizes = []
        if self.memory_mib:
            sizes.append(float(self.memory_mib))
        if self.memory_gb_nominal:
            sizes.append(self.memory_gb_nominal * 1024)
        if not sizes:
            return None
        return any(abs(memory_mib - size) <= MEMORY_TOLERANCE * size for size in sizes)


_NOISE = re.compile(
    r"\((?:r|tm)\)|\b(?:nvidia|corporation|geforce|tesla|generation|gpu|edition|graphics|card"
    r"|amd|intel)\b|[®™]"
)
_NOT_WORD = re.compile(r"[^a-z0-9+]+")
_SIZE = re.compile(
    r"^(?P<name>.*?\S)[\s(_-]+(?P<size>\d{1,3})\s*g(?:i?b)?(?:\s+mod\w*)?\)?\s*$", re.IGNORECASE
)
_CUT = re.compile(r"(?:\.{2,}|…)\s*$")


def _key(name: str) -> str:
    """Return the name without maker, series filler, spaces and punctuation."""
    return _NOT_WORD.sub("", _NOISE.sub(" ", name.lower()))


def _words(name: str) -> frozenset[str]:
    """Return the words of a name in any order, letters and digits apart, without RTX and GTX."""
    words = re.findall(r"[a-z]+|\d+", _NOISE.sub(" ", name.lower()))
    return frozenset(words) - {"rtx", "gtx"}


def _printed_key(name: str) -> str:
    """Return a printed name for prefix comparison: only the maker's name and spaces removed."""
    return _NOT_WORD.sub("", name.lower()).removeprefix("nvidia")


class GpuCatalogue:
    """The cards in the table's order, with the lookup of a name as people or tools write it."""

    def __init__(self, models: tuple[GpuModel, ...]) -> None:
        self._models = models
        self._by_key: dict[str, list[GpuModel]] = {}
        for model in models:
            for key in {_key(name) for name in model.every_name}:
                self._by_key.setdefault(key, []).append(model)
        for model in models:
            short = re.sub(r"^(?:rtx|gtx)(?=\d)", "", _key(model.name))
            self._by_key.setdefault(short, [model])

    @cached_property
    def _by_words(self) -> dict[frozenset[str], list[GpuModel]]:
        found: dict[frozenset[str], list[GpuModel]] = {}
        for model in self._models:
            for words in {_words(name) for name in model.every_name}:
                found.setdefault(words, []).append(model)
        return found

    def __iter__(self) -> Iterator[GpuModel]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def candidates(
        self, name: str, *, memory_mib: float | None = None, power_w: float | None = None
    ) -> tuple[GpuModel, ...]:
        """Return the cards that a name can mean, the likeliest first; empty if it is unknown.

        A name cut by the tool (``NVIDIA RTX PRO 6000 Blac...``) means every card whose printed
        name goes on from there. Memory and power cap narrow the choice where they can: a cap
        above a card's own rules it out; a memory size that no candidate has is a rebuilt card's,
        which mostly have twice the chips' own.
        """
        found = self._named(name)
        if not found and (sized := _SIZE.match(name)):
            found = self._named(sized["name"])
            memory_mib = memory_mib or float(sized["size"]) * 1024
        found = found or self._reordered(name)
        if memory_mib is not None:
            fitting = [model for model in found if model.has_memory(memory_mib)]
            doubled = [model for model in found if model.has_memory(memory_mib / 2)]
            found = fitting or doubled or found
        if power_w is not None and len(found) > 1:
            found = _narrowed_by_power(found, power_w)
        return tuple(found)

    def _reordered(self, name: str) -> list[GpuModel]:
        """Return the cards whose name has the same words in another order (``6000 pro``).

        One word alone is none: a number may be the name of unlike cards.
        """
        words = _words(name)
        if len(words) < 2 or _CUT.search(name) or "nvidia" in name.lower():
            return []
        return self._by_words.get(words, [])

    def _named(self, name: str) -> list[GpuModel]:
        if not _CUT.search(name):
            printed = _printed_key(name)
            exact = [
                model
                for model in self._models
                if "nvidia" in name.lower()
                and printed in {_printed_key(shown) for shown in model.printed_names}
            ]
            return exact or (list(self._by_key.get(_key(name), ())) if _key(name) else [])
        stem = _printed_key(_CUT.sub("", name))
        if len(stem) < 3:
            return []
        found = [
            model
            for model in self._models
            if any(
                _printed_key(printed).startswith(stem) and _printed_key(printed) != stem
                for printed in model.printed_names
            )
        ]
        return sorted(found, key=lambda model: model.segment == "laptop")

    def find(
        self, name: str, *, memory_mib: float | None = None, power_w: float | None = None
    ) -> GpuModel | None:
        """Return the card a name means, or ``None`` if unknown or if it means unlike cards.

        Of several editions of one card the first in the table is returned; ``RTX 6000``, a name
        of three architectures, needs a memory size.
        """
        found = self.candidates(name, memory_mib=memory_mib, power_w=power_w)
        if not found or len({model.architecture for model in found}) > 1:
            return None
        return found[0]

    def near(self, name: str, count: int = 3) -> tuple[str, ...]:
        """Return up to ``count`` names of cards that resemble an unknown name."""
        direct = [model.name for model in self.candidates(name)]
        keys = difflib.get_close_matches(_key(name), list(self._by_key), n=4 * count, cutoff=0.5)
        digits = re.search(r"\d{2,4}", name)
        same = [
            model.name
            for model in self._models
            if digits and digits[0] in model.name and model.segment != "too-old"
        ]
        close = [self._by_key[key][0].name for key in keys]
        return tuple(dict.fromkeys((*direct, *close[:1], *same, *close)))[:count]


def _narrowed_by_power(found: list[GpuModel], power_w: float) -> list[GpuModel]:
    """Return the cards whose default cap is ``power_w``, else those that can draw as much."""
    low, high = power_w * (1 - POWER_TOLERANCE), power_w * (1 + POWER_TOLERANCE)
    exact = [model for model in found if model.power_w and low <= model.power_w <= high]
    able = [model for model in found if model.power_w is None or model.power_w >= low]
    return exact or able or found


@cache
def gpus() -> GpuCatalogue:
    """Return the catalogue. Raises ``DataError`` if ``benchdata/gpus.csv`` is invalid."""
    return GpuCatalogue(read_table("gpus", GpuModel))


def find_gpu(
    name: str, *, memory_mib: float | None = None, power_w: float | None = None
) -> GpuModel | None:
    """Return the catalogue's card for a name. See ``GpuCatalogue.find``."""
    return gpus().find(name, memory_mib=memory_mib, power_w=power_w)
