"""What a plan, or a stated image, asks of the computer that will run it."""

from __future__ import annotations

from pathlib import Path

from packaging.version import Version

from qwendeploy.documents import Plan
from qwendeploy.documents.files import read_plan
from qwendeploy.hardware.findings import Needs
from qwendeploy.planning.machines import device_indices
from qwendeploy.tables.checkpoints import checkpoint_rows, find_checkpoint
from qwendeploy.tables.images import ImageRow, find_image, image_rows

USUAL_CHECKPOINT = "Qwen/Qwen3.6-27B-FP8"
"""The default quality class's checkpoint."""


def needs_of(
    plan_file: Path | None = None,
    *,
    image: str | None = None,
    port: int | None = None,
    devices: str | None = None,
) -> Needs:
    """Return the needs of a stored plan; what is stated besides replaces the plan's part.

    Raises:
        UserError: the plan cannot be read, or ``devices`` is no list of indices.
    """
    plan = read_plan(plan_file) if plan_file is not None else None
    return needs_of_plan(plan, image=image, port=port, devices=devices)


def needs_of_plan(
    plan: Plan | None,
    *,
    image: str | None = None,
    port: int | None = None,
    devices: str | None = None,
) -> Needs:
    """Return the needs of a plan; what is stated besides replaces the plan's part.

    Raises:
        UserError: ``devices`` is no list of indices.
    """
    image = image or (plan.option.image if plan else None)
    row = find_image(image) if image else None
    indices = device_indices(devices) or (plan.gpu_indices if plan else ())
    newest = max(
        (item for item in image_rows() if _is_upstream(item)),
        key=lambda item: (Version(item.engine_version or "0"), item.min_driver or 0),
    )
    return Needs(
        image=image,
        engine=plan.option.engine if plan else row.engine if row else None,
        newest_image=newest.name if image is None else None,
        newest_min_driver=newest.min_driver if image is None else None,
        image_cuda=row.cuda if row else None,
        image_min_driver=row.min_driver if row else None,
        image_capabilities=row.capabilities if row else (),
        download_gib=_download_gib(plan),
        port=port or (plan.port if plan else 8000),
        listen=plan.listen if plan else "127.0.0.1",
        gated=plan.gated_repositories if plan else (),
        perhaps_gated=() if plan else tuple(row.name for row in checkpoint_rows() if row.gated),
        gpu_indices=indices,
    )


def _download_gib(plan: Plan | None) -> float | None:
    """Return the plan's download, without a plan the usual checkpoint's."""
    if plan is not None:
        return plan.download_gib.value if plan.download_gib else None
    usual = find_checkpoint(USUAL_CHECKPOINT)
    return usual.gib_on_disk if usual else None


def _is_upstream(row: ImageRow) -> bool:
    """Say whether the row is a fixed release of the engine's own project."""
    return row.engine == "vllm" and row.fork is None and row.verdict == "ok" and not row.moves
