"""Which GPUs of a box serve, and why the others do not."""

from __future__ import annotations

import pytest
from hardware_inventories import machine
from smi_texts import matrix, row, table

from qwendeploy.documents import Machine
from qwendeploy.errors import UserError
from qwendeploy.hardware import choose_gpus, serving_memory_mib, stated_machine, with_chosen
from qwendeploy.hardware.merge import machine_of
from qwendeploy.hardware.texts.sniff import read_text
from qwendeploy.tables.gpus import gpus

CHOICES = [
    ("hetero-4x3090-2x2080ti-gpustat-tail", 4, (0, 1, 4, 5)),
    ("hetero-4x3090-2x2080ti-gpustat-tail", 1, (1,)),
    ("hetero-4x3090-2x2080ti-gpustat-tail", None, (0, 1, 4, 5)),
    ("hetero-5060ti-5060", None, (0,)),
    ("rtxpro6000-server-8x-pix-node-sys", 2, (0, 1)),
    ("rtxpro6000-server-8x-pix-node-sys", 4, (0, 1, 2, 3)),
    ("v100-sxm2-8x-hybrid-cube", 2, (0, 3)),
    ("v100-sxm2-8x-hybrid-cube", 4, (0, 1, 2, 3)),
    ("a40-8x-gpu4-all-err", 4, (0, 1, 2, 3)),
    ("a40-8x-gpu4-all-err", None, (0, 1, 2, 3, 5, 6, 7)),
    ("partial-8x3080-gpu3-lost-csv", 4, (0, 1, 2, 4)),
    ("a100-pcie-4x-two-err", 1, (1,)),
    ("rtx4090-2x-535-display", 2, (0, 1)),
    ("rtx3060ti-3x-csv-no-name", 2, (1, 2)),
]


@pytest.mark.parametrize(("slug", "needed", "indices"), CHOICES)
def test_choice_of_posted_boxes(slug: str, needed: int | None, indices: tuple[int, ...]) -> None:
    choice = choose_gpus(machine(slug), needed, catalogue=gpus())
    assert choice.indices == indices
    assert {reason.index for reason in choice.reasons if reason.used} == set(indices)
    assert all(reason.reason for reason in choice.reasons)


def read(*texts: str) -> Machine:
    return machine_of([read_text(text, "text") for text in texts], gpus())


def test_display_mig_and_odd_cards_stay_out_if_others_suffice() -> None:
    box = read(
        table(
            [
                row(0, "NVIDIA GeForce RTX 3090", display="On"),
                row(1, "NVIDIA GeForce RTX 3060", total=12288),
                row(2, "NVIDIA GeForce RTX 3090"),
                row(3, "NVIDIA GeForce RTX 3090"),
            ]
        )
    )
    choice = choose_gpus(box, 2, catalogue=gpus())
    assert choice.indices == (2, 3)
    said = {reason.index: reason.reason for reason in choice.reasons}
    assert "display" in said[0] and "another model" in said[1]


def test_whole_card_comes_before_a_mig_parent() -> None:
    box = read(
        table(
            [
                row(0, "NVIDIA H100 80GB HBM3", total=81559, mig="Enabled"),
                row(1, "NVIDIA H100 80GB HBM3", total=81559, mig="Disabled"),
            ]
        )
    )
    assert choose_gpus(box, 1, catalogue=gpus()).indices == (1,)


def test_pair_with_nvlink_or_of_one_node_is_preferred() -> None:
    cards = table([row(i, "NVIDIA RTX A6000", total=49140) for i in range(4)])
    bridged = matrix(
        {
            0: (" X ", "SYS", "SYS", "NV4"),
            1: ("SYS", " X ", "PHB", "SYS"),
            2: ("SYS", "PHB", " X ", "SYS"),
            3: ("NV4", "SYS", "SYS", " X "),
        }
    )
    box = read(cards, bridged)
    choice = choose_gpus(box, 2, catalogue=gpus())
    assert choice.indices == (0, 3)
    assert with_chosen(box, choice, gpus()).interconnect == "nvlink"
    assert box.interconnect == "pcie"


