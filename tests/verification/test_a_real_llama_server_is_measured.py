"""A real engine in every run of the suite: llama.cpp on a tiny random model.

Its oddities are what a hand-made server would not think of: null content with the role, a finish
reason on an empty delta, usage without choices, tokens counted under ``timings``, counters that
move only when a request ends, connections closed after they were promised to be kept.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from known import free_port
from measuring import verified

from qwendeploy.documents import RunDocument, VerifyReport
from qwendeploy.reporting.verify_text import verify_text

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("xllamacpp", "gguf")),
    reason="xllamacpp or gguf is not installed",
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the server for the tests of this module."""
    folder, port = tmp_path_factory.mktemp("llama"), free_port()
    script = Path(__file__).parents[1] / "llama_server.py"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(script), str(port), str(folder)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("serving"), (folder / "log").read_text()[-2000:]
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture(scope="module")
def outcome(llama: str) -> tuple[RunDocument, VerifyReport]:
    return verified(llama, context=400, gates=True, shapes=("mixed",), isl=200, osl=40, loop_s=1.5)


def test_the_server_is_known_for_what_it_is(outcome: tuple[RunDocument, VerifyReport]) -> None:
    run, _ = outcome
    assert run.server is not None
    assert run.server.engine == "llama.cpp"
    assert run.server.max_model_len == 2048, "the context of a slot, not of the training"
    assert run.server.continuous_usage
    assert run.server.drafting is None
    assert run.server.metrics
    assert run.figures["kv_pool_blocks"] is None


def test_rates_and_latencies_are_measured(outcome: tuple[RunDocument, VerifyReport]) -> None:
    run, report = outcome
    assert run.status == "complete"
    step = next(step for step in run.steps if step.shape == "decode")
    assert step.counted == "continuous"
    assert not any(step.requests.failed for step in run.steps), [s.requests for s in run.steps]
    for name in ("aggregate_decode_tps", "tpot_ms", "ttft_cold_ms", "output_tps_end_to_end"):
        figure = run.figures[name]
        assert figure is not None and figure.value > 0, name
    assert all(
        300 < (step.prompt_tokens or 0) < 500 for step in run.steps if step.shape == "prompt"
    )
    assert "tok/s" in verify_text(report)


def test_gates_tell_a_random_model_from_a_useful_one(
    outcome: tuple[RunDocument, VerifyReport],
) -> None:
    _, report = outcome
    found = {gate.id: gate.outcome for gate in report.gates}
    assert found["cancel"] == "passed"
    assert found["over-length"] == "passed"
    assert found["arithmetic"] == "failed"
    assert found["reasoning-split"] == "not_run"
    assert report.exit_code == 1
