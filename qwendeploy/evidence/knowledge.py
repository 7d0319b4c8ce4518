"""What the tables say, gathered once: images, checkpoints, series, known starts, quality classes.

Planning reads the tables here and hands plain values to the models. A ``Knowledge`` can be made
from part of the tables, so that advice is judged with the measurement held out.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal

from packaging.version import Version

from qwendeploy.documents import Option, Quality
from qwendeploy.documents.request import Pins
from qwendeploy.errors import UserError
from qwendeploy.evidence.box import Box
from qwendeploy.evidence.pool_estimate import KnownStarts
from qwendeploy.image_names import image_name
from qwendeploy.tables.checkpoints import CheckpointRow, checkpoint_rows
from qwendeploy.tables.decode import DecodeRow, decode_rows
from qwendeploy.tables.gpus import gpus
from qwendeploy.tables.images import ImageRow, image_rows
from qwendeploy.tables.memory_budget import BudgetRow, budget_rows
from qwendeploy.tables.quality import ClassRow, class_rows
from qwendeploy.tables.releases import find_release
from qwendeploy.tables.series import Series, all_series
from qwendeploy.versions import NO_VERSION, parse_version, release_of

if TYPE_CHECKING:
    from qwendeploy.evidence.own_runs import OwnRuns

MEASURED_IMAGES = 3
"""Images with series on the card that are considered, newest first."""

DRAFT_ROWS = 8
"""Measurements of a draft length on a card below which it is not considered there: the study's
three cells of MTP with 2, 4 and 6 tokens say nothing at eight requests and more."""


@dataclass(frozen=True)
class Knowledge:
    """Tables that every plan is made from."""

    images: tuple[ImageRow, ...]
    checkpoints: tuple[CheckpointRow, ...]
    classes: tuple[ClassRow, ...]
    series: tuple[Series, ...]
    rows: tuple[DecodeRow, ...]
    starts: tuple[BudgetRow, ...]
    complete: bool = False
    """Whether this is every row of the tables, so that fits may be shared."""
    own: OwnRuns | None = None
    """The user's own runs; ``rows`` and ``starts`` have theirs too, ``series`` has not: a run moves
    the curve of its option instead of standing beside it."""

    # --- checkpoints ---

    def checkpoint(self, name: str, quant: str) -> CheckpointRow:
        """Return the row of a checkpoint; an unknown name counts as the first of its quant.

        Raises:
            UserError: neither the name nor the quant is in the table.
        """
        named = [row for row in self.checkpoints if row.name == name and row.role == "target"]
        for row in named:
            if row.quant == quant:
                return row
        if named:
            return named[0]
        for row in self.checkpoints:
            if row.quant == quant and row.role == "target" and row.gib_on_disk:
                return row
        raise UserError(
            f"checkpoint {name!r} with weights {quant!r} is unknown",
            where="--checkpoint",
            hint="see 'qwendeploy data show checkpoints'",
        )

    def files_gib(self, checkpoint: CheckpointRow) -> float:
        """Return a checkpoint's size in GiB; the largest known of its quant if it has none.

        Raises:
            UserError: no checkpoint of this quant has a known size.
        """
        own = checkpoint.gib_on_disk or checkpoint.gib_loaded
        if own:
            return own
        sizes = [
            row.gib_on_disk or row.gib_loaded or 0.0
            for row in self.checkpoints
            if row.quant == checkpoint.quant and row.role == "target"
        ]
        if not max(sizes, default=0.0):
            raise UserError(
                f"the size of {checkpoint.name} is unknown",
                where="--checkpoint",
                hint="see 'qwendeploy data show checkpoints'",
            )
        return max(sizes)

    def drafter(self, option: Option) -> CheckpointRow | None:
        """Return the separate draft checkpoint that the option loads, if any."""
        if option.spec_method != "dflash":
            return None
        return next(row for row in self.checkpoints if row.role == "drafter")

    def quality(self, option: Option) -> Quality:
        """Return the quality class of weights and KV cache; unknown weights are ``any``."""
        return self.quality_of(option.checkpoint, option.quant, option.kv_cache_dtype)

    def quality_of(self, checkpoint: str, quant: str, kv_cache_dtype: str) -> Quality:
        """Return the class of a checkpoint with a KV type; the exact KV type wins over none."""
        found = [row for row in self.classes if row.checkpoint == checkpoint and row.quant == quant]
        for wanted in (kv_cache_dtype, None):
            for row in found:
                if row.kv_cache_dtype == wanted and row.quality_class != "unknown":
                    return Quality(row.quality_class)
        return Quality.ANY

    # --- images ---

    def image(self, name: str) -> ImageRow | None:
        """Return the row of an image, ``None`` if the table does not have it."""
        return next((image for image in self.images if image.name == name), None)

    def sliding_drafter(self, option: Option) -> bool:
        """Say whether the image gives DFlash's sliding layers their own cache spec."""
        return slides_in(option.spec_method, option.fork, option.image, option.engine_version)

    def candidate_images(
        self, box: Box, pins: Pins, *, any_release: bool = False
    ) -> tuple[ImageRow, ...]:
        """Return the images worth considering on a machine, those measured on its card first.

        ``any_release`` adds the newest upstream release, whoever ran it.

        Raises:
            UserError: a stated image is not known and its engine version cannot be read.
        """
        if pins.image:
            return (self.image(pins.image) or self._unknown_image(pins.image),)
        measured = [] if pins.upstream_only else self._measured_forks(box)
        upstream = self._newest_upstream(box)
        if any_release:
            upstream = (*upstream, *self._newest_upstream(box, anywhere=True))
        found = {image.name: image for image in (*self._own_images(), *measured, *upstream)}
        return tuple(image for image in found.values() if not (pins.upstream_only and image.fork))

    def _unknown_image(self, name: str) -> ImageRow:
        version = image_name(name).version
        if version is None:
            fit = [row.name for row in self.images if row.verdict != "avoid"]
            alike = difflib.get_close_matches(name, fit, n=1)
            raise UserError(
                f"image {name!r} is unknown and its tag names no engine version",
                where="--image",
                hint=f"did you mean {alike[0]}?" if alike else "see 'qwendeploy data show images'",
            )
        return _stated_image(name, version)

    def llama_image(self, pins: Pins) -> ImageRow:
        """Return the image that runs GGUF files: as stated, else the one that was seen to.

        Raises:
            UserError: a stated image is not known.
        """
        if pins.image:
            return self.image(pins.image) or _stated_image(pins.image, "", "llama.cpp")
        return next(
            image for image in self.images if image.engine == "llama.cpp" and not image.moves
        )

    def _own_images(self) -> list[ImageRow]:
        """Return the images that this machine ran, known ones unless they are to be avoided."""
        found = []
        for name in self.own.images if self.own else ():
            row = self.image(name) or _image_as_run(name, self.rows)
            if row is not None and row.engine == "vllm" and row.verdict != "avoid":
                found.append(row)
        return found

    def _measured_forks(self, box: Box) -> list[ImageRow]:
        names = {series.key.image for series in self.series_on(box.name)}
        found = [
            image
            for image in self.images
            if image.name in names and image.fork and image.verdict == "ok" and not image.moves
        ]
        found.sort(key=_age, reverse=True)
        return found[:MEASURED_IMAGES]

    def _newest_upstream(self, box: Box, *, anywhere: bool = False) -> tuple[ImageRow, ...]:
        """Return the newest upstream release with evidence, on this card if there is any.

        ``anywhere``: evidence on any card counts as much.

        Where the driver is too old for it, the newest with CUDA 12 stands beside it, so that the
        driver rule has something to choose.
        """
        releases = [
            image
            for image in self.images
            if image.engine == "vllm"
            and not image.fork
            and image.verdict == "ok"
            and not image.moves
        ]
        places: list[Callable[[DecodeRow], bool]] = [
            lambda row: row.gpu == box.name,
            lambda row: row.gpu in self._cards_like(box),
            lambda _row: True,
        ]
        for near in places[2:] if anywhere else places:
            versions = {
                release_of(row.engine_version)
                for row in self.rows
                if row.usable and row.engine == "vllm" and not row.fork and near(row)
            }
            found = [image for image in releases if release_of(image.engine_version) in versions]
            if found:
                break
        of_13 = [image for image in found if (image.cuda or "").startswith("13")]
        of_12 = [image for image in found if (image.cuda or "").startswith("12")]
        if not of_12:
            of_12 = [image for image in releases if (image.cuda or "").startswith("12")]
        driver = parse_version(box.machine.driver)
        floor = max((image.min_driver or 0 for image in of_13), default=0)
        if of_13 and (driver is None or driver.major >= floor):
            of_12 = []
        return tuple(max(group, key=_age) for group in (of_13, of_12) if group)

    def _cards_like(self, box: Box) -> frozenset[str]:
        return frozenset(
            card.name for card in gpus() if card.compute_capability == box.compute_capability
        )

    # --- rows ---

    @cached_property
    def _support(self) -> Counter[tuple[object, ...]]:
        return Counter(
            (row.gpu, row.quant, row.spec_method or "none", row.spec_tokens or 0, row.tp)
            for row in self.rows
            if row.usable
        )

    def support(self, option: Option, box: Box) -> int:
        """Return how many measurements there are of this card, weights, draft and layout."""
        key = (box.name, option.quant, option.spec_method, option.spec_tokens, option.tp)
        return self._support[key]

    @cached_property
    def _draft_lengths(self) -> Counter[tuple[str, str, int]]:
        return Counter(
            (row.gpu, row.spec_method, row.spec_tokens)
            for row in self.rows
            if row.usable and row.engine == "vllm" and row.spec_method and row.spec_tokens
        )

    def measured_drafts(self, box: Box) -> set[tuple[str, int]]:
        """Return the (method, length) pairs with ``DRAFT_ROWS`` measurements on this card."""
        found = {
            (method, tokens)
            for (gpu, method, tokens), rows in self._draft_lengths.items()
            if gpu == box.name and rows >= DRAFT_ROWS
        }
        return found | self.own.drafts if self.own else found

    @cached_property
    def known_starts(self) -> KnownStarts:
        """The starts, indexed."""
        return KnownStarts(self.starts)

    # --- series ---

    @cached_property
    def _by_gpu(self) -> dict[str, tuple[Series, ...]]:
        found: dict[str, list[Series]] = {}
        for series in self.series:
            if series.cells:
                found.setdefault(series.key.gpu, []).append(series)
        return {gpu: tuple(group) for gpu, group in found.items()}

    def series_on(self, gpu: str) -> tuple[Series, ...]:
        """Return the series with usable cells on a card of the catalogue."""
        return self._by_gpu.get(gpu, ())