def test_devices_override_preference_but_not_a_fault() -> None:
    box = machine("a40-8x-gpu4-all-err")
    assert choose_gpus(box, None, (7, 2), catalogue=gpus()).indices == (7, 2)
    for devices, words in [((4,), "faulty"), ((9,), "no GPU 9"), ((1, 1), "twice")]:
        with pytest.raises(UserError, match=words):
            choose_gpus(box, None, devices, catalogue=gpus())
    with pytest.raises(UserError, match="--gpus is 2"):
        choose_gpus(box, 2, (0,), catalogue=gpus())


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(UserError, match="3 GPUs are requested and 2 can serve"):
        choose_gpus(machine("a100-pcie-4x-two-err"), 3, catalogue=gpus())


def test_unlike_cards_run_at_the_weakest_and_it_is_said() -> None:
    choice = choose_gpus(machine("hetero-5060ti-5060"), 2, catalogue=gpus())
    assert choice.unlike
    assert "8151 MiB" in choice.warnings[0]


MEMORY = [
    ("h100-mig-3g-2g-1g-1g", (40448, "slice")),
    ("h100-mig-7x1g-L", (9536, "slice")),
    ("gb10-spark-topo-nics", (122070, "card")),
    ("rtx3090-8x-530-names-only", (24576, "card")),
    ("l40s-1x-595-ansi", (46068, "read")),
]


@pytest.mark.parametrize(("slug", "memory"), MEMORY)
def test_memory_to_count_on_says_where_it_comes_from(slug: str, memory: tuple[int, str]) -> None:
    box = machine(slug)
    gpu = box.gpus[0]
    assert serving_memory_mib(box, gpu, gpus().find(gpu.model or "")) == memory


STATED = [
    ("2x RTX 3090", {}, (2, "RTX 3090", 24576, "unknown")),
    ("RTX PRO 6000", {"count": 2}, (2, "RTX PRO 6000 Blackwell Workstation", 97887, "pcie")),
    ("h100", {"count": 8}, (8, "H100 SXM", 81559, "nvlink")),
    ("RTX 3090", {"count": 2, "nvlink": True}, (2, "RTX 3090", 24576, "nvlink")),
    ("RTX 4090", {"vram_gib": 48}, (1, "RTX 4090", 49152, "none")),
    ("RTX 5060 Ti", {"vram_gib": 8}, (1, "RTX 5060 Ti 8GB", 8151, "none")),
    ("spark", {}, (1, "GB10", None, "unified")),
    ("RTX 5090 Ti", {"vram_gib": 48}, (1, None, 49152, "none")),
]


@pytest.mark.parametrize(("name", "settings", "facts"), STATED)
def test_stated_machine_is_what_was_said(
    name: str, settings: dict[str, float], facts: tuple[object, ...]
) -> None:
    box = stated_machine(name, catalogue=gpus(), **settings)  # type: ignore[arg-type]
    gpu = box.gpus[0]
    assert (box.count, gpu.model, gpu.memory_mib, box.interconnect) == facts
    assert box.usable is True


REFUSED = [
    ("RTX 6000", {}, "is ambiguous"),
    ("RTX 5090 Ti", {}, "did you mean"),
    ("banana", {}, "unknown GPU"),
    ("RTX 4090", {"count": 2, "nvlink": True}, "no NVLink"),
    ("RTX 3090", {"nvlink": True}, "two or more"),
    ("2x RTX 3090", {"count": 4}, "states 2"),
    ("RTX 3090", {"driver": "latest"}, "driver version"),
    ("RTX 3090", {"vram_gib": 0.0}, "not a plausible"),
]


@pytest.mark.parametrize(("name", "settings", "words"), REFUSED)
def test_impossible_statement_is_refused(
    name: str, settings: dict[str, object], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        stated_machine(name, catalogue=gpus(), **settings)  # type: ignore[arg-type]


def test_old_card_is_refused_by_its_name() -> None:
    box = stated_machine("K520", catalogue=gpus())
    assert box.usable is False and "3.0" in box.usable_reason
