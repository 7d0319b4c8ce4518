"""GPU memory of this model's GGUF files, by repository and format name."""

from __future__ import annotations

import re

from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.tables.checkpoints import CheckpointRow, checkpoint_rows
from qwendeploy.units import GIB

TEXT_PARAMETERS = 26.895e9
"""Parameters that a GGUF of this model holds (text part; the image projector is a file apart):
llama.cpp counts 27.32 B with the draft head."""
_PUBLISHED_BYTES = {
    "q4_k_m": 16_817_244_384,
    "ud_q4_k_xl": 17_612_564_704,
    "ud_q5_k_xl": 20_038_256_864,
    "ud_q6_k_xl": 25_636_485_344,
    "ud_q8_k_xl": 35_325_163_744,
    "q6_k": 22.5e9,
    "ud_iq2_xxs": 9.4e9,
}
"""Files of unsloth/Qwen3.6-27B-GGUF at revision 82d411a, the last two rounded by their source."""
_BITS = {
    "q8_0": 8.5,
    "q8_k": 8.5,
    "q6_k": 6.56,
    "q5_k_m": 5.8,
    "q5_k": 5.6,
    "q5_0": 5.5,
    "q4_k": 4.85,
    "q4_0": 4.55,
    "iq4": 4.4,
    "q3_k": 3.95,
    "iq3": 3.5,
    "q2_k": 3.0,
    "iq2": 2.6,
    "bf16": 16.0,
    "f16": 16.0,
}
"""Bits a weight of llama.cpp's formats, mixtures included (llama.cpp quantize documentation)."""
_IMATRIX = re.compile(r"(?:^|[_./])i1(?:[_.]|$)")


def _form(row: CheckpointRow) -> str:
    return row.quant.removeprefix("gguf-").removeprefix("i1-").replace("-", "_")


def file_gib(file: str, repository: str = "") -> float | None:
    """Return what a GGUF of this model takes on the card, GiB.

    The embedding, which stays on the host, is not counted. ``None`` if no format is named.
    """
    text = f"{repository}/{file}".lower().replace("-", "_")
    row = _listed(text)
    form = max((name for name in _PUBLISHED_BYTES if name in text), key=len, default="")
    head = "mtp" in text
    if row is not None and len(_form(row)) >= len(form):
        size = row.gib_loaded or _on_card((row.gib_on_disk or 0.0) * GIB, text)
        return size + _head(text, needed=head and not row.mtp)
    bits = _bits(text)
    if form:
        return _on_card(_PUBLISHED_BYTES[form], text) + _head(text, needed=head)
    if bits is None:
        return None
    return _on_card(TEXT_PARAMETERS * bits / 8, text) + _head(text, needed=head)


def only_form(repository: str) -> str | None:
    """Return the format of a listed repository's one file, which needs no tag to be named."""
    forms = [_form(row) for row in checkpoint_rows() if row.name.lower() == repository.lower()]
    return forms[0] if len(forms) == 1 else None


def _listed(text: str) -> CheckpointRow | None:
    """Return the row that a name means: the longest form, then the named publisher's, then the
    largest of several publishers'."""
    rows = [
        row
        for row in checkpoint_rows()
        if row.quant.startswith("gguf-")
        and row.gib_on_disk is not None
        and _form(row) in text
        and (not row.quant.startswith("gguf-i1-") or _IMATRIX.search(text))
    ]

    def rank(row: CheckpointRow) -> tuple[int, bool, bool, float]:
        named = row.name.lower().replace("-", "_") in text
        imatrix = row.quant.startswith("gguf-i1-")
        return len(_form(row)), named, imatrix, row.gib_loaded or row.gib_on_disk or 0.0

    return max(rows, key=rank, default=None)


def _bits(text: str) -> float | None:
    return next((bits for form, bits in _BITS.items() if form in text), None)


def _on_card(size: float, text: str) -> float:
    return (size - QWEN_27B.embedding_parameters * (_bits(text) or 0.0) / 8) / GIB


def _head(text: str, *, needed: bool) -> float:
    return QWEN_27B.mtp_parameters * (_bits(text) or 0.0) / 8 / GIB if needed else 0.0
