"""What is known on one machine: the tables and, where there are any, the user's own runs.

Own runs are read only where the user has a table of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from qwendeploy.errors import UserError
from qwendeploy.evidence.box import Box
from qwendeploy.evidence.knowledge import Knowledge, load_knowledge, slides_in
from qwendeploy.tables.memory_budget import BudgetRow
from qwendeploy.tables.own_place import has_own_tables

if TYPE_CHECKING:
    from qwendeploy.evidence.own_runs import OwnStart

NEEDED = (
    *("gpu_memory_utilization", "tp", "checkpoint", "quant", "max_num_batched_tokens"),
    *("max_num_seqs", "spec_method", "prefix_cache", "max_model_len"),
)
"""Settings without which a pool says nothing about the memory beside it."""


def knowledge_for(box: Box) -> Knowledge:
    """Return all tables with the user's own runs that speak for a machine.

    Raises:
        DataError: a table, or the user's own, is missing or has a bad value.
    """
    knowledge = load_knowledge()
    if not has_own_tables():
        return knowledge
    from qwendeploy.evidence.own_runs import load_own_runs

    runs = load_own_runs(box)
    if not runs:
        return knowledge
    starts = [_budget_row(start, box, knowledge) for start in runs.starts]
    return replace(
        knowledge,
        rows=(*knowledge.rows, *runs.rows),
        starts=(*knowledge.starts, *(row for row in starts if row is not None)),
        own=runs,
    )


def _budget_row(start: OwnStart, box: Box, knowledge: Knowledge) -> BudgetRow | None:
    """Return an own start as a known one, ``None`` if it does not say what was asked of it."""
    stated: dict[str, Any] = dict(start.settings)
    if any(stated.get(name) is None for name in NEEDED):
        return None
    try:
        checkpoint = knowledge.checkpoint(stated["checkpoint"], stated["quant"])
        files_gib = knowledge.files_gib(checkpoint)
    except UserError:
        return None
    image = knowledge.image(stated.get("image") or "")
    row = BudgetRow(
        id=start.label,
        source=start.label,
        use="here",
        gpu=box.name,
        memory_mib=box.vram_mib,
        compute_capability=box.compute_capability,
        engine_version=stated.get("engine_version") or (image and image.engine_version) or "",
        fork=image is not None and image.fork is not None,
        files_gib=files_gib,
        has_vision=checkpoint.vision is not False,
        has_mtp=checkpoint.mtp is not False,
        text_only=stated.get("vision") is not True,
        spec_tokens=stated.get("spec_tokens") or 0,
        kv_cache_dtype=stated.get("kv_cache_dtype") or "bf16",
        sliding_drafter=False,
        capture_size=stated.get("capture_size"),
        weights_gib=start.weights_gib,
        blocks=start.blocks,
        blocks_how="counter",
        note=None,
        **{name: stated[name] for name in NEEDED},
    )
    slides = slides_in(row.spec_method, row.fork, stated.get("image"), row.engine_version)
    return replace(row, sliding_drafter=slides)
