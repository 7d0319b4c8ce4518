"""Which tables there are: name, row type, key, and the column that names the source.

Row types are imported when a table is opened, so that listing a few names costs nothing.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import Any

from qwendeploy.errors import UserError


@dataclass(frozen=True, slots=True)
class Table:
    """One CSV table.

    ``row`` is ``module:class`` under ``qwendeploy``; ``key`` are the columns that no two
    rows share; ``source`` is the column that starts with an id of ``sources.yaml``, if there is
    one; ``evidence`` the column that lists ids of the table of findings.
    """

    name: str
    title: str
    row: str
    key: tuple[str, ...] = ("row_id",)
    source: str | None = "source"
    evidence: str | None = None

    @property
    def row_type(self) -> type[Any]:
        """Return the row dataclass."""
        module, _, name = self.row.partition(":")
        row_type: type[Any] = getattr(importlib.import_module(f"qwendeploy.{module}"), name)
        return row_type


_DECODE, _POOL = "tables.decode:DecodeRow", "tables.pools:PoolRow"
_FOUND = "evidence"
_NO_KEY: tuple[str, ...] = ()
_TABLES = (
    Table("decode_study", "decode rates of the study", _DECODE, evidence=_FOUND),
    Table("decode_community", "decode rates other people published", _DECODE, evidence=_FOUND),
    Table("decode_h200", "own decode rates on an H200", _DECODE),
    Table("published_rates", "printed rates that are no cells", "tables.published:PublishedRate"),
    Table(
        "published_wrong",
        "printed values that are wrong",
        "tables.published:WrongValue",
        source="place",
        evidence="finding",
    ),
    Table(
        "findings",
        "contradictions in the sources",
        "tables.published:SourceFinding",
        ("finding",),
        source="evidence",
    ),
    Table(
        "experiments",
        "server configurations of the study",
        "tables.published:Experiment",
        key=("experiment", "config"),
    ),
    Table("prefill", "cold prefills", "tables.prefill:PrefillRow", evidence=_FOUND),
    Table("pools", "KV pools and how starts ended", _POOL, evidence=_FOUND),
    Table(
        "row_conditions",
        "what rows state beyond their columns",
        "tables.conditions:ConditionRow",
        source=None,
    ),
    Table("kv_use", "share of the KV pool in use", "tables.pools:KvUseRow"),
    Table("quality", "task scores", "tables.quality:ScoreRow", evidence=_FOUND),
    Table("kl", "divergence from the BF16 model", "tables.quality:KlRow"),
    Table(
        "quality_classes",
        "quality class of each checkpoint",
        "tables.quality:ClassRow",
        key=("checkpoint", "quant", "kv_cache_dtype"),
    ),
    Table(
        "checkpoints",
        "sizes and contents of checkpoints",
        "tables.checkpoints:CheckpointRow",
        key=("name", "quant"),
    ),
    Table("images", "container images", "tables.images:ImageRow", ("name",)),
    Table(
        "engine_releases",
        "defaults and arithmetic per engine release",
        "tables.releases:ReleaseRow",
        key=("fork", "tags", "since"),
    ),
    Table(
        "attention_backends",
        "attention backends that engines take",
        "engines.vllm.attention:BackendRow",
        key=("since", "compute_capabilities", "kv_cache_dtype", "drafting"),
    ),
    Table(
        "attention_stated",
        "attention backends that engines refuse",
        "engines.vllm.attention:StatedRow",
        key=("since", "backend", "kv_cache_dtype", "compute_capabilities"),
    ),
    Table("boot", "start-up times", "tables.boot:BootRow"),
    Table("gpus", "GPU catalogue", "tables.gpus:GpuModel", ("name",), source=None),
    Table("engine_flags", "flags per engine version", "engines.vllm.flags:FlagRow", _NO_KEY, None),
    Table("engine_flags_fork", "flags seen on forks", "engines.vllm.flags:ForkRow", _NO_KEY, None),
    Table("llama_flags", "options of llama-server", "engines.llama_cpp.flags:LlamaFlag", ("flag",)),
    Table(
        "memory_budget",
        "memory budgets of known starts",
        "tables.memory_budget:BudgetRow",
        key=_NO_KEY,
        source=None,
    ),
    Table(
        "acceptance",
        "draft acceptance and speed by content",
        "tables.acceptance:AcceptanceRow",
        key=_NO_KEY,
    ),
    Table(
        "memory_rest",
        "fitted rest of the memory budget",
        "tables.memory_rest:RestRow",
        key=_NO_KEY,
        source=None,
    ),
)
TABLES = {table.name: table for table in _TABLES}
"""Every shipped table; a new one is added here, and ``data check`` refuses a file that is not."""
OWN_TABLES = {
    table.name: table
    for table in (
        Table("decode_own", "one's own decode rates", _DECODE),
        Table("pools_own", "pools of one's own starts", _POOL),
    )
}


def find_table(name: str) -> Table:
    """Return the shipped table of this name.

    Raises:
        UserError: there is none; the nearest name is the hint.
    """
    table = TABLES.get(name.removesuffix(".csv"))
    if table is None:
        near = difflib.get_close_matches(name, TABLES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"tables: {', '.join(TABLES)}"
        raise UserError(f"there is no table {name!r}", hint=hint)
    return table
