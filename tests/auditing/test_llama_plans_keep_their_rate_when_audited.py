"""Round trip of llama.cpp plans: an audit of the artefact finds the plan's memory and rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from real_tools import lay_out

from qwendeploy import api
from qwendeploy.api import AuditRequest, Pins, Request
from qwendeploy.documents import Objective, Workload
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.rendering import KINDS, render
from qwendeploy.reporting.audit_text import audit_text
from qwendeploy.tables.gpus import gpus

CAPACITY = {"objective": Objective.CAPACITY}
PLANS: list[Any] = [
    pytest.param("RTX 5080", 1, 32768, {}, {}, id="8-bit cache"),
    pytest.param("V100 SXM2 32GB", 1, 262144, {}, {}, id="two slots of the native length"),
    pytest.param("A10", 1, 65536, CAPACITY, {}, id="most slots"),
    pytest.param("RTX 4060 Ti", 1, 16384, {"concurrency": 1}, {}, id="one request"),
    pytest.param("RTX 5060 Ti", 2, 32768, {}, {"engine": "llama.cpp", "tp": 2}, id="two cards"),
    pytest.param("V100 SXM2 32GB", 1, 65536, {"vision": True}, {}, id="images"),
    pytest.param(
        *("RTX 3090", 1, 65536, {"concurrency": 2}),
        {"engine": "llama.cpp", "kv_cache_dtype": "bf16"},
        id="16-bit cache",
    ),
]


@pytest.mark.parametrize("kind", ["docker", "compose", "kubernetes"])
@pytest.mark.parametrize(("card", "count", "length", "asked", "pins"), PLANS)
def test_the_audit_gives_the_plans_rate(
    card: str,
    count: int,
    length: int,
    asked: dict[str, Any],
    pins: dict[str, Any],
    kind: str,
    tmp_path: Path,
) -> None:
    workload = Workload(**{"concurrency": 8, "max_context": length, **asked})
    machine = stated_machine(card, count, catalogue=gpus())
    plan = api.recommend(machine, workload, Request(pins=Pins(**pins)))
    assert plan.option.engine == "llama.cpp"
    place = lay_out(render(plan, kind), tmp_path)
    (place / "secrets.env").write_text("LLAMA_API_KEY=a-key-for-tests\n")

    report = api.audit(
        AuditRequest(
            source=place / KINDS[kind].file_of("qwendeploy"),
            machine={"gpu": card, "gpus": count},
            concurrency=plan.operating_point.concurrency,
            typical_context=plan.operating_point.context,
        )
    )

    ours, theirs = plan.predictions.aggregate_decode_tps, report.predictions.aggregate_decode_tps
    assert ours is not None and theirs is not None, report.predictions.reasons
    assert (theirs.value, theirs.low, theirs.high) == (ours.value, ours.low, ours.high)
    heeded = {warning.rule: warning.text for warning in plan.warnings}
    for finding in report.findings:
        assert finding.severity == "info" or finding.id in heeded, finding
        if finding.id == "gguf-does-not-fit":
            assert heeded[finding.id].startswith(finding.text)
    assert "cannot run" not in audit_text(report)
