"""The shipped tables pass their own check, and what they derive from each other agrees."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

import pytest

from qwendeploy.models.kv_layout import kv_layout
from qwendeploy.models.memory import pool_tokens
from qwendeploy.resources import data_dir
from qwendeploy.tables.catalogue import TABLES
from qwendeploy.tables.checkpoints import checkpoint_rows, find_checkpoint
from qwendeploy.tables.checks import check_tables
from qwendeploy.tables.decode import decode_rows, decode_table
from qwendeploy.tables.images import image_rows
from qwendeploy.tables.pools import PoolRow, pool_rows
from qwendeploy.tables.published import Experiment, PublishedRate
from qwendeploy.tables.quality import class_rows, find_class, find_kl, kl_rows
from qwendeploy.tables.reader import read_table
from qwendeploy.tables.sources import source_id, sources


def test_shipped_tables_have_no_problem() -> None:
    report = check_tables()
    assert [str(problem) for problem in report.problems] == []
    assert set(report.rows) == set(TABLES)


def test_every_source_of_the_tables_is_listed_and_used() -> None:
    from qwendeploy.tables.frames import load

    used = {
        source_id(getattr(row, table.source))
        for table in TABLES.values()
        if table.source
        for row in load(table)
    }
    assert used == set(sources()) & used
    assert set(sources()) == used


def test_no_source_names_a_place_on_a_machine() -> None:
    for path in data_dir("benchdata").iterdir():
        text = path.read_text()
        assert "/tmp/" not in text and " ../" not in text and "/home/" not in text, path.name


def test_study_rows_belong_to_a_listed_configuration() -> None:
    known = {(row.experiment, row.config): row for row in read_table("experiments", Experiment)}
    for row in decode_table("decode_study"):
        assert row.experiment is not None and row.config is not None
        setup = known[row.experiment, row.config]
        assert (setup.image, setup.quant, setup.spec_method, setup.spec_tokens, setup.tp) == (
            (row.image, row.quant, row.spec_method, row.spec_tokens, row.tp)
        )


def test_published_means_are_the_means_of_our_rows() -> None:
    cells: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in decode_table("decode_study"):
        if row.n == 1 and row.status != "validation" and row.aggregate_tps is not None:
            master = row.row_id.split("/")[1]
            cells[master, row.concurrency, row.context].append(row.aggregate_tps)
    means = [
        rate for rate in read_table("published_rates", PublishedRate) if rate.kind == "cell-mean"
    ]
    assert means
    for mean in means:
        master = mean.row_id.split("/")[2]
        ours = statistics.fmean(cells[master, mean.concurrency, mean.context])
        assert ours == pytest.approx(mean.rate_tps, abs=0.06), mean.row_id


SOLVED = [row for row in pool_rows() if row.blocks_basis == "solved"]


@pytest.mark.parametrize("row", SOLVED, ids=lambda row: row.row_id)
def test_solved_blocks_print_the_published_tokens(row: PoolRow) -> None:
    assert row.tp and row.num_blocks and row.max_model_len and row.kv_cache_dtype
    layout = kv_layout(
        tp=row.tp,
        spec_method=row.spec_method or "none",
        spec_tokens=row.spec_tokens or 0,
        kv_cache_dtype=row.kv_cache_dtype,
        prefix_cache=bool(row.prefix_cache),
    )
    tokens, concurrency = pool_tokens(layout, row.num_blocks, row.max_model_len)
    assert tokens == row.kv_tokens
    if row.max_concurrency_x is not None:
        assert concurrency == pytest.approx(row.max_concurrency_x, abs=0.006)


def test_pools_of_our_own_starts_are_solved_to_the_blocks_they_had() -> None:
    blocks = {row.num_blocks for row in SOLVED if row.origin == "h200"}
    assert blocks >= {1387, 1396, 1701, 1714, 1766}


def test_h200_rows_say_what_they_are() -> None:
    rows = decode_table("decode_h200")
    assert all(row.dummy_weights for row in rows)
    for row in rows:
        assert row.status == "excluded" or (row.status == "synthetic") == (row.spec_method == "mtp")
    assert {row.contexts for row in rows} == {"shared", "separate"}
    unsteady = [row for row in rows if row.status == "excluded"]
    assert unsteady and all("unsteady" in (row.reason or "") for row in unsteady)


def test_community_rows_that_queue_are_not_cells_of_their_concurrency() -> None:
    rows = decode_table("decode_community")
    for row in rows:
        if (row.concurrency or 0) >= 1024:
            assert row.status == "capacity-limited", row.row_id
        if row.content == "random":
            assert row.rate_basis == "wall" or row.aggregate_tps is None, row.row_id


def test_every_gib_of_a_checkpoint_says_how_it_is_known() -> None:
    for row in checkpoint_rows():
        assert (row.kind == "unknown") == (row.gib_on_disk is None and row.gib_loaded is None)
    bf16 = find_checkpoint("Qwen/Qwen3.6-27B")
    drafter = find_checkpoint("z-lab/Qwen3.6-27B-DFlash")
    assert bf16 is not None and (bf16.gib_on_disk, bf16.kind) == (51.75, "exact")
    assert drafter is not None and drafter.gated and drafter.role == "drafter"


@pytest.mark.parametrize(
    ("checkpoint", "kv", "quality", "multiple"),
    [
        ("Qwen/Qwen3.6-27B", "bf16", "reference", 1.0),
        ("Qwen/Qwen3.6-27B-FP8", "bf16", "near", 8.6),
        ("Qwen/Qwen3.6-27B-FP8", "fp8", "near", 7.8),
        ("Lorbus/Qwen3.6-27B-int4-AutoRound", "bf16", "relaxed", 12.4),
        ("QuantTrio/Qwen3.6-27B-AWQ-6Bit", "bf16", "relaxed", 12.5),
        ("QuantTrio/Qwen3.6-27B-AWQ", "fp8", "relaxed", 14.6),
        ("sakamakismile/Qwen3.6-27B-Text-NVFP4-MTP", "fp8", "any", 18.8),
    ],
)
def test_quality_class_stands_beside_its_divergence(
    checkpoint: str, kv: str, quality: str, multiple: float
) -> None:
    row = find_class(checkpoint, kv_cache_dtype=kv)
    assert row is not None and row.quality_class == quality
    kl = find_kl(row)
    assert kl is not None and kl.noise_multiple == pytest.approx(multiple, abs=0.06)


def test_unmeasured_checkpoint_has_no_class() -> None:
    assert find_class("unsloth/Qwen3.6-27B-NVFP4") is None
    intel = find_class("Intel/Qwen3.6-27B-int4-AutoRound")
    assert intel is not None and intel.quality_class == "unknown"


def test_restart_noise_exceeds_the_distance_of_fp8() -> None:
    (restart,) = [row for row in kl_rows() if row.variant == "fp8-restart"]
    assert restart.noise_multiple == pytest.approx(12.8, abs=0.06)
    assert {row.quality_class for row in class_rows()} >= {"reference", "near", "relaxed", "any"}


def test_images_that_move_or_failed_are_to_be_avoided() -> None:
    for row in image_rows():
        if row.moves or "latest" in row.name:
            assert row.verdict == "avoid", row.name
        if row.cuda is not None:
            assert row.min_driver == {"12": 525, "13": 580}[row.cuda.split(".")[0]]
    assert {row.image for row in decode_rows() if row.image and row.image.startswith("repne/")} <= {
        row.name for row in image_rows()
    }
