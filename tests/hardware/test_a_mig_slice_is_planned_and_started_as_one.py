"""A GPU in MIG mode serves with one slice: said in the plan's first lines, started by its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Ran
from smi_texts import row, table

Run = Callable[..., Ran]
GPU = "GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n"
LARGE = "MIG-bbbbbbbb-0000-0000-0000-000000000000"
LISTED = (
    GPU + "  MIG 1g.18gb Device  0: (UUID: MIG-aaaaaaaa-0000-0000-0000-000000000000)\n"
    f"  MIG 4g.71gb Device  1: (UUID: {LARGE})\n"
)
MIXED = table(
    [
        row(0, "NVIDIA H100 NVL", total=95830, mig="Enabled"),
        row(1, "NVIDIA H100 NVL", total=95830, mig="Disabled"),
    ]
)


@pytest.fixture
def planned(run: Run, tmp_path: Path) -> Run:
    def call(text: str, *arguments: str | Path) -> Ran:
        saved = tmp_path / "box.txt"
        saved.write_text(text, encoding="utf-8")
        return run("recommend", "--machine", saved, "--ctx", "16k", "--c", "1", *arguments)

    return call


def test_plan_says_the_slice_first_and_the_artefact_asks_for_it(
    run: Run, planned: Run, tmp_path: Path
) -> None:
    plan, out = tmp_path / "plan.yaml", tmp_path / "out"
    found = planned(LISTED, "-o", plan)
    assert found.code == 0, found.err
    head = " ".join(found.out.split("Expect")[0].split())
    assert f"the plan uses its slice 4g.71gb ({LARGE}) of 66 GiB" in head
    assert "1 x H200 MIG 4g.71gb" in head
    assert run("generate", plan, "-f", "docker", "-o", out).code == 0
    assert f"device={LARGE}" in (out / "run.sh").read_text(encoding="utf-8")


def test_audit_of_the_artefact_finds_the_slices_pool(
    run: Run, planned: Run, tmp_path: Path
) -> None:
    plan, out = tmp_path / "plan.yaml", tmp_path / "out"
    told = json.loads(planned(LISTED, "-o", plan, "--json").out)
    assert run("generate", plan, "-f", "compose", "-o", out).code == 0
    assert run("detect", tmp_path / "box.txt", "-o", tmp_path / "box.yaml").code == 0
    found = json.loads(
        run("audit", out / "compose.yaml", "--machine", tmp_path / "box.yaml", "--json").out
    )
    planned_pool, pool = (each["predictions"]["kv_pool_blocks"] for each in (told, found))
    assert pool["value"] == pytest.approx(planned_pool["value"], rel=0.001)


@pytest.mark.parametrize("wish", [("--gpus", "2"), ("--devices", "0,1")])
def test_slices_are_never_joined(planned: Run, wish: tuple[str, str]) -> None:
    refused = planned(MIXED, *wish)
    assert refused.code == 2
    assert "GPU 0 is in MIG mode" in refused.err


def test_whole_card_beside_a_parent_is_taken(planned: Run) -> None:
    found = planned(MIXED)
    assert found.code == 0, found.err
    said, _, chosen = found.out.split("Expect")[0].partition("\nGPUs ")
    assert "MIG" not in said
    assert "not 0: in MIG mode" in chosen


def test_parent_without_a_slice_is_refused_by_name(planned: Run) -> None:
    refused = planned(table([row(0, "NVIDIA H100 NVL", total=95830, mig="Enabled")]))
    assert refused.code == 1
    assert "GPU 0 is in MIG mode and shows no slice" in refused.err
