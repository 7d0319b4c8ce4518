"""A card by its description: size, number and capability stand in the name as people write them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from qwendeploy.cli import cli
from qwendeploy.errors import UserError
from qwendeploy.hardware import stated_machine
from qwendeploy.tables.gpus import gpus

TAKEN = [
    ("4090 48gb", 1, "RTX 4090", 49152),
    ("RTX4090-24G", 1, "RTX 4090", 24564),
    ("2080ti 22g", 1, "RTX 2080 Ti", 22528),
    ("RTX 2080 Ti (22 GB mod)", 1, "RTX 2080 Ti", 22528),
    ("4090 d 48g", 1, "RTX 4090 D", 49152),
    ("H20 141gb", 1, "H20-3e", 143771),
    ("RTX PRO 6000 96GB", 1, "RTX PRO 6000 Blackwell Workstation", 97887),
    ("Nvidia RTX 3090 x2", 2, "RTX 3090", 24576),
    ("3090x4", 4, "RTX 3090", 24576),
    ("2*4090", 2, "RTX 4090", 24564),
    ("4x3090", 4, "RTX 3090", 24576),
    ("A100 x 8", 8, "A100 80GB SXM", 81920),
    ("4090 cc 8.9", 1, "RTX 4090", 24564),
]


@pytest.mark.parametrize(("text", "count", "name", "memory"), TAKEN)
def test_size_and_number_stand_in_the_name(text: str, count: int, name: str, memory: int) -> None:
    machine = stated_machine(text, catalogue=gpus())
    assert {(gpu.name, gpu.memory_mib) for gpu in machine.gpus} == {(name, memory)}
    assert machine.count == count


def test_a_rebuilt_card_is_said_to_be_one() -> None:
    assert "modified" in stated_machine("4090 48gb", catalogue=gpus()).notes[0]
    assert stated_machine("4090 24gb", catalogue=gpus()).notes == ()


@pytest.mark.parametrize("text", ["Foo 9000 cc 12.0", "Foo 9000 sm_120", "Foo 9000 (cc 12.0)"])
def test_a_card_nobody_listed_is_taken_with_memory_and_capability(text: str) -> None:
    (gpu,) = stated_machine(text, catalogue=gpus(), vram_gib=48).gpus
    assert (gpu.name, gpu.model, gpu.memory_mib) == ("Foo 9000", None, 49152)
    assert (gpu.compute_capability, gpu.compute_capability_by_name) == ("12.0", False)


MISSING = [
    ("Foo 9000", None, ("compute capability", "its memory", "'Foo 9000 cc 12.0' --vram 48")),
    ("Foo 9000", 96, ("compute capability", "--vram 96")),
    ("Foo 9000 cc 12.0", None, ("add its memory", "'Foo 9000 cc 12.0' --vram 48")),
    ("RTX 5065 Ti", None, ("did you mean", "RTX 5060 Ti 16GB")),
    ("", None, ("no GPU name given",)),
    ("apple m4 max", 64, ("not an NVIDIA GPU",)),
    ("rx 9070 xt", None, ("not an NVIDIA GPU",)),
    ("Foo 9000GB 9999GB", None, ("not a plausible GPU memory size",)),
    ("4090 cc 12.0", None, ("compute capability 8.9, not 12.0",)),
]


@pytest.mark.parametrize(("text", "vram", "words"), MISSING)
def test_a_refusal_says_what_else_to_state(
    text: str, vram: float | None, words: tuple[str, ...]
) -> None:
    with pytest.raises(UserError) as refusal:
        stated_machine(text, catalogue=gpus(), vram_gib=vram)
    for word in words:
        assert word in str(refusal.value)


def test_a_stated_unknown_card_is_planned_for_without_a_speed() -> None:
    ran = CliRunner().invoke(
        cli, ["recommend", "--gpu", "Foo 9000 cc 12.0", "--vram", "48", "--c", "4", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    predictions = json.loads(ran.stdout)["predictions"]
    assert predictions["aggregate_decode_tps"] is None
    assert predictions["kv_pool_blocks"]["kind"] == "estimated"
