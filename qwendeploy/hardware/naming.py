"""Properties of a printed GPU name: model, edition, compute capability, virtual GPU.

The catalogue decides first. A name it does not hold is compared with the series that NVIDIA sold
under one scheme of names, each with one compute capability (NVIDIA, *CUDA GPUs* list), so that a
card newer than the table still gets its number; the number is then marked *by name*.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from qwendeploy.hardware.catalogue import Catalogue, CatalogueGpu

_CUT = re.compile(r"(?:\.{2,}|…)\s*$|^(?:\.{2,}|…)")
"""nvidia-smi cuts a name's end; nvitop its beginning."""
_VGPU = re.compile(r"^(?:(?:NVIDIA|GRID)\s+)+(.{1,30}?)-(?:\d-)?(\d{1,3})([QBCA])(?:ME)?$")
_BRAND = re.compile(
    r"^(?:NVIDIA (?!SMI\b)|GeForce |Tesla |Quadro |GRID |TITAN |RTX |GTX |CMP )", re.IGNORECASE
)
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9 ()+/_.-]{1,63}$")
_NO_WORD = re.compile(r"^\(?(?:\d+\.\d[\d.]*|\d{5,})\)?$")
"""Versions and long numbers stand beside names, never in them."""
_LOWER_WORDS = frozenset({"with", "design", "nvgpu", "v2", "gpu", "c", "m", "p"})

_SERIES: tuple[tuple[str, str], ...] = (
    (r"\bGB10\b", "12.1"),
    (r"\b(?:GB300|B300)\b", "10.3"),
    (r"\b(?:GB200|B200|B100)\b", "10.0"),
    (r"\bThor\b", "11.0"),
    (r"\bRTX PRO \d{3,4}D?\b|\bRTX 50[5-9]0\b|\bRTX 6000D\b", "12.0"),
    (r"\b(?:GH200|H100|H200|H800|H20|H100NVL)\b", "9.0"),
    (r"\bRTX 40[5-9]0\b|\bRTX \d{3,4} (?:SFF )?Ada\b|\bL(?:4|40|40S|40G|20|2)\b", "8.9"),
    (r"\bOrin\b", "8.7"),
    (r"\b(?:A100|A100X|A800|A30|A30X)\b|\bPG50[69]\b", "8.0"),
    (r"\bRTX 30[5-9]0\b|\bRTX A\d{3,4}\b|\b(?:A40|A10|A10G|A16|A2|A10M)\b", "8.6"),
    (r"\bRTX 2050\b|\bMX570\b", "8.6"),
    (r"\bRTX 20[6-8]0\b|\bGTX 16[356]0\b|\bQuadro RTX [3-8]000\b|\bT(?:4|4G|10|40)\b", "7.5"),
    (r"\bTITAN RTX\b|\bT(?:400|500|550|600|1000|1200|2000)\b|\bMX(?:450|550)\b", "7.5"),
    (r"\bXavier\b", "7.2"),
    (r"\bV100S?\b|\bGV100\b|\bTITAN V\b", "7.0"),
    (r"\bP100\b|\bGP100\b", "6.0"),
    (r"\bGTX 10[1-8]0\b|\bP(?:40|4|6)\b|\bQuadro P\d{3,4}\b|\bTITAN X[pP]\b|\bMX[123]\d0\b", "6.1"),
    (r"\bGTX 9[56]0M\b|\bQuadro M(?:[56][0-9]{2}M?|1000M|1200|2000M)\b", "5.0"),
    (r"\bM(?:60|40|6|4)\b|\bGTX 9[5-8]0M?X?\b|\bQuadro M(?:[2-6]000|2200|[345]\d00M)\b", "5.2"),
    (r"\bM10\b|\bGTX 750\b|\b9[2-4]0MX?\b", "5.0"),
    (r"\bK80\b", "3.7"),
    (r"\bK[24]0[a-zA-Z]*\b|\bGTX 780\b", "3.5"),
    (r"\bGRID K[125]\w*\b|\bGTX 6[5-9]0\b|\bGTX 7[67]0\b|\bK10\b", "3.0"),
)
_SERIES_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE), cc) for pattern, cc in _SERIES)


