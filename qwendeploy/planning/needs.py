"""What a plan, or a stated image, asks of the computer that will run it."""

from __future__ import annotations

from collections import Counter

from qwendeploy.documents import Machine, Plan
from qwendeploy.hardware.checks.findings import DoctorFinding, Needs
from qwendeploy.planning.machines import device_indices
from qwendeploy.tables.checkpoints import checkpoint_rows, find_checkpoint
from qwendeploy.tables.images import ImageRow, find_image, image_rows
from qwendeploy.versions import NO_VERSION, parse_version

USUAL_CHECKPOINT = "Qwen/Qwen3.6-27B-FP8"
"""The default quality class's checkpoint."""


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
        key=lambda item: (parse_version(item.engine_version) or NO_VERSION, item.min_driver or 0),
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


def other_cards(plan: Plan, machine: Machine) -> DoctorFinding | None:
    """Return that the plan was made for other cards than the machine's, ``None`` if not."""
    planned = _cards(plan.machine, plan.gpu_indices)
    indices = tuple(index for index in plan.gpu_indices if index in _indices(machine))
    present = _cards(machine, indices if len(indices) == len(plan.gpu_indices) else ())
    if not present or planned == present:
        return None
    if any(name is None for name, _ in (*planned, *present)):
        return None
    return DoctorFinding(
        id="gpu-other-than-planned",
        severity="error",
        text="the plan is for other GPUs; its figures do not apply to these",
        evidence=f"planned {_listed(planned)}; this machine has {_listed(present)}",
        fix="make the plan for this machine: qwendeploy recommend",
    )


def _indices(machine: Machine) -> set[int | None]:
    return {gpu.index for gpu in machine.gpus}


def _cards(machine: Machine, indices: tuple[int, ...]) -> list[tuple[str | None, int | None]]:
    """Return kind and nominal GiB of the cards that serve, or of all."""
    return [
        (gpu.model or gpu.name, round(gpu.memory_mib / 1024) if gpu.memory_mib else None)
        for gpu in machine.gpus
        if not indices or gpu.index in indices
    ]


def _listed(cards: list[tuple[str | None, int | None]]) -> str:
    counted = Counter(f"{name}" + (f" {size} GiB" if size else "") for name, size in cards)
    return ", ".join(f"{n} x {card}" for card, n in counted.items())


def _download_gib(plan: Plan | None) -> float | None:
    """Return the plan's download, without a plan the usual checkpoint's."""
    if plan is not None:
        return plan.download_gib.value if plan.download_gib else None
    usual = find_checkpoint(USUAL_CHECKPOINT)
    return usual.gib_on_disk if usual else None


def _is_upstream(row: ImageRow) -> bool:
    """Say whether the row is a fixed release of the engine's own project."""
    return row.engine == "vllm" and row.fork is None and row.verdict == "ok" and not row.moves
