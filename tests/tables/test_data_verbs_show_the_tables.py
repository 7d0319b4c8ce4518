"""``data list`` and ``data show``: what a reader sees of the tables."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from qwendeploy.cli.data import command
from qwendeploy.errors import UserError


def _run(*args: str) -> str:
    result = CliRunner().invoke(command, args, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def _json(*args: str) -> Any:
    return json.loads(_run(*args, "--json"))


def test_list_counts_rows_states_and_sources() -> None:
    tables = {table["name"]: table for table in _json("list")["tables"]}
    study = tables["decode_study"]
    assert study["rows"] == 1080 == sum(study["statuses"].values())
    assert study["statuses"]["validation"] == 16
    assert study["sources"] == 7
    assert "decode_study" in _run("list")


@pytest.mark.parametrize(
    ("conditions", "matched"),
    [
        (["status=capacity-limited", "experiment=19"], 2),
        (["experiment=17", "concurrency>=64"], 3),
        (["experiment=17", "concurrency>32", "context=0"], 2),
        (["experiment=09-A", "status!=validation"], 150),
        (["experiment=01", "running="], 25),
        (["prefix_cache=no", "gpu_memory_utilization=0.90", "experiment=03"], 36),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_show_meets_every_condition(conditions: list[str], matched: int) -> None:
    where = [part for condition in conditions for part in ("--where", condition)]
    assert _json("show", "decode_study", *where)["matched"] == matched


def test_show_prints_what_rows_share_once() -> None:
    text = _run("show", "decode_study", "--where", "experiment=17", "--limit", "5")
    assert text.count("repne/vllm:v17") == 1
    assert "5 of 30 matching rows" in text


def test_show_keeps_types_in_json() -> None:
    (row, *_) = _json("show", "images", "--where", "name=repne/vllm:v17")["rows"]
    assert (row["moves"], row["min_driver"], row["fork"]) == (False, None, "repne")


def test_show_says_when_nothing_matches() -> None:
    assert "none of 1080 rows" in _run("show", "decode_study", "--where", "quant=fp5")


@pytest.mark.parametrize(
    ("args", "what", "hint"),
    [
        (["show", "decode"], "no table 'decode'", "decode_"),
        (["show", "decode_study", "--where", "quants=fp8"], "no column", "quant"),
        (["show", "decode_study", "--columns", "row_id,kontext"], "no column", "context"),
        (["show", "decode_study", "--where", "quant"], "not a condition", "column=value"),
        (["show", "decode_study", "--where", "n>many"], "not a number", "number"),
        (["show", "decode_study", "--where", "quant>3"], "is text", ""),
        (["check", "no-such-folder"], "no such directory", ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_nonsense_is_refused_with_the_nearest_thing(args: list[str], what: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        _run(*args)
    assert what in caught.value.what
    assert hint in (caught.value.hint or "")


def test_folder_without_tables_is_no_folder_of_tables(tmp_path: Any) -> None:
    with pytest.raises(UserError, match="no table"):
        _run("check", str(tmp_path))


def test_reading_the_series_needs_no_pandas() -> None:
    code = "import sys; from qwendeploy.tables.series import all_series; all_series(); " + (
        "print([name for name in ('pandas', 'scipy', 'ruamel', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
