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
    """One CSV table of ``benchdata``.

    ``row`` is ``module:class`` under ``qwendeploy``; ``key`` are the columns that no two
    rows share; ``source`` is the column that starts with an id of ``sources.yaml``, if there is
    one; ``evidence`` the column that lists ids of the table of findings.
    """

    name: str
    title: str
    row: str
    key: tuple[str, ...]
    source: str | None = None
    evidence: str | None = None

    @property
    def row_type(self) -> type[Any]:
        """Return the row dataclass."""
        module, _, name = self.row.partition(":")
        row_type: type[Any] = getattr(importlib.import_module(f"qwendeploy.{module}"), name)
        return row_type


_ID = ("row_id",)
_TABLES = (
    Table(
        "decode_study",
        "decode rates of the study",
        "tables.decode:DecodeRow",
        _ID,
        "source",
        "evidence",
    ),
    Table(
        "decode_community",
        "decode rates other people published",
        "tables.decode:DecodeRow",
        _ID,
        "source",
        "evidence",
    ),
    Table("decode_h200", "own decode rates on an H200", "tables.decode:DecodeRow", _ID, "source"),
    Table(
        "published_rates",
        "printed rates that are no cells",
        "tables.published:PublishedRate",
        _ID,
        "source",
    ),
    Table(
        "published_wrong",
        "printed values that are wrong",
        "tables.published:WrongValue",
        _ID,
        "place",
        "finding",
    ),
    Table(
        "findings",
        "contradictions in the sources",
        "tables.published:Finding",
        ("finding",),
        "evidence",
    ),
    Table(
        "experiments",
        "server configurations of the study",
        "tables.published:Experiment",
        ("experiment", "config"),
        "source",
    ),
    Table("prefill", "cold prefills", "tables.prefill:PrefillRow", _ID, "source", "evidence"),
    Table(
        "pools", "KV pools and how starts ended", "tables.pools:PoolRow", _ID, "source", "evidence"
    ),
    Table(
        "row_conditions",
        "what rows state beyond their columns",
        "tables.conditions:ConditionRow",
        _ID,
    ),
    Table("kv_use", "share of the KV pool in use", "tables.pools:KvUseRow", _ID, "source"),
    Table("quality", "task scores", "tables.quality:ScoreRow", _ID, "source", "evidence"),
    Table("kl", "divergence from the BF16 model", "tables.quality:KlRow", _ID, "source"),
    Table(
        "quality_classes",
        "quality class of each checkpoint",
        "tables.quality:ClassRow",
        ("checkpoint", "quant", "kv_cache_dtype"),
        "source",
    ),
    Table(
        "checkpoints",
        "sizes and contents of checkpoints",
        "tables.checkpoints:CheckpointRow",
        ("name", "quant"),
        "source",
    ),
    Table("images", "container images", "tables.images:ImageRow", ("name",), "source"),
    Table("boot", "start-up times", "tables.boot:BootRow", _ID, "source"),
    Table("gpus", "GPU catalogue", "tables.gpus:GpuModel", ("name",)),
    Table(
        "engine_releases",
        "defaults and arithmetic per engine release",
        "tables.releases:ReleaseRow",
        ("fork", "tags", "since"),
        "source",
    ),
    Table(
        "attention_backends",
        "attention backends that engines take",
        "engines.vllm.attention:BackendRow",
        ("since", "compute_capabilities", "kv_cache_dtype", "drafting"),
        "source",
    ),
    Table(
        "attention_stated",
        "attention backends that engines refuse",
        "engines.vllm.attention:StatedRow",
        ("since", "backend", "kv_cache_dtype", "compute_capabilities"),
        "source",
    ),
    Table("engine_flags", "flags per engine version", "engines.vllm.flags:FlagRow", ()),
    Table("engine_flags_fork", "flags seen on forks", "engines.vllm.flags:ForkRow", ()),
    Table(
        "llama_flags",
        "options of llama-server",
        "engines.llama_cpp.flags:LlamaFlag",
        ("flag",),
        "source",
    ),
    Table("memory_budget", "memory budgets of known starts", "tables.memory_budget:BudgetRow", ()),
    Table(
        "acceptance",
        "draft acceptance and speed by content",
        "tables.acceptance:AcceptanceRow",
        (),
        "source",
    ),
    Table("memory_rest", "fitted rest of the memory budget", "tables.memory_rest:RestRow", ()),
)
TABLES = {table.name: table for table in _TABLES}
"""Every table by name; a new one is added here, and ``data check`` refuses a file that is not."""


def find_table(name: str) -> Table:
    """Return the table of this name.

    Raises:
        UserError: there is none; the nearest name is the hint.
    """
    table = TABLES.get(name.removesuffix(".csv"))
    if table is None:
        near = difflib.get_close_matches(name, TABLES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"tables: {', '.join(TABLES)}"
        raise UserError(f"there is no table {name!r}", hint=hint)
    return table
