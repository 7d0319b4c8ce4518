"""plan -> read back -> verify -> report against a real vLLM on the CPU; ``scripts/test-real-vllm``.

The models are tiny and random: what is tested is the conversation with the real server, its
counters and its way of failing, not what it says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from known import free_port
from measuring import small_plan
from plan_samples import figure
from vllm_models import write_stand_in

from qwendeploy.documents import Plan, Predictions
from qwendeploy.errors import EnvironmentProblem
from qwendeploy.reporting.verify_files import write_report
from qwendeploy.reporting.verify_text import verify_text
from qwendeploy.verification.expected import applied_differences
from qwendeploy.verification.settings import Settings
from qwendeploy.verification.verifying import verify
from qwendeploy.verification.wire.client import Limits
from qwendeploy.verification.wire.target import resolve_target

ROOT = os.environ.get("REAL_VLLM_ROOT")
VERSION = os.environ.get("REAL_VLLM_VERSION", "")
BOOT_S = 420.0
"""First start of a fresh environment compiles every Python file: 130 to 170 s."""
DRAFTS = '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4,"prompt_lookup_min":1}'

pytestmark = [
    pytest.mark.real_engine,
    pytest.mark.skipif(ROOT is None, reason="run by scripts/test-real-vllm"),
]


def model(kind: str) -> Path:
    """Return the folder of a tiny model, made once."""
    assert ROOT is not None
    folder = Path(ROOT) / f"{kind}-{VERSION}"
    if not (folder / "config.json").exists():
        script = Path(__file__).parents[1] / "vllm_models.py"
        python = Path(ROOT) / f"v{VERSION}" / "bin" / "python"
        subprocess.run([python, script, kind, folder], check=True)
    return folder


@contextmanager
def vllm(folder: Path, log: Path, *flags: str) -> Iterator[str]:
    """Serve a model until the block ends; waits for health."""
    assert ROOT is not None
    port = free_port()
    environment = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "2",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    if "hybrid" in folder.name:
        environment["PYTHONPATH"] = str(write_stand_in(Path(ROOT) / "stand-in"))
    with log.open("w") as out:
        process = subprocess.Popen(
            [Path(ROOT) / f"v{VERSION}" / "bin" / "vllm", "serve", folder,
             "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port),
             "--dtype", "bfloat16", "--enforce-eager", *flags],
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            end = time.monotonic() + BOOT_S
            while not healthy(port):
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < end, log.read_text()[-3000:]
                time.sleep(1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def capture(url: str, place: Path) -> None:
    """Keep one streamed answer as the server sends it: the source of the suite's fixtures."""
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "the lazy dog jumps over the quick brown"}],
        "max_tokens": 12,
        "min_tokens": 12,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        place.write_bytes(answer.read())


def tiny_plan(rate: float, spread: float) -> Plan:
    plan = small_plan(rate, spread, concurrency=4)
    option = plan.option.model_copy(
        update={
            "engine_version": VERSION,
            "checkpoint": "tiny/tiny",
            "max_model_len": 8192,
            "max_num_seqs": 8,
            "gpu_memory_utilization": 0.92,
            "prefix_cache": True,
            "spec_method": "ngram" if VERSION >= "0.3" else "none",
            "spec_tokens": 3 if VERSION >= "0.3" else 0,
        }
    )
    predictions = Predictions(
        aggregate_decode_tps=figure(rate, "tok/s", spread),
        max_typical_context_tokens=figure(6000, "tokens", 0),
        kv_pool_blocks=figure(16384, "blocks", 0.05),
    )
    return plan.model_copy(
        update={"option": option, "predictions": predictions, "served_model_name": "tiny"}
    )


SETTINGS: dict[str, Any] = {
    "level": "quick",
    "window_s": 1.0,
    "windows": 4,
    "settle_s": 20.0,
    "patience_s": 10.0,
    "repeats": 3,
    "hold_s": 2.0,
    "fill": True,
    "gates": True,
    "limits": Limits(first=120, gap=30),
}


def test_a_tiny_model_is_planned_read_back_verified_and_reported(tmp_path: Path) -> None:
    flags = ["--max-model-len", "8192", "--max-num-seqs", "8", "--reasoning-parser", "qwen3"]
    if VERSION >= "0.3":
        flags += ["--speculative-config", DRAFTS]
    with vllm(model("qwen3"), tmp_path / "server.log", *flags) as url:
        target = resolve_target(url)
        capture(url, Path(ROOT or ".") / f"stream-{VERSION}.sse")
        first, _ = verify(None, resolve_target(url, model="tiny"), Settings(**SETTINGS | {
            "fill": False, "gates": False, "concurrency": 4, "context": 600}))  # fmt: skip
        rate = first.figures["aggregate_decode_tps"]
        assert rate is not None, (first.reasons, first.steps)
        plan = tiny_plan(rate.value, 0.19)
        run, report = verify(plan, target, Settings(**SETTINGS), directory=tmp_path / "run")
    write_report(tmp_path / "run", report, plan)
    print(verify_text(report))
    assert ROOT is not None
    (Path(ROOT) / f"run-{VERSION}.json").write_text(run.model_dump_json(by_alias=True, indent=1))
    server = run.server
    assert server is not None
    assert server.version == VERSION or server.version == f"{VERSION}+cpu"
    assert server.engine == "vllm" and server.continuous_usage and server.tokenize
    assert server.max_model_len == 8192
    assert server.kv_pool_blocks and server.boot_id
    names = [difference[0] for difference in applied_differences(plan, server)]
    assert set(names) <= {"engine_version"}, "a CPU build says so in its version"
    step = next(step for step in run.steps if step.shape == "decode")
    assert step.counted == "continuous" and step.steady is not None
    assert any(window.clean for window in step.windows), step.windows
    ratio = step.server["tokens_over_client"]
    assert ratio == pytest.approx(1, abs=0.03)
    if VERSION >= "0.3":
        assert step.server["drafts"] and step.server["acceptance_position_0"] is not None
    else:
        assert step.server["drafts"] is None and server.drafting is False
    checks = {check.id: check.outcome for check in run.fill.checks}
    assert checks["running"] == checks["full_length"] == "confirmed"
    assert checks["preemptions"] == "confirmed"
    gates = {gate.id: gate for gate in run.gates}
    assert gates["over-length"].outcome == "passed", gates["over-length"].reason
    assert gates["cancel"].outcome == "passed", gates["cancel"].reason
    assert gates["arithmetic"].outcome == "failed", "the model is random"
    assert not any(step.requests.failed for step in run.steps)
    assert report.verdicts[0].measured is not None
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "complete"


@pytest.mark.skipif(not VERSION >= "0.3", reason="the hybrid model needs a newer transformers")
def test_a_hybrid_model_dies_on_its_first_request(tmp_path: Path) -> None:
    """There are no Triton kernels on a CPU: start-up works, generation kills the engine."""
    flags = ("--max-model-len", "4096", "--max-num-seqs", "4")
    with vllm(model("hybrid"), tmp_path / "server.log", *flags) as url:
        with pytest.raises(EnvironmentProblem, match="trial request fails"):
            verify(None, resolve_target(url), Settings(**SETTINGS))
        assert not healthy(int(url.rsplit(":", 1)[1]))