@dataclass(frozen=True, slots=True)
class Naming:
    """What is known from a name; ``cards`` are the cards it can mean, the likeliest first."""

    truncated: bool
    vgpu: bool
    compute_capability: str | None
    cards: tuple[CatalogueGpu, ...]


def is_truncated(name: str) -> bool:
    """Say whether the table cut the name."""
    return _CUT.search(name) is not None


def looks_like_gpu(name: str) -> bool:
    """Say whether a bare text is in the form of an NVIDIA GPU's name and not a sentence.

    Names begin with a brand or hold the number of a known board, hold a digit (all but TITANs and
    Jetsons) and no words in small letters.
    """
    name = _CUT.sub("", name)
    if not _NAME.match(name) or not (_BRAND.match(name) or series_capability(name)):
        return False
    words = name.split()
    if any(word.isalpha() and word.islower() and word not in _LOWER_WORDS for word in words):
        return False
    if any(_NO_WORD.match(word) for word in words):
        return False
    return re.search(r"\d|TITAN|\b(?:Orin|Thor)\b", name, re.IGNORECASE) is not None


def vgpu_board(name: str) -> str | None:
    """Return the board under a virtual GPU's name (``GRID V100D-8C`` -> ``V100D``), or ``None``.

    The last part of such a name is the frame buffer in GiB and the licence letter.
    """
    match = _VGPU.match(name.strip())
    return match[1] if match else None


def series_capability(name: str) -> str | None:
    """Return the compute capability of the series that a name belongs to, or ``None``."""
    name = _CUT.sub("", name)
    return next((cc for pattern, cc in _SERIES_PATTERNS if pattern.search(name)), None)


def naming(
    name: str, catalogue: Catalogue, *, memory_mib: int | None = None, power_w: float | None = None
) -> Naming:
    """Return what the name, with memory and power cap, says about the card."""
    board = vgpu_board(name)
    if board is not None:
        cards = tuple(catalogue.candidates(board))
        cc = _common_capability(cards) or _board_capability(board)
        return Naming(False, True, cc, ())
    cards = tuple(catalogue.candidates(name, memory_mib=memory_mib, power_w=power_w))
    cc = _common_capability(cards) if cards else series_capability(name)
    if is_truncated(name) and not _alike(catalogue, name, memory_mib):
        return Naming(True, False, None, ())
    return Naming(is_truncated(name), False, cc, cards)


def _alike(catalogue: Catalogue, name: str, memory_mib: int | None) -> bool:
    """Say whether all cards that a cut name can mean have one compute capability.

    A card whose size is not known stays possible. A power cap rules none out: people set it, and
    ``NVIDIA GeForce ...`` with 24 GiB and 350 W is a tamed RTX 4090 as well as an RTX 3090.
    """
    meant = catalogue.candidates(name)
    fitting = [
        card for card in meant if memory_mib is None or card.has_memory(memory_mib) is not False
    ]
    return len({card.compute_capability for card in fitting or meant}) <= 1


def _common_capability(cards: tuple[CatalogueGpu, ...]) -> str | None:
    found = {card.compute_capability for card in cards}
    return found.pop() if len(found) == 1 else None


def _board_capability(board: str) -> str | None:
    """Return the capability of a vGPU board name, which may run words together (``RTXA6000``)."""
    spaced = re.sub(r"(?i)rtx(?:[ _-]?pro)?", lambda m: f" {m[0]} ", board).replace("-", " ")
    spaced = re.sub(r"\s+", " ", spaced).strip()
    for candidate in (spaced, re.sub(r"(?i)(\d)(?:[DLMX]{1,3})\b", r"\1", spaced)):
        if cc := series_capability(candidate):
            return cc
        if re.fullmatch(r"(?i)RTX [68]000", candidate):
            return "7.5"
    return None
