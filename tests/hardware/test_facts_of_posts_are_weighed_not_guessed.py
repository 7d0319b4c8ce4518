"""What a post shows is weighed: headers before remarks, sizes a card can have, rows cut short."""

from __future__ import annotations

from typing import Any

import pytest
from pasted_texts import BOX, GPU_LIST, HEADED, LINES, NAME, OLD, cards, read
from smi_texts import row, table

from qwendeploy.hardware.texts.sniff import read_text


def test_versions_are_the_headers_not_what_people_write_beside_it() -> None:
    said = "Driver Version: 535.54.03 before the update, CUDA Version: 11.8 of the toolkit\n"
    machine = read(said + BOX)
    assert (machine.driver, machine.cuda) == ("580.65.06", "13.0")
    assert read(said + BOX.replace("CUDA Version: 13.0", "CUDA Version: N/A ")).cuda is None
    assert read(said + GPU_LIST).driver == "535.54.03"


def test_a_gpu_that_asks_for_a_reboot_is_faulty() -> None:
    log = HEADED.replace("    MIG Mode", "    GPU Recovery Action : Node Reboot\n    MIG Mode")
    assert read(log).gpus[0].health == "requires_reset"
    assert read(log.replace("Node Reboot", "None")).gpus[0].health == "ok"


def test_tools_of_other_makers_are_named_not_read() -> None:
    text = "==== ROCm System Management Interface ====\nGPU[0] : Card series: Instinct MI300X\n"
    reading = read_text(text, "text")
    assert reading.is_empty()
    assert "another vendor" in reading.notes[0]


def test_a_bare_number_is_memory_only_where_the_card_has_as_much() -> None:
    rows = "0, NVIDIA GeForce RTX 3090, 30, 1695, {}, P2\n"
    assert cards(read(rows.format(9751)))[0][2] is None
    assert cards(read(rows.format(24576)))[0][2] == 24576
    assert cards(read(rows.format(49152)))[0][2] == 49152
    box = table([row(0, "NVIDIA GeForce RTX 3090", total=24576)])
    assert cards(read(box, rows.format(49152)))[0][2] == 24576


def test_signs_that_markdown_escapes_are_plain() -> None:
    assert cards(read(OLD.replace("| 0. ", "\\| 0\\. "))) == [(0, "Tesla C2075", 5375)]


def test_a_row_of_faults_is_a_gpu_even_where_its_uuid_is_masked() -> None:
    machine = read("0, GPU-0, [GPU requires reset], [GPU requires reset]\n")
    assert (machine.count, machine.usable, machine.gpus[0].health) == (1, False, "requires_reset")
    assert read_text("GPU-accelerated, fast, cheap\n", "text").gpus == []


DRAWN = """| # | card | memory | cc | address | link | power |
|---|------|--------|----|---------|------|-------|
| 0 | NVIDIA L40S | 46068 MiB | 8.9 | `00000000:89:00.0` | 4/4 | 275.00 W |
| 1 | NVIDIA L40S | 46068 MiB | 8.9 | `00000000:B2:00.0` | 4/4 | 275.00 W |
"""


def test_a_table_that_a_person_drew_is_read() -> None:
    machine = read(DRAWN)
    assert cards(machine) == [(0, NAME, 46068), (1, NAME, 46068)]
    assert machine.gpus[1].bus_id == "00000000:B2:00.0"
    rates = "| 1 | RTX 3090 | fast |\n| 2 | RTX 4090 | faster |\n| 4 | RTX 5090 | 81.2 |\n"
    assert read_text(rates, "text").gpus == []


NVGPU = "|   0  Orin (nvgpu)           N/A| N/A              N/A |"
COMMENTED = "\n".join(f"{line}  # 第{i}行数据" for i, line in enumerate(LINES) if "|" in line)
ALONE = """|   4  NVIDIA A100-SXM...  On   | 00000000:8C:00.0 Off |                    0 |
| N/A   34C    P0    60W / 400W |      0MiB / 81920MiB |      0%      Default |
|                               |                      |             Disabled |
+-------------------------------+----------------------+----------------------+
|   5  ERR!                On   | 00000000:91:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 81920MiB |    ERR!      Default |
|                               |                      |                 ERR! |
"""
LOST_ROW = """0, GPU-0000aaaa-0000, NVIDIA L40S, 30, 1695, P2
Unable to determine the device handle for GPU0000:02:00.0: Unknown Error
[Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]
2, GPU-2222aaaa-0000, NVIDIA L40S, 31, 1700, P2
"""
POSTS = [
    pytest.param(NVGPU, [(0, "Orin (nvgpu)", None)], [0], id="board without a cell to spare"),
    pytest.param(COMMENTED, [(0, NAME, 46068), (1, NAME, 46068)], [0, 1], id="remarks behind"),
    pytest.param(ALONE, [(4, "NVIDIA A100-SXM...", 81920), (5, None, 81920)], [4], id="two rows"),
    pytest.param(LOST_ROW, [(0, NAME, None), (2, NAME, None)], [0, 2], id="a row without a card"),
]


@pytest.mark.parametrize(("text", "listed", "usable"), POSTS)
def test_part_of_a_post_gives_what_it_shows(
    text: str, listed: list[tuple[Any, ...]], usable: list[int]
) -> None:
    machine = read(text)
    assert cards(machine) == listed
    assert list(machine.usable_gpu_indices) == usable


def test_the_lost_card_of_a_query_has_the_number_of_the_gap() -> None:
    (gone,) = read(LOST_ROW).missing_gpus
    assert (gone.index, gone.bus_id) == (1, "0000:02:00.0")
