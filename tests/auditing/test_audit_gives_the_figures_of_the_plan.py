"""Round trip: recommend, generate in every kind, audit each artefact at the plan's own load.

``audit`` reads back the plan's option, gives its figures to the last digit, and warns of nothing
that the plan does not warn of. ``GRID_PLANS`` draws more plans than the few that are drawn.
"""

from __future__ import annotations

import os
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from real_tools import lay_out

from qwendeploy import api
from qwendeploy.api import AuditRequest, Pins, Request
from qwendeploy.documents import Content, Objective, Option, Plan, Quality, Workload
from qwendeploy.documents.audit import AuditDocument
from qwendeploy.errors import NoPlan, UserError
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.rendering import KINDS, render
from qwendeploy.reporting.audit_text import audit_text
from qwendeploy.tables.gpus import gpus

PLANS = int(os.environ.get("GRID_PLANS", "6"))
SEED = int(os.environ.get("GRID_SEED", "20261130"))
PRO = "RTX PRO 6000 Blackwell Workstation"
V100 = "V100 SXM2 32GB"
LLAMA = {"engine": "llama.cpp"}
UPSTREAM = {"upstream_only": True}
MTP = {"quant": "fp8", "spec_method": "mtp", "spec_tokens": 3, "tp": 1}

Scene = tuple[str, int, Workload, Request]


def scene(
    card: str,
    count: int,
    concurrency: int,
    length: int,
    pins: dict[str, Any] | None = None,
    *,
    listen: str = "127.0.0.1",
    **workload: Any,
) -> Scene:
    load = Workload(concurrency=concurrency, max_context=length, **workload)
    return card, count, load, Request(pins=Pins(**pins or {}), listen=listen)


SCENES: dict[str, Scene] = {
    "showcase": scene(PRO, 2, 32, 262144),
    "upstream": scene(PRO, 2, 32, 131072, UPSTREAM),
    "upstream, two replicas": scene(PRO, 2, 64, 16384, UPSTREAM | {"tp": 1, "replicas": 2}),
    "upstream, four replicas": scene(
        "H100 NVL", 4, 200, 8192, {"quant": "fp8", "tp": 1, "replicas": 4}, contexts="shared"
    ),
    "fork, one replica": scene(PRO, 1, 8, 65536, MTP),
    "fork, two replicas": scene(PRO, 2, 16, 65536, MTP | {"replicas": 2}),
    "fork, four replicas": scene(PRO, 4, 48, 131072, MTP | {"replicas": 4}),
    "llama.cpp, two replicas": scene("RTX 3090", 2, 6, 16384, LLAMA | {"tp": 1, "replicas": 2}),
    "llama.cpp, four replicas": scene(
        "RTX 3090", 4, 200, 8192, LLAMA | {"tp": 1, "replicas": 4}, contexts="shared"
    ),
    "one 24 GB card": scene("RTX 3090", 1, 1, 32768, quality=Quality.RELAXED),
    "gated drafter in public": scene(
        PRO, 1, 1, 32768, UPSTREAM, listen="0.0.0.0", quality=Quality.REFERENCE
    ),
    "a pool that may be too small": scene(
        *("A10", 2, 1, 262144, UPSTREAM | {"spec_method": "none", "quant": "fp8"}),
        quality=Quality.REFERENCE,
    ),
    "weights on disk": scene(
        *(PRO, 2, 8, 32768),
        UPSTREAM | {"checkpoint": "/srv/my models/Qwen3.6-27B-FP8", "quant": "fp8"},
    ),
    "one H200": scene("H200", 1, 16, 131072),
    "contexts shared, of code": scene(
        *("H200", 1, 32, 32768, {"spec_method": "mtp", "spec_tokens": 3}),
        contexts="shared",
        prefix_cache="on",
        content=Content.CODE,
    ),
    "gguf in small slots": scene("V100 SXM3 32GB", 1, 2, 4096, LLAMA, quality=Quality.RELAXED),
    "gguf that may not fit": scene(
        "A10", 1, 4, 131072, quality=Quality.REFERENCE, prefix_cache="off"
    ),
    "gguf over two cards, 16-bit cache": scene(
        V100, 2, 4, 32768, LLAMA | {"tp": 2, "kv_cache_dtype": "bf16"}, quality=Quality.ANY
    ),
    "gguf over two cards": scene("RTX 5060 Ti", 2, 8, 32768, LLAMA | {"tp": 2}),
    "gguf on an arm host": scene("GB10", 1, 2, 16384, LLAMA, quality=Quality.ANY),
    "gguf, 8-bit cache": scene("RTX 5080", 1, 8, 32768),
    "gguf, slots of the native length": scene(V100, 1, 8, 262144),
    "gguf, most slots": scene("A10", 1, 8, 65536, objective=Objective.CAPACITY),
    "gguf, one request": scene("RTX 4060 Ti", 1, 1, 16384),
    "gguf with images": scene(V100, 1, 8, 65536, vision=True),
}
COMPARED = (
    *("engine", "quant", "kv_cache_dtype", "spec_method", "spec_tokens", "tp", "prefix_cache"),
    *("gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
    "capture_size",
)


@cache
def plan_of(name: str) -> Plan:
    card, count, workload, request = SCENES[name]
    return api.recommend(stated_machine(card, count, catalogue=gpus()), workload, request)


def applies(plan: Plan, kind: str) -> bool:
    """Say whether a kind can run the plan and tells which build of the engine it runs.

    The command of a virtual environment names no image, which alone tells the fork.
    """
    option, made = plan.option, KINDS[kind]
    if option.engine not in made.engines:
        return False
    if option.engine == "llama.cpp" and option.replicas > 1:
        return made.replicas != "process"
    return made.container or not option.fork


def audited(plan: Plan, kind: str, machine: dict[str, Any], folder: Path) -> AuditDocument:
    place = lay_out(render(plan, kind), folder)
    keys = "".join(f"{engine}_API_KEY=a-key-for-tests\n" for engine in ("VLLM", "LLAMA"))
    (place / "secrets.env").write_text(keys)
    point = plan.operating_point
    return api.audit(
        AuditRequest(
            source=place / KINDS[kind].file_of("qwendeploy"),
            machine=machine,
            engine_version=None if KINDS[kind].container else plan.option.engine_version,
            concurrency=point.concurrency,
            typical_context=point.context,
            content=point.content,
            contexts=point.contexts,
        )
    )


def compared(option: Option) -> dict[str, Any]:
    found = {name: getattr(option, name) for name in COMPARED}
    # audit knows a folder's weights by its name: a repository's folder is that repository
    return found | {"checkpoint": option.checkpoint.rpartition("/")[2]}


def check(plan: Plan, report: AuditDocument) -> None:
    """Assert that the audit of one of the plan's artefacts says what the plan says."""
    stated = {warning.rule: warning.text for warning in plan.warnings}
    for finding in report.findings:
        assert finding.severity == "info" or finding.id in stated, finding
        assert finding.severity != "error", finding
        if finding.id == "gguf-does-not-fit":
            assert stated[finding.id].startswith(finding.text)
    degraded = {"degraded"} if "slots-share-context" in stated else set()
    assert report.outcome in {"works", "wasteful"} | degraded
    first = report.launches[0]
    assert first.option is not None
    assert compared(first.option) == compared(plan.option)
    assert first.engines * first.option.replicas == plan.option.replicas
    # planning knows nothing of a folder's weights but their format, audit takes them by their name
    if not plan.option.checkpoint.startswith("/"):
        assert report.predictions.model_dump() == plan.predictions.model_dump()
    assert all(
        change.current == str(plan.option.replicas)
        for change in report.changes
        if change.what == "replicas"
    )
    text = " ".join(audit_text(report).split())
    assert "cannot run" not in text
    assert ("contexts shared" in text) == (plan.operating_point.contexts == "shared")
    if first.engines > 1:
        assert text.count("tok/s") == text.count(f"over {first.engines} identical")
        followers = [launch.first_engine for launch in report.launches[1:]]
        assert followers == [first.name] * len(followers)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCENES)
