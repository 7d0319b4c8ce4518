"""``lspci`` and ``inxi``: what a box without a driver can show of its cards."""

from __future__ import annotations

from pathlib import Path

import pytest
from pasted_texts import read
from smi_texts import row, table

from qwendeploy.errors import UserError
from qwendeploy.hardware import machine_from_files
from qwendeploy.tables.gpus import gpus

LSPCI = """00:02.0 VGA compatible controller: Intel Corporation UHD Graphics (rev 01)
05:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] [10de:2204] (rev a1)
\tSubsystem: Gigabyte Technology Co., Ltd GA102 [GeForce RTX 3090] [1458:4043]
\tKernel driver in use: nouveau
05:00.1 Audio device [0403]: NVIDIA Corporation GA102 High Definition Audio Controller [10de:1aef] (rev a1)
\tKernel driver in use: snd_hda_intel
0a:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 80GB] (rev ff)
\tKernel driver in use: nvidia
0b:00.0 3D controller: NVIDIA Corporation Device 2bb1 (rev a1)
0c:00.0 VGA compatible controller: NVIDIA Corporation GA106M [GeForce RTX 3060 Mobile / Max-Q] (rev a1)
00:1a.0 Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3] (rev a1)
"""  # noqa: E501
INXI = """Graphics:
  Device-1: NVIDIA AD102 [GeForce RTX 4090] vendor: ZOTAC driver: nvidia v: 550.90.07 bus-ID: 01:00.0
  Device-2: Intel AlderLake-S GT1 driver: i915 v: kernel
"""  # noqa: E501


def test_controllers_of_the_maker_are_cards_in_the_order_of_their_addresses() -> None:
    machine = read(LSPCI)
    assert [(g.index, g.bus_id, g.model, g.compute_capability) for g in machine.gpus] == [
        (0, "05:00.0", "RTX 3090", "8.6"),
        (1, "0a:00.0", "A100 80GB PCIe", "8.0"),
        (2, "0b:00.0", None, None),
        (3, "0c:00.0", "RTX 3060 Laptop", "8.6"),
    ]
    assert all(gpu.memory_mib is None for gpu in machine.gpus)
    assert all(gpu.compute_capability_by_name for gpu in machine.gpus if gpu.compute_capability)
    assert [gpu.health for gpu in machine.gpus] == ["ok", "error", "ok", "ok"]
    assert machine.usable_gpu_indices == (0, 3)
    assert "GPU 0 is run by nouveau, not nvidia" in machine.notes
    assert any("are not shown" in note for note in machine.notes)


def test_inxi_shows_the_driver_too() -> None:
    machine = read(INXI)
    assert [(g.index, g.model, g.bus_id) for g in machine.gpus] == [(0, "RTX 4090", "01:00.0")]
    assert machine.driver == "550.90.07"


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("joined", [True, False])
def test_a_bus_adds_no_card_to_what_the_driver_shows(order: int, joined: bool) -> None:
    texts = [LSPCI, table([row(0, "NVIDIA GeForce RTX 3090", bus="00000000:05:00.0")])][::order]
    machine = read("\n".join(texts)) if joined else read(*texts)
    assert [(g.index, g.memory_mib) for g in machine.gpus] == [(0, 24576)]


def test_a_bus_makes_no_broken_box_usable() -> None:
    machine = read(LSPCI, "Failed to initialize NVML: Driver/library version mismatch")
    assert (machine.usable, machine.gpus) == (False, ())


def test_a_bus_without_a_card_of_the_maker_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lspci.txt"
    path.write_text(LSPCI.split("\n")[0], encoding="utf-8")
    with pytest.raises(UserError, match="recognizable"):
        machine_from_files([path], catalogue=gpus())


def test_what_is_stated_fills_what_a_bus_does_not_show(tmp_path: Path) -> None:
    path = tmp_path / "lspci.txt"
    path.write_text("01:00.0 3D controller: NVIDIA Corporation GB202 [GeForce RTX 5090]\n")
    machine = machine_from_files([path], catalogue=gpus(), driver="580", vram_gib=31.8)
    assert (machine.driver, machine.gpus[0].memory_mib) == ("580", 32563)