def slides_in(method: str, fork: bool, image: str | None, version: str | None) -> bool:
    """Say whether a build gives DFlash's sliding layers their own cache spec."""
    release = find_release(version, fork=fork, image=image)
    return method == "dflash" and release is not None and release.drafter_window == "own"


def _age(image: ImageRow) -> Version:
    return parse_version(image.engine_version) or NO_VERSION


def _image_as_run(name: str, rows: Iterable[DecodeRow]) -> ImageRow | None:
    """Return an image that no table has by what its own runs say of it."""
    versions = (row.engine_version for row in rows if row.image == name and row.engine_version)
    version = next(versions, None)
    return None if version is None else _stated_image(name, version)


def _stated_image(
    name: str, version: str, engine: Literal["vllm", "llama.cpp"] = "vllm"
) -> ImageRow:
    return ImageRow(
        name=name,
        engine=engine,
        engine_version=version or None,
        digest=None,
        cuda=None,
        min_driver=None,
        seen_driver=None,
        compute_capabilities=None,
        fork=image_name(name).publisher,
        moves=False,
        verdict="unknown",
        reason="stated by the user; not in the tables",
        date=None,
        confidence="low",
        source="stated",
        note=None,
    )


@cache
def load_knowledge() -> Knowledge:
    """Return all tables.

    Raises:
        DataError: a table is missing or has a bad value.
    """
    return Knowledge(
        images=image_rows(),
        checkpoints=checkpoint_rows(),
        classes=class_rows(),
        series=all_series(),
        rows=decode_rows(),
        starts=budget_rows(),
        complete=True,
    )
