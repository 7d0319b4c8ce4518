"""Round trip over drawn machines, workloads and settings; ``GRID_PLANS`` draws more of them."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from real_tools import lay_out

from qwendeploy import api
from qwendeploy.api import AuditRequest, Pins, Request
from qwendeploy.documents import Option, Plan, Quality, Workload
from qwendeploy.errors import NoPlan, UserError
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.rendering import KINDS, launch_of, render
from qwendeploy.tables.gpus import gpus

PLANS = int(os.environ.get("GRID_PLANS", "6"))
SEED = int(os.environ.get("GRID_SEED", "20261130"))
CARDS = [
    card.name
    for card in gpus()
    if (card.memory_mib or 0) >= 20000 and float(card.compute_capability or 0) >= 7
]
COMPARED = (
    *("engine", "quant", "kv_cache_dtype", "spec_method", "spec_tokens", "tp", "prefix_cache"),
    *("checkpoint", "gpu_memory_utilization", "max_model_len", "max_num_seqs"),
    *("max_num_batched_tokens", "capture_size"),
)


def drawn(draw: random.Random) -> tuple[dict[str, Any], Plan] | None:
    """Return a machine and a plan for it, ``None`` where nothing fits or settings contradict."""
    card, count = draw.choice(CARDS), draw.choice((1, 1, 2, 4, 8))
    workload = Workload(
        concurrency=draw.choice((1, 2, 4, 8, 16, 32, 64, 256)),
        max_context=draw.choice((4096, 16384, 32768, 131072, 262144)),
        quality=draw.choice(list(Quality)),
        contexts=draw.choice(("separate", "shared")),
        vision=draw.random() < 0.2,
        prefix_cache=draw.choice(("auto", "on", "off")),
        objective=draw.choice(("throughput", "latency", "capacity")),
    )
    settings: dict[str, Any] = {
        "upstream_only": draw.random() < 0.5,
        "engine": draw.choice((None, None, "vllm", "llama.cpp")),
        "kv_cache_dtype": draw.choice((None, None, "bf16", "fp8")),
        "spec_method": draw.choice((None, None, "none", "mtp", "dflash")),
    }
    tp, replicas = draw.choice((1, 2, 4, 8)), draw.choice((1, 2, 4, 8))
    if draw.random() < 0.4 and tp * replicas <= count:
        settings |= {"tp": tp, "replicas": replicas}
    request = Request(
        pins=Pins(**settings),
        listen=draw.choice(("127.0.0.1", "0.0.0.0", "::1", "192.0.2.7")),
        port=draw.choice((8000, 80, 65535)),
    )
    try:
        plan = api.recommend(stated_machine(card, count, catalogue=gpus()), workload, request)
    except (NoPlan, UserError):
        return None
    return {"gpu": card, "gpus": count}, plan


def compared(option: Option) -> dict[str, Any]:
    return {name: getattr(option, name) for name in COMPARED}


@pytest.mark.parametrize("number", range(PLANS))
def test_audit_finds_no_more_than_the_plan_says(number: int, tmp_path: Path) -> None:
    draw = random.Random(SEED + number)
    found = None
    while found is None:
        found = drawn(draw)
    machine, plan = found
    launch = launch_of(plan)
    stated = {warning.rule for warning in plan.warnings}
    for kind, made in KINDS.items():
        if launch.engine not in made.engines:
            continue
        alone = launch.engine == "llama.cpp" and made.replicas == "process"
        if launch.replicas > 1 and alone:
            with pytest.raises(UserError, match="one replica per process"):
                render(plan, kind)
            continue
        place = lay_out(render(plan, kind), tmp_path / kind)
        (place / "secrets.env").write_text(f"{launch.api_key_variable}=a-key-for-tests\n")
        plain = not made.container and not plan.option.fork
        version = plan.option.engine_version if plain else None

        report = api.audit(
            AuditRequest(
                source=place / made.file_of("qwendeploy"),
                machine=machine,
                engine_version=version,
                compare=False,
            )
        )

        grave = {item.id: item.text for item in report.findings if item.severity != "info"}
        assert {name: text for name, text in grave.items() if name not in stated} == {}, kind
        assert not any(item.severity == "error" for item in report.findings), kind
        read = report.launches[0].option
        assert read is not None, kind
        assert compared(read) == compared(plan.option), kind
        servers = sum(one.option is not None for one in report.launches)
        assert servers * read.replicas == launch.replicas or made.replicas == "pods"
