"""``data list`` and ``data show``: what a reader sees of the tables."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from qwendeploy import tables
from qwendeploy.cli.data import command
from qwendeploy.errors import UserError
from qwendeploy.resources import data_dir
from qwendeploy.tables.catalogue import TABLES
from qwendeploy.tables.decode import DecodeRow, decode_table
from qwendeploy.tables.frames import load, records
from qwendeploy.tables.reader import read_csv
from qwendeploy.tables.sources import source_id


def _run(*args: str) -> str:
    result = CliRunner().invoke(command, args, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def _json(*args: str) -> Any:
    return json.loads(_run(*args, "--json"))


def test_list_counts_rows_states_and_sources() -> None:
    listed = {table["name"]: table for table in _json("list")["tables"]}
    study, rows = listed["decode_study"], decode_table("decode_study")
    assert study["rows"] == len(rows)
    assert study["statuses"] == Counter(row.status for row in rows)
    assert study["sources"] == len({source_id(row.source) for row in rows})
    assert "decode_study" in _run("list")


@pytest.mark.parametrize(
    ("conditions", "meets"),
    [
        (
            ["status=capacity-limited", "experiment=19"],
            lambda row: row.status == "capacity-limited" and row.experiment == "19",
        ),
        (
            ["experiment=17", "concurrency>32", "context=0"],
            lambda row: row.experiment == "17" and row.concurrency > 32 and row.context == 0,
        ),
        (
            ["experiment=09-A", "status!=validation"],
            lambda row: row.experiment == "09-A" and row.status != "validation",
        ),
        (["running="], lambda row: row.running is None),
        (["aggregate_tps!=", "n<3"], lambda row: row.aggregate_tps is not None and row.n < 3),
        (
            ["prefix_cache=no", "gpu_memory_utilization=0.90"],
            lambda row: row.prefix_cache is False and row.gpu_memory_utilization == 0.9,
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_show_meets_every_condition(
    conditions: list[str], meets: Callable[[DecodeRow], bool]
) -> None:
    where = [part for condition in conditions for part in ("--where", condition)]
    shown = _json("show", "decode_study", *where, "--limit", "9999")
    wanted = [row.row_id for row in decode_table("decode_study") if meets(row)]
    assert wanted and [row["row_id"] for row in shown["rows"]] == wanted
    assert shown["matched"] == len(wanted)


def test_show_prints_what_rows_share_once() -> None:
    text = _run("show", "decode_study", "--where", "experiment=17", "--limit", "5")
    matched = len(tables.frame("decode_study", where="experiment=17"))
    assert text.count("repne/vllm:v17") == 1
    assert f"5 of {matched} matching rows" in text
    assert "  prefix_cache: yes\n" in text


def test_show_keeps_types_in_json() -> None:
    (row, *_) = _json("show", "images", "--where", "name=repne/vllm:v17")["rows"]
    assert (row["moves"], row["min_driver"], row["fork"]) == (False, None, "repne")


def test_show_says_when_nothing_matches() -> None:
    rows = len(decode_table("decode_study"))
    assert f"none of {rows} rows" in _run("show", "decode_study", "--where", "quant=fp5")


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


@pytest.mark.parametrize("name", sorted(TABLES))
def test_frame_has_every_row_and_column_typed(name: str) -> None:
    rows, frame = load(TABLES[name]), tables.frame(name)
    assert name in tables.names()
    assert records(frame) == [dataclasses.asdict(row) for row in rows]
    assert {str(dtype) for dtype in frame.dtypes} <= {"string", "Int64", "Float64", "boolean"}


def test_own_table_is_a_frame_before_anything_is_in_it(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("QWENDEPLOY_DATA", str(tmp_path))
    assert tables.frame("decode_own").empty
    assert _json("show", "pools_own")["rows"] == []


def test_example_of_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (data_dir("benchdata") / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(example, {})
    assert "fp8" in capsys.readouterr().out


@pytest.mark.parametrize("form", [".csv", ".json", ".md", ".parquet"])
def test_exported_table_reads_back(tmp_path: Path, form: str) -> None:
    if form == ".parquet":
        pytest.importorskip("pyarrow")
    path, where = tmp_path / f"decode_study{form}", ["--where", "experiment=17"]
    _run("export", "decode_study", "-o", str(path), *where)
    wanted = tables.frame("decode_study", where="experiment=17")
    if form == ".csv":
        again = [dataclasses.asdict(row) for row in read_csv(path, DecodeRow)]
    elif form == ".json":
        again = json.loads(path.read_text())
    elif form == ".parquet":
        again = records(pd.read_parquet(path))
    else:
        header, _, *lines = path.read_text().splitlines()
        assert header == "| " + " | ".join(wanted.columns) + " |"
        assert [line.split(" | ")[0][2:] for line in lines] == list(wanted.row_id)
        return
    assert again == records(wanted)
    with pytest.raises(UserError, match="exists already"):
        _run("export", "decode_study", "-o", str(path))


def test_export_says_what_it_cannot_write(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(UserError, match="cannot be written as"):
        _run("export", "kl", "-o", str(tmp_path / "kl.xls"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError) as caught:
        _run("export", "kl", "-o", str(tmp_path / "kl.parquet"))
    assert "pyarrow" in caught.value.what and ".csv" in (caught.value.hint or "")
    assert not list(tmp_path.iterdir())


def test_reading_the_series_needs_no_pandas() -> None:
    code = "import sys; from qwendeploy.tables.series import all_series; all_series(); " + (
        "print([name for name in ('pandas', 'scipy', 'ruamel', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