def test_the_audit_of_an_artefact_says_what_the_plan_says(
    name: str, kind: str, tmp_path: Path
) -> None:
    plan = plan_of(name)
    if not applies(plan, kind):
        return
    card, count, _, _ = SCENES[name]
    check(plan, audited(plan, kind, {"gpu": card, "gpus": count}, tmp_path))


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("gated drafter in public", "dflash-gated-drafter"),
        ("a pool that may be too small", "kv-too-small-for-max-model-len"),
        ("gguf in small slots", "slots-share-context"),
        ("gguf that may not fit", "gguf-does-not-fit"),
        ("gguf on an arm host", "image-llama-cpp-cuda-x86"),
    ],
)
def test_plan_itself_says_what_audit_would_warn_of(name: str, warning: str) -> None:
    assert warning in {told.rule for told in plan_of(name).warnings}


def test_full_contexts_are_those_of_all_replicas() -> None:
    plan = plan_of("fork, two replicas")
    pool, one = plan.predictions.kv_pool_blocks, plan.predictions.blocks_per_request
    full = plan.predictions.max_full_length_requests
    assert pool is not None and one is not None and full is not None
    assert full.value == 2 * (pool.value // one.value)


SINGLE = {
    kind
    for kind, made in KINDS.items()
    if "llama.cpp" in made.engines and made.container and made.replicas == "process"
}
"""Kinds in which llama.cpp runs as one process alone."""
CARDS = [
    card.name
    for card in gpus()
    if (card.memory_mib or 0) >= 20000 and float(card.compute_capability or 0) >= 7
]


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


@pytest.mark.parametrize("number", range(PLANS))
def test_the_audit_of_any_plan_says_what_the_plan_says(number: int, tmp_path: Path) -> None:
    draw = random.Random(SEED + number)
    found = None
    while found is None:
        found = drawn(draw)
    machine, plan = found
    for kind in KINDS:
        if applies(plan, kind):
            check(plan, audited(plan, kind, machine, tmp_path / kind))
        elif plan.option.engine == "llama.cpp" and kind in SINGLE:
            with pytest.raises(UserError, match="one replica per process"):
                render(plan, kind)
