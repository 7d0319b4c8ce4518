"""Cards that one stated name could mean: same chip, another size of memory."""

from __future__ import annotations

import re

from qwendeploy.hardware.stated import name_and_count
from qwendeploy.tables.gpus import GpuModel, gpus

_BRAND = re.compile(r"nvidia|geforce|tesla|\W|_")
_EDITION = re.compile(r"(?:blackwell|\d+gb|sxm\d?|pcie|nvl|hbm\d?e?)+\Z")
"""What a full name adds to a short one where only memory or form differ."""
ALIKE = 0.02
"""Relative difference of two memories below which they are one size."""


def other_sizes(stated: str, taken: GpuModel) -> tuple[str, ...]:
    """Return the cards of another memory than ``taken`` that the stated name fits as well."""
    short = _bare(name_and_count(stated)[0])
    if not short or short == _bare(taken.name) or not taken.memory_mib:
        return ()
    return tuple(
        card.name
        for card in gpus()
        if card.memory_mib
        and abs(card.memory_mib / taken.memory_mib - 1) > ALIKE
        and _bare(card.name).startswith(short)
        and _EDITION.match(_bare(card.name)[len(short) :])
    )


def _bare(name: str) -> str:
    return _BRAND.sub("", name.lower())
