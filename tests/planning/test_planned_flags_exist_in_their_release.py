"""Every flag, value and variable of every feasible option of a grid is known to its release."""

from __future__ import annotations

import json
from itertools import product

import pytest

from qwendeploy.documents import Option, Quality, Workload
from qwendeploy.documents.request import Pins, Request
from qwendeploy.engines.vllm.flags import (
    ReleaseStatus,
    flag_status,
    spec_config_problems,
    value_problem,
)
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.planning.recommend import make_scene
from qwendeploy.planning.settings import Chosen
from qwendeploy.planning.survey import survey
from qwendeploy.rulebook.fields import Pass, find_field
from qwendeploy.tables.gpus import gpus

MACHINES = [
    ("RTX PRO 6000 Blackwell Workstation", 2, "610.43.02"),
    ("RTX PRO 6000 Blackwell Workstation", 1, "575.64.03"),
    ("RTX 5090", 2, "580.126.09"),
    ("RTX 3090", 4, "595.71.05"),
    ("H200", 1, "580.159.04"),
    ("GB10", 1, "580.95.05"),
    ("L4", 4, "580.126.09"),
]
WORKLOADS = [
    Workload(concurrency=1, max_context=32768),
    Workload(concurrency=32, max_context=131072, prefix_cache="on", vision=True),
    Workload(concurrency=256, max_context=16384, tools=False, thinking=False),
]
FROM_LIBRARIES = ("NCCL_", "PYTORCH_", "CUDA_", "HF_", "OMP_")


def complaints(option: Option, flags: tuple[Chosen, ...], env: tuple[Chosen, ...]) -> list[str]:
    """Return what the option's release would refuse or not read."""
    version, fork = option.engine_version, option.fork
    found = []
    for setting in flags:
        answer = flag_status(setting.name, version, fork)
        if answer.status is not ReleaseStatus.KNOWN:
            found.append(answer.message)
        elif answer.row is not None and not fork:
            problem = value_problem(answer.row, setting.value)
            found += [problem] if problem else []
        if setting.name == "--speculative-config":
            config = json.loads(setting.value or "{}")
            found += [str(key) for key, _ in spec_config_problems(config, version, fork)]
    for setting in env:
        if not setting.name.startswith(FROM_LIBRARIES):
            answer = flag_status(setting.name, version, fork, "env")
            found += [] if answer.status is ReleaseStatus.KNOWN else [answer.message]
    return found


@pytest.mark.parametrize(
    ("card", "workload"),
    list(product(MACHINES, WORKLOADS)),
    ids=lambda value: (
        f"{value[1]}x{value[0]}" if isinstance(value, tuple) else f"c{value.concurrency}"
    ),
)
def test_flags_of_every_feasible_option(card: tuple[str, int, str], workload: Workload) -> None:
    name, count, driver = card
    machine = stated_machine(name, count, catalogue=gpus(), driver=driver)
    result = survey(make_scene(machine, workload, Request()), Quality.ANY)
    assert result.ranked
    for item in result.ranked:
        candidate = item.candidate
        found = complaints(candidate.option, candidate.flags, candidate.env)
        assert found == [], (candidate.option.image, candidate.option.spec_method)
        assert not any(fired.rejects for fired in candidate.fired)


def test_a_draft_is_told_to_every_release_in_its_own_way() -> None:
    machine = stated_machine("RTX PRO 6000", 2, catalogue=gpus(), driver="610.43.02")
    workload = Workload(concurrency=4, max_context=32768)
    for image in ("vllm/vllm-openai:v0.20.1", "repne/vllm:v17"):
        pins = Pins(image=image, spec_method="dflash", spec_tokens=8, quant="bf16")
        result = survey(make_scene(machine, workload, Request(pins=pins)), Quality.ANY)
        flags = {setting.name: setting.value for setting in result.ranked[0].candidate.flags}
        config = json.loads(flags["--speculative-config"] or "{}")
        assert config["method"] == "dflash"
        fork = image.startswith("repne")
        assert ("draft_sample_method" in config) is fork
        assert flags["--attention-backend"] == ("FLASHINFER" if fork else "FLASH_ATTN")


def test_passes_are_those_of_the_rule_book() -> None:
    assert [pass_.value for pass_ in Pass] == ["admit", "resolve", "check"]
    assert find_field("resolved.flag.enable-prefix-caching") is not None
