"""The table of releases answers for every version, and agrees with the tables beside it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from packaging.version import Version

from qwendeploy.engines.vllm.attention import backend_rows, default_backend, refusal, stated_rows
from qwendeploy.engines.vllm.flags import flag_rows
from qwendeploy.figures import Kind
from qwendeploy.image_names import image_name
from qwendeploy.models.kv_layout import layout_evidence
from qwendeploy.tables.conditions import ConditionRow, conditions_of
from qwendeploy.tables.decode import decode_rows
from qwendeploy.tables.images import image_rows
from qwendeploy.tables.prefill import prefill_rows
from qwendeploy.tables.reader import read_table
from qwendeploy.tables.releases import (
    find_release,
    newest_release,
    release_rows,
    upstream_releases,
    when_changed,
)
from qwendeploy.versions import release_of

CARDS = ("7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0", "12.1")
READ = (
    "0.20.1", "0.21.0", "0.23.0", "0.25.1", "0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0",
    "0.31.0", "0.32.0", "0.33.0",
)  # fmt: skip


def test_releases_follow_one_another() -> None:
    for before, after in pairwise(upstream_releases()):
        assert Version(before.until) < Version(after.since)


@pytest.mark.parametrize(
    ("version", "since"),
    [
        ("0.11.0", "0.19.0"),
        ("0.19.2rc1.dev205", "0.19.0"),
        ("v0.20.1", "0.20.0"),
        ("0.25.0rc1", "0.25.0"),
        ("0.27.2rc1", "0.27.0"),
        ("nightly after 0.26.0", "0.26.0"),
        ("0.40.0", "0.33.0"),
    ],
)
def test_every_version_has_a_release(version: str, since: str) -> None:
    found = find_release(version)
    assert found is not None and found.since == since


def test_words_without_a_version_have_none() -> None:
    assert find_release("nightly ba07e4a48") is None and find_release(None) is None


@pytest.mark.parametrize(
    ("image", "fork", "window"),
    [
        ("repne/vllm:v3", "repne", "own"),
        ("registry.local/repne/vllm:v3", "repne", "own"),
        ("repne/vllm:v17", "repne", "whole"),
        ("repne/vllm:v99", "repne", "whole"),
        ("ghcr.io/aeon-7/aeon-vllm-ultimate:latest", "*", "whole"),
        (None, "*", "whole"),
    ],
)
def test_a_fork_is_found_by_its_image(image: str | None, fork: str, window: str) -> None:
    found = find_release("0.30.0", fork=True, image=image)
    assert found is not None and (found.fork, found.drafter_window) == (fork, window)


def test_defaults_are_those_that_the_parsers_state() -> None:
    rows = [row for row in flag_rows() if row.name == "--gpu-memory-utilization"]
    for row in rows:
        for version in (row.since, row.until):
            found = find_release(version)
            assert found is not None and str(found.utilization) == row.default
    assert when_changed("utilization") == "0.90 up to 0.19.1, 0.92 from 0.20.0"
    assert when_changed("prefix_cache") == "off up to 0.27.1, on from 0.28.0"


def test_bare_tags_need_what_their_release_needs() -> None:
    bare = [row for row in image_rows() if image_name(row.name).variant == "" and not row.fork]
    checked = 0
    for row in bare:
        found = find_release(row.engine_version)
        if row.engine == "vllm" and found is not None:
            assert (row.cuda, row.min_driver) == (found.cuda, found.min_driver), row.name
            checked += 1
    assert checked > 10
    assert newest_release().cuda == "13.0"


def test_the_block_arithmetic_is_the_memory_models() -> None:
    for row in release_rows():
        kind, _ = layout_evidence(row.since, fork=row.fork is not None)
        assert (kind is Kind.MEASURED) == (row.block_arithmetic == "0.20"), row


def test_every_fork_of_the_images_is_answered() -> None:
    tags = {tag for row in release_rows() for tag in (row.tags or "").split()}
    ours = {image_name(row.name).tag for row in image_rows() if row.fork == "repne"}
    assert ours == tags


# --- attention backends ---


@pytest.mark.parametrize("drafting", [False, True])
@pytest.mark.parametrize("dtype", ["auto", "fp8"])
@pytest.mark.parametrize("version", READ)
def test_every_card_has_one_backend_in_every_release(
    version: str, dtype: str, drafting: bool
) -> None:
    release = Version(version)
    for card in CARDS:
        rows = [
            row
            for row in backend_rows()
            if (row.kv_cache_dtype, row.drafting) == (dtype, drafting)
            and card in row.compute_capabilities.split()
            and Version(row.since) <= release <= Version(row.until)
        ]
        assert [default_backend(version, card, dtype, drafting=drafting)] == rows
        assert rows[0].usable.split()[0] == rows[0].backend


@pytest.mark.parametrize(
    ("version", "card", "dtype", "drafting", "backend", "splits"),
    [
        ("0.26.0", "8.6", "bf16", True, "FLASH_ATTN", "no"),
        ("0.26.0", "8.6", "bf16", False, "FLASH_ATTN", "yes"),
        ("0.26.0", "12.0", "fp8", True, "FLASHINFER", "yes"),
        ("0.26.0", "9.0", "fp8", True, "FLASH_ATTN", "yes"),
        ("0.24.0", "7.5", "auto", True, "FLASHINFER", "yes"),
        ("0.25.0rc1", "7.5", "auto", True, "FLASHINFER", "yes"),
        ("v0.33.0", "7.5", "fp16", True, "TRITON_ATTN", "few"),
        ("0.40.0", "10.3", "auto", True, "FLASHINFER", "yes"),
        ("0.19.1", "8.9", "auto", True, "FLASH_ATTN", "no"),
    ],
)
def test_known_cards_take_the_backend_that_was_read(
    version: str, card: str, dtype: str, drafting: bool, backend: str, splits: str
) -> None:
    row = default_backend(version, card, dtype, drafting=drafting)
    assert row is not None and (row.backend, row.splits_kv) == (backend, splits)


def test_what_was_not_read_has_no_backend() -> None:
    assert default_backend("0.26.0", "11.0", "auto") is None
    assert default_backend("0.26.0", "6.1", "auto") is None
    assert default_backend("0.26.0", "9.0", "nvfp4") is None
    assert default_backend(None, "9.0", "auto") is None
    fork = default_backend(None, "12.0", "auto", drafting=True, fork=True)
    assert fork is not None and fork.backend == "FLASH_ATTN"


def test_a_stated_backend_is_refused_in_the_engines_words() -> None:
    assert "FA3 on SM90" in (refusal("0.33.0", "flash_attn", "12.0", "fp8") or "")
    assert refusal("0.33.0", "FLASH_ATTN", "9.0", "fp8") is None
    assert refusal("0.23.0", "FLASHINFER", "7.5", "auto") is None
    assert refusal("0.26.0", "FLASHINFER", "7.5", "auto") == "compute capability not supported"
    assert refusal("0.26.0", "NO_SUCH", "9.0", "auto") is None
    refused = [row for row in stated_rows() if not row.taken]
    assert refused and all(row.reason for row in refused)


def test_every_default_is_also_taken_when_stated() -> None:
    for row in backend_rows():
        for card in row.compute_capabilities.split():
            assert refusal(row.since, row.backend, card, row.kv_cache_dtype) is None
            assert release_of(row.until) is not None


# --- conditions of rows ---


def test_conditions_are_of_rows_that_are_there() -> None:
    known = {row.row_id for row in decode_rows()} | {row.row_id for row in prefill_rows()}
    stated = read_table("row_conditions", ConditionRow)
    assert stated and {row.row_id for row in stated} <= known
    assert all(row != ConditionRow(row.row_id) for row in stated)


def test_conditions_say_what_the_notes_say() -> None:
    for row in decode_rows():
        stated = conditions_of(row.row_id)
        note = row.note or ""
        assert (stated.memory_oc_mhz is not None) == ("memory OC +" in note), row.row_id
        assert (stated.graphs is False) == (
            "enforce-eager" in note or "cudagraph_mode=NONE" in note
        ), row.row_id
