"""The two verbs as a user types them: exit codes, files, one-line errors, interrupts."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from known import free_port, known_server
from measuring import POOL, small_plan

from qwendeploy.documents.files import dump_document

BRIEF = ("--window", "0.6", "--windows", "3", "--settle", "4", "--patience", "1.5", "--hold",
         "0.5", "--repeats", "1", "--wait", "5")  # fmt: skip


def qwendeploy(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "qwendeploy", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def when_idle(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run again while the busy host made the client the limit, which decides nothing."""
    done = qwendeploy(*words, cwd=cwd)
    for _ in range(4):
        if "client was the bottleneck" not in done.stdout:
            break
        shutil.rmtree(cwd / "runs", ignore_errors=True)
        done = qwendeploy(*words, cwd=cwd)
    return done


@pytest.mark.parametrize(
    ("spread", "words", "said"),
    [
        pytest.param(0.3, (), "±30%, wider than ±20%: this run can refute it, not", id="wide"),
        pytest.param(0.1, ("--c", "7"), "measured but not judged: no prediction, the plan is for",
                     id="elsewhere"),
        pytest.param(0.1, ("--content", "code"), "mixed content, this run used code", id="text"),
        pytest.param(0.1, (), "", id="can-confirm"),
    ],
)  # fmt: skip
def test_what_a_run_cannot_say_is_said_before_it_begins(
    tmp_path: Path, spread: float, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "plan.yaml").write_text(dump_document(small_plan(spread=spread)))
    url = f"http://127.0.0.1:{free_port()}"
    done = qwendeploy("verify", "plan.yaml", "--url", url, "--wait", "0", *words, cwd=tmp_path)
    first, *_ = done.stderr.splitlines()
    assert said in first if said else not first.startswith("note: ")
    assert done.returncode == 4


def test_a_plan_is_verified_into_a_directory_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(dump_document(small_plan()))
    with known_server(tmp_path, *POOL) as known:
        words = ("verify", "plan.yaml", "--url", known.url, *BRIEF, "--no-gates")
        done = when_idle(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        assert done.stdout.startswith("CONFIRMED: predicted 300 ± 36 tok/s, measured ")
        (run,) = (tmp_path / "runs").iterdir()
        assert json.loads((run / "run.json").read_text())["run_id"] == run.name
        names = sorted(path.name for path in run.iterdir())
        assert names == ["report.html", "run.json", "verify.json", "verify.txt"]
        assert (run / "verify.txt").read_text() == done.stdout.rsplit("written:")[0]
        again = qwendeploy(*words, "-o", str(run), cwd=tmp_path)
        assert again.returncode == 2
        assert "--force" in again.stderr
        forced = when_idle(*words, "-o", str(run), "--force", "--json", cwd=tmp_path)
    report = json.loads(forced.stdout)
    assert report["outcome"] == "confirmed"
    assert {"verdicts", "gates", "fill", "run", "wide"} <= set(report)
    assert report["run"]["run_id"] != json.loads((run / "verify.json").read_text())["created"]


def test_rate_only_and_quick_have_their_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(dump_document(small_plan()))
    with known_server(tmp_path, *POOL) as known:
        words = ("verify", "plan.yaml", "--url", known.url, *BRIEF)
        quick = when_idle(*words, "--quick", cwd=tmp_path)
        rate_only = when_idle(*words, "--quick", "--rate-only", cwd=tmp_path)
    assert quick.returncode == 3, quick.stdout
    assert "rate confirmed, fill not tested" in quick.stdout
    assert rate_only.returncode == 0, rate_only.stdout


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_a_whole_document(tmp_path: Path, sent: signal.Signals) -> None:
    with known_server(tmp_path, *POOL) as known:
        process = subprocess.Popen(
            [sys.executable, "-m", "qwendeploy", "verify", "--url", known.url, "--quick", "-o",
             "run", "--window", "2", "--windows", "50", "--settle", "3", "--c", "2"],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        file = tmp_path / "run" / "run.json"
        end = time.monotonic() + 30
        while time.monotonic() < end:
            time.sleep(0.2)
            if file.exists() and '"aggregate_tps"' in file.read_text():
                break
        process.send_signal(sent)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "run.json" in errors and "Traceback" not in errors
    run = json.loads(file.read_text())
    assert run["status"] == "interrupted"
    windows = [window for step in run["steps"] for window in step["windows"]]
    assert len(windows) >= 1
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param((), 2, "no plan and no address", id="nothing"),
        pytest.param(("none.yaml",), 2, "no such file", id="no-plan"),
        pytest.param(("bad.yaml",), 2, "bad.yaml", id="bad-plan"),
        pytest.param(("--url", "ftp://x"), 2, "not an http address", id="scheme"),
        pytest.param(("--url", "http://u:p@h"), 2, "credentials", id="password"),
        pytest.param(("--url", "http://127.0.0.1:{port}", "--wait", "0"), 4, "not ready", id="off"),
        pytest.param(("--url", "h", "--c", "0"), 2, "--c", id="no-streams"),
        pytest.param(("--url", "h", "--ctx", "9G"), 2, "tokens", id="context"),
        pytest.param(("--url", "h", "--api-key-env", "NO_SUCH"), 2, "NO_SUCH", id="no-key"),
        pytest.param(("--url", "h", "--export-bench", "bad.yaml"), 2, "--force", id="export-there"),
        pytest.param(("--url", "h", "--rate-only", "--fill"), 2, "--rate-only", id="contradiction"),
    ],
)
def test_bad_input_is_one_message(
    tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "bad.yaml").write_text("schema: qwendeploy/plan\nplan_id: [1\n")
    port = str(free_port())
    done = qwendeploy("verify", *(w.format(port=port) for w in words), cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "u:p" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "runs").exists()


