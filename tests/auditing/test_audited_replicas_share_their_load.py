"""Alike engines of one file are judged together, at the load that the plan was made for."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from real_tools import lay_out

from qwendeploy import api
from qwendeploy.api import AuditRequest, Pins, Request
from qwendeploy.cli.audit import command
from qwendeploy.documents import Plan, Workload
from qwendeploy.documents.audit import AuditDocument
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.rendering import KINDS, render
from qwendeploy.reporting.audit_text import audit_text
from qwendeploy.tables.gpus import gpus


def audited(plan: Plan, kind: str, folder: Path, card: str, count: int) -> AuditDocument:
    place = lay_out(render(plan, kind), folder)
    (place / "secrets.env").write_text(f"{plan.option.engine}_API_KEY=a-key-for-tests\n")
    return api.audit(
        AuditRequest(
            source=place / KINDS[kind].file_of("qwendeploy"),
            machine={"gpu": card, "gpus": count},
            concurrency=plan.workload.concurrency,
            typical_context=plan.operating_point.context,
            content=plan.workload.content,
            contexts=plan.workload.contexts,
        )
    )


SERVICE = """
  {name}:
    image: vllm/vllm-openai:v0.24.0
    command: >-
      Qwen/Qwen3.6-27B-FP8 --max-model-len {length} --max-num-seqs 32
      --no-enable-prefix-caching --reasoning-parser qwen3
    profiles: [{profile}]
    ipc: host
    ports: ["127.0.0.1:{port}:8000"]
    volumes: ["./hf:/root/.cache/huggingface"]
    deploy:
      resources:
        reservations:
          devices: [{{driver: nvidia, device_ids: ["{card}"], capabilities: [gpu]}}]
"""


def composed(folder: Path, *services: dict[str, object]) -> AuditDocument:
    same = {"length": 8192, "profile": "all"}
    texts = [
        SERVICE.format(**{"name": f"e{at}", "port": 8001 + at, "card": at, **same, **service})
        for at, service in enumerate(services)
    ]
    file = folder / "compose.yaml"
    file.write_text("services:" + "".join(texts))
    machine = {"gpu": "H100 NVL", "gpus": 4}
    return api.audit(AuditRequest(source=file, machine=machine, concurrency=30))


def test_what_differs_or_does_not_run_together_shares_nothing(tmp_path: Path) -> None:
    def engines(*services: dict[str, object]) -> list[int]:
        return [launch.engines for launch in composed(tmp_path, *services).launches]

    assert engines({}, {}, {}) == [3, 3, 3]
    assert engines({}, {"length": 16384}, {}) == [2, 1, 2]
    assert engines({}, {"profile": "other"}) == [1, 1]
    assert engines({"card": 0}, {"card": 0}) == [1, 1]


def test_a_share_of_the_load_is_slower_than_all_of_it_and_faster_a_user(tmp_path: Path) -> None:
    alone, three = composed(tmp_path, {}).predictions, composed(tmp_path, {}, {}, {}).predictions
    assert alone.aggregate_decode_tps is not None and three.aggregate_decode_tps is not None
    assert 1 < three.aggregate_decode_tps.value / alone.aggregate_decode_tps.value <= 3.2
    assert alone.per_user_decode_tps is not None and three.per_user_decode_tps is not None
    assert three.per_user_decode_tps.value > alone.per_user_decode_tps.value


def test_pods_beyond_the_machine_take_their_share_elsewhere(tmp_path: Path) -> None:
    machine = stated_machine("H100 NVL", 4, catalogue=gpus())
    pins = Pins(quant="fp8", tp=1, replicas=4)
    plan = api.recommend(machine, Workload(concurrency=200, max_context=8192), Request(pins=pins))
    report = audited(plan, "kubernetes", tmp_path, "H100 NVL", 2)
    assert (report.launches[0].engines, report.launches[0].concurrency) == (2, 100)


def test_the_command_asks_for_contexts_and_content_as_recommend_does(tmp_path: Path) -> None:
    launch = tmp_path / "run.sh"
    launch.write_text(
        "vllm serve Qwen/Qwen3.6-27B-FP8 --host 127.0.0.1 --max-model-len 32768 --max-num-seqs 32 "
        "--enable-prefix-caching --reasoning-parser qwen3"
    )
    told = {
        options: CliRunner().invoke(
            command,
            [str(launch), "--gpu", "H200", "--engine-version", "0.24.0", "--c", "32", *options],
            standalone_mode=False,
        )
        for options in ((), ("--separate-contexts",), ("--content", "code"))
    }
    assert "contexts shared" in " ".join(told[()].output.split())
    assert "contexts shared" not in " ".join(told["--separate-contexts",].output.split())
    assert "code" in told["--content", "code"].output


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        (
            "llama-server -hf sokann/Qwen3.6-27B-GGUF-4.256bpw --no-mmproj -ngl 99 -c 40960 -np 1 "
            "-fa on -ctk q8_0 -ctv q8_0",
            {"gpu": "RTX 5080"},
        ),
        (
            "vllm serve Qwen/Qwen3.6-27B-FP8 --host 127.0.0.1 --max-model-len 32768 "
            "--max-num-seqs 8 --no-enable-prefix-caching --reasoning-parser qwen3 "
            """--speculative-config '{"method":"ngram","num_speculative_tokens":3}'""",
            {"gpu": "H200"},
        ),
    ],
)
def test_what_planning_refuses_is_not_said_to_work(
    text: str, machine: dict[str, str], tmp_path: Path
) -> None:
    launch = tmp_path / "run.sh"
    launch.write_text(text)
    report = api.audit(AuditRequest(source=launch, machine=machine, engine_version="0.24.0"))
    told = audit_text(report)
    assert report.launches[0].doubt is not None
    assert "runs as configured" not in told
    assert "cannot run" not in told
