"""A load that ends early, or one value alone, is said to be so and decides nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from known import known_server

from qwendeploy.documents import RunDocument
from qwendeploy.figures import Figure, Kind
from qwendeploy.verification.judging.verdict import judge


def test_an_interrupt_after_the_first_window_leaves_an_incomplete_step(tmp_path: Path) -> None:
    """The saved document must not pass one of four windows off as the whole measurement."""
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from measuring import brief_settings\n"
        "from qwendeploy.verification.wire.target import resolve_target\n"
        "from qwendeploy.verification.verifying import verify\n"
        "def told(text, share):\n"
        "    if text.startswith('window 2'):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "verify(None, resolve_target(sys.argv[1]), brief_settings(windows=4),"
        " directory=Path(sys.argv[2]), told=told)\n"
    )
    with known_server(tmp_path, "--tokens", "2") as known:
        done = subprocess.run(
            [sys.executable, "-c", script, known.url, tmp_path / "run"],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            check=False,
        )
    assert b"KeyboardInterrupt" in done.stderr
    run = RunDocument.model_validate_json((tmp_path / "run" / "run.json").read_bytes())
    step = next(step for step in run.steps if step.shape == "decode")
    assert run.status == "interrupted"
    assert (step.status, len(step.windows)) == ("incomplete", 1)


@pytest.mark.parametrize("value", [100.0, 10.0])
def test_one_value_has_no_interval_and_decides_nothing(value: float) -> None:
    predicted = Figure(
        value=100, low=90, high=110, unit="tok/s", kind=Kind.MEASURED, source="here", n=3
    )
    one = predicted.model_copy(update={"value": value, "low": value, "high": value, "n": 1})
    assert judge("aggregate_decode_tps", predicted, one).outcome == "inconclusive"
    assert judge("kv_pool_blocks", predicted, one).outcome != "inconclusive"