def test_runs_are_compared_and_unlike_ones_refused(tmp_path: Path) -> None:
    with known_server(tmp_path, "--tokens", "2") as slow:
        words = ("verify", "--quick", *BRIEF, "--c", "2", "--ctx", "600")
        assert qwendeploy(*words, "--url", slow.url, "-o", "a", cwd=tmp_path).returncode == 0
        assert qwendeploy(*words, "--url", slow.url, "-o", "a2", cwd=tmp_path).returncode == 0
        other = (*words, "--c", "1")
        assert qwendeploy(*other, "--url", slow.url, "-o", "c1", cwd=tmp_path).returncode == 0
    with known_server(tmp_path, "--tokens", "3", "--version", "0.32.0") as fast:
        assert qwendeploy(*words, "--url", fast.url, "-o", "b", cwd=tmp_path).returncode == 0
    same = qwendeploy("compare", "a", "a2/run.json", cwd=tmp_path)
    assert same.returncode == 0, same.stderr
    assert "the same boot" in same.stdout
    changed = qwendeploy("compare", "a", "b/verify.json", "--json", cwd=tmp_path)
    found = json.loads(changed.stdout)
    assert any(change["what"] == "server.version" for change in found["changes"])
    rate = next(d for d in found["differences"] if d["quantity"] == "aggregate_decode_tps")
    assert rate["significant"] is True
    assert rate["change"] == pytest.approx(0.5, abs=0.05)
    unlike = qwendeploy("compare", "a", "c1", cwd=tmp_path)
    assert unlike.returncode == 2
    assert "operating_point.concurrency: 2 and 1" in unlike.stderr


def test_plans_are_compared_and_mixtures_refused(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(dump_document(small_plan(300)))
    (tmp_path / "two.yaml").write_text(dump_document(small_plan(500, tp=1)))
    (tmp_path / "odd.json").write_text('{"schema": "qwendeploy/machine"}')
    done = qwendeploy("compare", "one.yaml", "two.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "option.tp: 2 -> 1" in done.stdout
    assert "+66.7%, significant" in done.stdout
    odd = qwendeploy("compare", "one.yaml", "odd.json", cwd=tmp_path)
    assert odd.returncode == 2
    assert "not a run, verify report or plan" in odd.stderr
