"""Ctrl-C while anything is done: exit 130, a whole document that says where, no half files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from known import known_server

from qwendeploy.documents import RunDocument
from qwendeploy.documents.files import dump_document

from measuring import POOL, small_plan  # isort: skip

SCRIPT = """
import os, signal, sys
from pathlib import Path
from measuring import brief_settings
from qwendeploy.documents.files import read_plan
from qwendeploy.verification.wire.target import resolve_target
from qwendeploy.verification.verifying import verify

url, plan, directory, at, times = sys.argv[1:]
left = int(times)

def told(text, share):
    global left
    if text.startswith(at):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)

settings = brief_settings(
    concurrency=None, context=None, repeats=1, settle_s=2.0, loop_s=1.5,
    fill=at.startswith("fill"), gates=at.startswith("gates"),
    ladder_c=(1,) if at == "ladder" else (), soak_s=4.0 if at == "soak" else None,
    shapes=tuple(shape for shape in ("prompt", "mixed", "chat") if at.startswith(shape)),
)
try:
    verify(
        read_plan(Path(plan)), resolve_target(url), settings, directory=Path(directory), told=told
    )
except KeyboardInterrupt:
    sys.exit(130)
"""

STAGES = {
    "reading the server's settings": ("", 1),
    "cold prompt 1": ("first token", 1),
    "settling": ("decode", 1),
    "window 1": ("decode", 1),
    "fill: ": ("fill", 1),
    "gates: needle": ("gates", 1),
    "ladder": ("ladder c=1 context=600", 1),
    "mixed: ": ("mixed", 3),
    "soak": ("soak", 1),
}


@pytest.mark.parametrize("at", STAGES)
def test_what_was_measured_stays(tmp_path: Path, at: str) -> None:
    stage, times = STAGES[at]
    (tmp_path / "plan.yaml").write_text(dump_document(small_plan()))
    directory = tmp_path / "run"
    with known_server(tmp_path, *POOL, "--step-ms", "10") as known:
        words = [known.url, str(tmp_path / "plan.yaml"), str(directory), at, str(times)]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *words],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    if not stage:
        assert not directory.exists()
        return
    assert [path.name for path in directory.iterdir()] == ["run.json"]
    run = RunDocument.model_validate_json((directory / "run.json").read_bytes())
    assert (run.status, run.stage) == ("interrupted", stage)
    order = ["first token", "decode", "fill", "gates"]
    if stage not in order[:2]:
        assert run.figures["aggregate_decode_tps"] is not None
        assert run.client is not None
    if at == "gates: needle":
        assert len(run.gates) >= 10
    if at == "fill: ":
        assert not run.fill.tested and run.fill.reason == "started but not finished"
    if at == "mixed: ":
        (loop,) = [step for step in run.steps if step.shape == "mixed"]
        assert loop.status in ("incomplete", "failed")
    if at == "window 1":
        (decode,) = [step for step in run.steps if step.shape == "decode"]
        assert decode.status in ("incomplete", "failed")
