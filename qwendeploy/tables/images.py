"""Container images: what is in them, what they need, which to avoid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qwendeploy.tables.reader import CellError, read_table


@dataclass(frozen=True, slots=True)
class ImageRow:
    """One image reference as one would pull it.

    ``min_driver`` is the lowest NVIDIA driver branch that the image's CUDA runs on,
    ``seen_driver`` one it was seen to run on; ``compute_capabilities`` are separated by spaces;
    ``fork`` names the publisher if it is not the engine's project; ``moves`` says that the tag is
    reassigned; ``digest`` is the short digest a source prints, not enough to pull by.
    """

    name: str
    engine: Literal["vllm", "llama.cpp", "sglang"]
    engine_version: str | None
    digest: str | None
    cuda: str | None
    min_driver: int | None
    seen_driver: str | None
    compute_capabilities: str | None
    fork: str | None
    moves: bool
    verdict: Literal["ok", "avoid", "unknown"]
    reason: str | None
    date: str | None
    confidence: Literal["high", "medium", "low"]
    source: str
    note: str | None

    def __post_init__(self) -> None:
        if self.verdict != "ok" and not self.reason:
            raise CellError("reason", f"verdict {self.verdict} needs a reason")

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Return the compute capabilities the image was built for; empty if not known."""
        return tuple((self.compute_capabilities or "").split())


def image_rows() -> tuple[ImageRow, ...]:
    """Return every image. Raises as ``reader.read_csv``."""
    return read_table("images", ImageRow)


def find_image(name: str) -> ImageRow | None:
    """Return the image of exactly this reference, or ``None``."""
    return next((row for row in image_rows() if row.name == name), None)
