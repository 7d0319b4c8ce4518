"""What people posted of their machines gives exactly the facts that a careful reader concludes."""

from __future__ import annotations

import pytest
from hardware_inventories import SLUGS, expected, facts_of, machine

from qwendeploy.documents import Machine

MACHINE_FACTS = (
    "platform",
    "count",
    "driver",
    "cuda",
    "smi_version",
    "nvml_library_version",
    "unified_memory",
    "usable",
    "usable_gpu_indices",
    "worst_pcie_path",
    "nvlink",
)


@pytest.mark.parametrize("slug", SLUGS)
def test_machine_is_as_posted(slug: str) -> None:
    facts, wanted = facts_of(machine(slug)), expected(slug)
    assert {key: facts[key] for key in MACHINE_FACTS} == {
        key: wanted.get(key) for key in MACHINE_FACTS
    }
    assert facts["mig_devices"] == wanted.get("mig_devices", [])
    assert facts["missing_gpus"] == wanted.get("missing_gpus", [])


@pytest.mark.parametrize("slug", SLUGS)
def test_gpus_are_as_posted(slug: str) -> None:
    defaults = {"cc": None, "cc_read": False, "mig": False, "vgpu": False, "faulty": False}
    shown = facts_of(machine(slug))["gpus"]
    wanted = [{**defaults, "cut": False, **gpu} for gpu in expected(slug)["gpus"]]
    for gpu, want in zip(shown, wanted, strict=True):
        assert {key: gpu[key] for key in want} == want


@pytest.mark.parametrize("slug", SLUGS)
def test_no_verdict_is_without_a_cause(slug: str) -> None:
    found = machine(slug)
    assert found.usable_reason
    assert all(gpu.health_reason for gpu in found.gpus if gpu.health != "ok")


@pytest.mark.parametrize("slug", SLUGS)
def test_the_json_form_is_read_back_to_an_equal_machine(slug: str) -> None:
    found = machine(slug)
    assert Machine.model_validate_json(found.model_dump_json()) == found


def test_there_are_posted_machines() -> None:
    assert SLUGS
