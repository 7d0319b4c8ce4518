"""Round trip: recommend, generate in every kind, audit each artefact.

``audit`` finds no error and only warnings that the plan states, and reads back the plan's option.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from real_tools import lay_out

from qwendeploy import api
from qwendeploy.api import AuditRequest, Pins, Request
from qwendeploy.documents import Option, Plan, Quality, Workload
from qwendeploy.errors import UserError
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.rendering import KINDS, render
from qwendeploy.tables.gpus import gpus

SCENES: dict[str, tuple[str, int, Workload, Request]] = {
    "showcase": (
        "RTX PRO 6000 Blackwell Workstation",
        2,
        Workload(concurrency=32, max_context=262144),
        Request(),
    ),
    "upstream": (
        "RTX PRO 6000 Blackwell Workstation",
        2,
        Workload(concurrency=32, max_context=131072),
        Request(pins=Pins(upstream_only=True)),
    ),
    "two-replicas": (
        "RTX PRO 6000 Blackwell Workstation",
        2,
        Workload(concurrency=64, max_context=16384),
        Request(pins=Pins(tp=1, replicas=2, upstream_only=True)),
    ),
    "one-24-gb-card": (
        "RTX 3090",
        1,
        Workload(concurrency=1, max_context=32768, quality=Quality.RELAXED),
        Request(),
    ),
    "gated-drafter-in-public": (
        "RTX PRO 6000 Blackwell Workstation",
        1,
        Workload(concurrency=1, max_context=32768, quality=Quality.REFERENCE),
        Request(pins=Pins(upstream_only=True), listen="0.0.0.0"),
    ),
    "a-pool-that-may-be-too-small": (
        "A10",
        2,
        Workload(concurrency=1, max_context=262144, quality=Quality.REFERENCE),
        Request(pins=Pins(upstream_only=True, spec_method="none", quant="fp8")),
    ),
    "gguf-in-small-slots": (
        "V100 SXM3 32GB",
        1,
        Workload(concurrency=2, max_context=4096, quality=Quality.RELAXED),
        Request(pins=Pins(engine="llama.cpp")),
    ),
    "gguf-that-may-not-fit": (
        "A10",
        1,
        Workload(concurrency=4, max_context=131072, quality=Quality.REFERENCE, prefix_cache="off"),
        Request(),
    ),
    "gguf-over-two-cards": (
        "V100 SXM2 32GB",
        2,
        Workload(concurrency=4, max_context=32768, quality=Quality.ANY),
        Request(pins=Pins(engine="llama.cpp", tp=2, kv_cache_dtype="bf16")),
    ),
    "gguf-on-an-arm-host": (
        "GB10",
        1,
        Workload(concurrency=2, max_context=16384, quality=Quality.ANY),
        Request(pins=Pins(engine="llama.cpp")),
    ),
    "weights-on-disk": (
        "RTX PRO 6000 Blackwell Workstation",
        2,
        Workload(concurrency=8, max_context=32768),
        Request(
            pins=Pins(upstream_only=True, checkpoint="/srv/my models/Qwen3.6-27B-FP8", quant="fp8")
        ),
    ),
    "one-h200": ("H200", 1, Workload(concurrency=16, max_context=131072), Request()),
}

COMPARED = (
    "engine",
    "checkpoint",
    "quant",
    "kv_cache_dtype",
    "spec_method",
    "spec_tokens",
    "tp",
    "prefix_cache",
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "capture_size",
)


@cache
def plan_of(scene: str) -> Plan:
    card, count, workload, request = SCENES[scene]
    machine = stated_machine(card, count, catalogue=gpus())
    return api.recommend(machine, workload, request)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scene", SCENES)
def test_artefact_is_audited_as_the_plan_says(scene: str, kind: str, tmp_path: Path) -> None:
    plan = plan_of(scene)
    card, count, _, _ = SCENES[scene]
    made = KINDS[kind]
    if plan.option.engine not in made.engines:
        with pytest.raises(UserError, match="whose flags are not those of"):
            render(plan, kind)
        return
    place = lay_out(render(plan, kind), tmp_path)
    machine: dict[str, Any] = {"gpu": card, "gpus": count}
    plain = not made.container and not plan.option.fork
    version = plan.option.engine_version if plain else None

    found = api.audit(
        AuditRequest(
            source=place / made.file_of("qwendeploy"),
            machine=machine,
            engine_version=version,
            compare=False,
        )
    )

    stated = {warning.rule for warning in plan.warnings}
    degraded = {"degraded"} if "slots-share-context" in stated else set()
    assert found.outcome in {"works", "wasteful"} | degraded
    grave = {finding.id: finding.text for finding in found.findings if finding.severity != "info"}
    assert {name: text for name, text in grave.items() if name not in stated} == {}
    expected = plan.option
    read = found.launches[0].option
    assert read is not None
    assert _compared(read) == _compared(expected)
    replicas = len([launch for launch in found.launches if launch.option is not None])
    assert replicas * read.replicas >= expected.replicas or made.replicas == "pods"


@pytest.mark.parametrize(
    ("scene", "warning"),
    [
        ("gated-drafter-in-public", "dflash-gated-drafter"),
        ("a-pool-that-may-be-too-small", "kv-too-small-for-max-model-len"),
        ("gguf-in-small-slots", "slots-share-context"),
        ("gguf-that-may-not-fit", "gguf-does-not-fit"),
        ("gguf-on-an-arm-host", "image-llama-cpp-cuda-x86"),
    ],
)
def test_plan_itself_says_what_audit_would_warn_of(scene: str, warning: str) -> None:
    assert warning in {told.rule for told in plan_of(scene).warnings}


def _compared(option: Option) -> dict[str, Any]:
    found = {name: getattr(option, name) for name in COMPARED}
    # audit knows a folder's weights by its name: a repository's folder is that repository
    return found | {"checkpoint": option.checkpoint.rpartition("/")[2]}
