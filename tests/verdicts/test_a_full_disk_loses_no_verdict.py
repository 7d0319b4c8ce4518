"""A place that takes no file is refused at once; one that fills up meanwhile loses no verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from known import free_port, known_server
from measuring import POOL, small_plan, verified
from test_verify_and_compare_on_the_command_line import BRIEF, qwendeploy

from qwendeploy.documents import RunDocument
from qwendeploy.documents.files import dump_document
from qwendeploy.errors import EnvironmentProblem
from qwendeploy.reporting import verify_files
from qwendeploy.verification import session, writer

from conftest import Ran  # isort: skip


def test_a_place_below_a_file_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    url = f"http://127.0.0.1:{free_port()}"
    done = qwendeploy("verify", "--url", url, "-o", "file/run", "--wait", "0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is a file, not a directory" in done.stderr


def test_a_place_that_takes_nothing_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    with known_server(tmp_path) as known:
        done = qwendeploy("verify", "--url", known.url, "-o", "/proc/run", *BRIEF, cwd=tmp_path)
        asked = known.entries(0)
    assert (done.returncode, done.stdout) == (4, "")
    assert "cannot be written" in done.stderr and "Traceback" not in done.stderr
    assert len(asked) <= 8, "the survey alone"


def full_after(writes: int, real: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``real`` with a disk that is full after so many writes."""
    done: list[int] = []

    def write(*arguments: Any) -> Any:
        done.append(1)
        if len(done) > writes:
            raise EnvironmentProblem("cannot be written: No space left on device", where="disk")
        return real(*arguments)

    return write


def test_a_disk_that_fills_up_ends_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "write_run", full_after(1, writer.write_run))
    with known_server(tmp_path, *POOL) as known:
        run, report = verified(
            known.url, small_plan(), rate_only=True, calm=True, directory=tmp_path / "run"
        )
    assert report.exit_code == 0, report.statement
    assert any(
        "cannot write the run to disk" in text and "No space left" in text for text in run.warnings
    )
    stored = RunDocument.model_validate_json((tmp_path / "run" / "run.json").read_bytes())
    assert stored.status == "incomplete"


def test_a_report_that_cannot_be_written_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Ran]
) -> None:
    monkeypatch.setattr(verify_files, "write_atomically", full_after(0, writer.write_atomically))
    plan = tmp_path / "plan.yaml"
    plan.write_text(dump_document(small_plan()))
    with known_server(tmp_path, *POOL) as known:
        words = ("verify", plan, "--url", known.url, *BRIEF, "--rate-only", "--quick")
        shown = run(*words, "-o", tmp_path / "a")
        as_json = run(*words, "-o", tmp_path / "b", "--json")
    assert shown.code == as_json.code == 4
    assert "predicted 300 ± 36 tok/s, measured" in shown.out
    assert shown.err.count("No space left on device") == 1
    assert json.loads(as_json.out)["run"]["run_id"]
    assert "written:" not in shown.out
