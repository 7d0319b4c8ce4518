"""One's own table: imports with provenance, refused twice, forgotten again, exported clean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from qwendeploy.cli.data import command
from qwendeploy.documents.base import Tool
from qwendeploy.documents.run import RequestCounts, RunDocument, ServerFacts, Step, Window
from qwendeploy.errors import DataError, UserError
from qwendeploy.figures import Figure, Kind
from qwendeploy.tables import importing, own
from qwendeploy.tables.checks import check_tables
from qwendeploy.tables.importers.rows import Statement
from qwendeploy.tables.series import group_series

STATED = Statement(gpu="RTX 5090", quant="nvfp4", spec_method="mtp", spec_tokens=3)


def _result(tmp_path: Path, name: str = "result.json", **changes: Any) -> Path:
    document = {
        "date": "20261130-101500",
        "model_id": "served",
        "num_prompts": 8,
        "request_rate": "inf",
        "max_concurrency": 4,
        "duration": 5.0,
        "completed": 8,
        "failed": 0,
        "total_input_tokens": 4096,
        "total_output_tokens": 2048,
        "output_throughput": 409.6,
        "mean_ttft_ms": 90.0,
        "mean_tpot_ms": 9.5,
    }
    path = tmp_path / name
    path.write_text(json.dumps(document | changes))
    return path


def _run(tmp_path: Path, status: str = "complete", **client: Any) -> Path:
    rate = Figure(
        value=1372.0,
        unit="tok/s",
        low=1340,
        high=1404,
        kind=Kind.MEASURED_HERE,
        source="run",
        n=4,
    )
    windows = tuple(
        Window(
            start_s=t,
            duration_s=5,
            tokens=6860,
            aggregate_tps=tps,
            tpot_ms=23.0,
            running_low=32,
        )
        for t, tps in ((0.0, 1360.0), (5.0, 1384.0))
    )
    step = Step(
        name="operating point",
        shape="decode",
        concurrency=32,
        context=32768,
        contexts="separate",
        status="complete",
        steady=True,
        requests=RequestCounts(sent=32, cancelled=32),
        windows=windows,
        figures={
            "aggregate_decode_tps": rate,
            "acceptance_length": rate.scaled(2.5 / 1372),
        },
    )
    run = RunDocument(
        created="2026-11-30T10:00:00Z",
        tool=Tool(version="0.1.0"),
        run_id="r1",
        status=status,
        machine_id="abc",
        server=ServerFacts(base_url="http://127.0.0.1:8000", model="qwen", version="0.20.1"),
        steps=(step,),
        **client,
    )
    path = tmp_path / "run.json"
    path.write_text(run.model_dump_json(by_alias=True))
    return path


def test_import_is_kept_with_its_provenance(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = importing.import_file(_result(tmp_path), STATED, directory=home)
    (row,) = own.own_rows(home)
    assert row == done.rows[0]
    assert row.source.split(" ")[0] == done.record.id
    (record,) = own.records(home)
    assert (record.format, record.rows, record.file) == ("vllm-bench", 1, "result.json")
    assert record.sha256.startswith(record.id.removeprefix("import-"))
    assert record.settings["spec_tokens"] == 3


def test_second_import_of_a_file_is_refused(tmp_path: Path) -> None:
    home, path = tmp_path / "home", _result(tmp_path)
    importing.import_file(path, STATED, directory=home)
    before = {file.name: file.read_bytes() for file in home.iterdir()}
    with pytest.raises(UserError, match="was imported on") as caught:
        importing.import_file(path, STATED, directory=home)
    assert "data forget import-" in (caught.value.hint or "")
    assert {file.name: file.read_bytes() for file in home.iterdir()} == before


def test_same_measurement_in_another_file_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    importing.import_file(_result(tmp_path), STATED, directory=home)
    copy = _result(tmp_path, "copy.json", tokenizer_id="other bytes, same result")
    with pytest.raises(UserError, match="in the table already"):
        importing.import_file(copy, STATED, directory=home)
    assert len(own.own_rows(home)) == 1


@pytest.mark.parametrize("changes", [{"failed": 1}, {"completed": 0}, {"duration": 50.0}], ids=str)
def test_bad_file_changes_nothing(changes: dict[str, Any], tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pytest.raises(DataError):
        importing.import_file(_result(tmp_path, **changes), STATED, directory=home)
    assert not home.exists()


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = importing.import_file(_result(tmp_path), STATED, dry_run=True, directory=home)
    assert len(done.rows) == 1
    assert not home.exists()


def test_forgotten_import_leaves_the_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = importing.import_file(_result(tmp_path), STATED, directory=home)
    other = _result(tmp_path, "other.json", max_concurrency=8, duration=4.0, output_throughput=512)
    second = importing.import_file(other, STATED, directory=home)
    assert own.forget(first.record.id, home) == 1
    assert [row.source.split(" ")[0] for row in own.own_rows(home)] == [second.record.id]
    with pytest.raises(UserError, match="no import"):
        own.forget(first.record.id, home)
    importing.import_file(_result(tmp_path), STATED, directory=home)


def test_damaged_record_is_named_and_stops_the_import(tmp_path: Path) -> None:
    home = tmp_path / "home"
    importing.import_file(_result(tmp_path), STATED, directory=home)
    (home / own.RECORDS).write_text("{")
    with pytest.raises(DataError, match="damaged"):
        importing.import_file(_result(tmp_path, "b.json", duration=5.1), STATED, directory=home)


def test_own_rows_form_a_series(tmp_path: Path) -> None:
    home = tmp_path / "home"
    importing.import_file(_result(tmp_path), STATED, directory=home)
    (series,) = group_series(own.own_rows(home))
    assert [(cell.concurrency, cell.context) for cell in series.cells] == [(4, 512)]


def test_complete_run_of_this_program_becomes_steady_rows(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = importing.import_file(_run(tmp_path), STATED, directory=home)
    (row,) = own.own_rows(home)
    assert (row.origin, row.rate_basis, row.contexts) == ("own", "steady", "separate")
    assert (row.concurrency, row.context, row.aggregate_tps) == (32, 32768, 1372.0)
    assert row.std_tps == pytest.approx(16.97, abs=0.01)
    assert row.accept_rate == pytest.approx(0.5)
    assert row.engine_version == "0.20.1"
    assert done.record.id.startswith("run-") and done.record.machine_id == "abc"
    assert "127.0.0.1" not in (home / own.TABLE).read_text()


@pytest.mark.parametrize("status", ["incomplete", "interrupted", "failed"])
def test_run_that_did_not_finish_is_refused(status: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"run is {status}"):
        importing.import_file(_run(tmp_path, status), STATED, directory=tmp_path / "home")


def test_run_limited_by_its_client_is_refused(tmp_path: Path) -> None:
    path = _run(tmp_path, client={"loop": "uvloop", "limited": True})
    with pytest.raises(DataError, match="client was the limit"):
        importing.import_file(path, STATED, directory=tmp_path / "home")


def test_run_with_an_unknown_key_is_refused_by_name(tmp_path: Path) -> None:
    path = _run(tmp_path)
    document = json.loads(path.read_text()) | {"stages": 3}
    path.write_text(json.dumps(document))
    with pytest.raises(DataError) as caught:
        importing.import_file(path, STATED, directory=tmp_path / "home")
    assert caught.value.key == "stages"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("concurrency", 10**400),
        ("concurrency", 4_000_000),
        ("context", 10**400),
        ("context", 2**40),
    ],
)
def test_run_that_no_server_can_have_done_changes_nothing(
    key: str, value: int, tmp_path: Path
) -> None:
    path, home = _run(tmp_path), tmp_path / "home"
    document = json.loads(path.read_text())
    document["steps"][0][key] = value
    path.write_text(json.dumps(document))
    with pytest.raises(DataError, match="outside"):
        importing.import_file(path, STATED, directory=home)
    assert own.own_rows(home) == ()


def test_run_in_a_list_of_one_is_read_as_the_run(tmp_path: Path) -> None:
    path = _run(tmp_path)
    path.write_text(f"[{path.read_text()}]")
    done = importing.import_file(path, STATED, directory=tmp_path / "home")
    assert done.record.machine_id == "abc"


def test_export_holds_rows_and_provenance_without_private_texts(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "contribution.json"
    stated = Statement(
        gpu="RTX 5090",
        quant="nvfp4",
        checkpoint="/home/anna/weights/Qwen3.6-27B-NVFP4",
        image="registry.anna.example:5000/vllm@sha256:0011",
        session="anna@box.example 192.168.1.7 hf_abcdefghij",
    )
    importing.import_file(_result(tmp_path, "anna-laptop.json"), stated, directory=home)
    assert importing.export(out, directory=home) == 1
    text = out.read_text()
    document = json.loads(text)
    assert document["schema"] == "qwendeploy/contribution" and document["trust"] == "submitted"
    assert document["imports"][0]["sha256"]
    for private in ("/home", "anna", "192.168", "hf_abc", "laptop", str(tmp_path)):
        assert private not in text, private
    with pytest.raises(UserError, match="exists already"):
        importing.export(out, directory=home)


@pytest.mark.parametrize(
    ("private", "public"),
    [
        ("see http://10.1.2.3:8000/v1 now", "see [address] now"),
        ("host 10.1.2.3:8000", "host [address]"),
        ("mail a.b@c.example", "mail [mail]"),
        ("HF_TOKEN: hf_0123456789", "HF_TOKEN: [key]"),
        ("api-key=abc", "[key]"),
        ("in /home/me/x.json", "in [path]"),
        ("~/models/q", "[path]"),
        (r"C:\Users\me\q", "[path]"),
        ("registry.corp.example:5000/vllm:1", "[registry]/vllm:1"),
        ("box:5000/vllm:1", "[registry]/vllm:1"),
        ("ghcr.io/aeon-7/vllm:1", "ghcr.io/aeon-7/vllm:1"),
        ("Qwen/Qwen3.6-27B-FP8", "Qwen/Qwen3.6-27B-FP8"),
        ("repne/vllm:latest@d0a200f77546", "repne/vllm:latest@d0a200f77546"),
        ("driver 610.43.02, 0.1.dev17236+g50272be4a", "driver 610.43.02, 0.1.dev17236+g50272be4a"),
    ],
)
def test_texts_are_redacted(private: str, public: str) -> None:
    assert importing.redacted(private) == public


def test_export_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no own rows"):
        importing.export(tmp_path / "c.json", directory=tmp_path / "home")


def test_commands_import_show_export_and_forget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QWENDEPLOY_DATA", str(tmp_path / "home"))
    run = CliRunner().invoke

    def call(*args: str) -> str:
        result = run(command, args, standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        return result.stdout

    path = str(_result(tmp_path))
    done = json.loads(call("import", path, "--gpu", "5090", "--quant", "nvfp4", "--json"))
    assert done["written"] and done["statuses"] == {done["rows"][0]: "ok"}
    shown = json.loads(call("show", "decode_own", "--json"))
    assert shown["rows"][0]["gpu"] == "RTX 5090"
    assert done["id"] in call("list")
    assert "1 rows" in call("export", "-o", str(tmp_path / "c.json"))
    assert "1 rows removed" in call("forget", done["id"])
    with pytest.raises(UserError, match="GPU is not stated"):
        call("import", path, "--quant", "nvfp4")


def test_own_table_passes_the_check_of_shipped_ones(tmp_path: Path) -> None:
    home = tmp_path / "home"
    importing.import_file(_result(tmp_path), STATED, directory=home)
    folder = tmp_path / "folder"
    folder.mkdir()
    text = (home / own.TABLE).read_text()
    (folder / "decode_study.csv").write_text(text)
    (problem,) = check_tables(folder).problems
    assert "not in sources.yaml" in problem.what
