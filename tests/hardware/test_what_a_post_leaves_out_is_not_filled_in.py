"""Cut names, cut matrices, rows without their header: what is there is read, the rest stays open.

The shapes are those of public posts (an engine's rig reports, a laboratory's mail, documentation
with an expected output); cards, versions and addresses are our own.
"""

from __future__ import annotations

from typing import Any

import pytest
from pasted_texts import read
from smi_texts import matrix, row, table

from qwendeploy.hardware import choose_gpus
from qwendeploy.tables.gpus import gpus


@pytest.mark.parametrize(
    ("total", "cap"), [(24576, 350), (24564, 450), (22528, 250), (11264, 250), (32607, 575)]
)
def test_a_name_cut_to_the_brand_is_no_card(total: int, cap: int) -> None:
    sensors = f"30%   45C    P8             20W /  {cap}W"
    machine = read(table([row(0, "NVIDIA GeForce ...", total=total, sensors=sensors)]))
    (gpu,) = machine.gpus
    assert (gpu.model, gpu.compute_capability, gpu.memory_mib) == (None, None, total)
    assert machine.usable is None and "state the GPU model" in machine.usable_reason


@pytest.mark.parametrize(
    ("name", "total", "capability"),
    [
        ("NVIDIA GeForce RTX 3060 ...", 6144, "8.6"),
        ("NVIDIA GeForce GTX 1650 ...", 4096, "7.5"),
        ("NVIDIA RTX 6000 Ada Gene...", 49140, "8.9"),
        ("GeForce GTX 106...", 6075, "6.1"),
        ("Quadro M2200", 4043, "5.2"),
        ("GeForce GTX 960M", 4044, "5.0"),
        ("GeForce GTX 980M", 8126, "5.2"),
    ],
)
def test_a_name_whose_cards_are_alike_keeps_its_capability(
    name: str, total: int, capability: str
) -> None:
    (gpu,) = read(table([row(0, name, total=total, sensors="N/A  40C  P8  N/A / N/A")])).gpus
    assert gpu.compute_capability == capability


def test_a_cut_matrix_lists_every_gpu_of_its_header() -> None:
    whole = matrix(
        {
            i: tuple(" X " if i == j else "NV12" if i // 2 == j // 2 else "SYS" for j in range(4))
            for i in range(4)
        }
    )
    cut = "\n".join(whole.split("\n")[:3])
    machine = read(cut[: cut.rindex("SYS")])
    assert [gpu.index for gpu in machine.gpus] == [0, 1, 2, 3]
    assert [(p.a, p.b, p.nvlinks) for p in machine.links.pairs if p.nvlinks] == [(0, 1, 12)]
    assert not {(2, 3)} & {(p.a, p.b) for p in machine.links.pairs}


@pytest.mark.parametrize(("command", "nvlink"), [("topo -mp", "unknown"), ("topo -m", "none")])
def test_a_matrix_of_paths_only_says_nothing_of_nvlink_without_its_legend(
    command: str, nvlink: str
) -> None:
    bare = matrix({0: (" X ", "NODE"), 1: ("NODE", " X ")}).split("\n\n")[0]
    links = read(f"root@f51fec68bf55:~# nvidia-smi {command}\n{bare}").links
    assert (links.nvlink, links.worst_pcie_path) == (nvlink, "NODE")


DEVICES = [
    "cmn  common_param:   - CUDA0   : NVIDIA GeForce RTX 5080 (16302 MiB, 14985 MiB free)\n"
    "cmn  common_param:   - CUDA1   : NVIDIA GeForce RTX 3080 (10239 MiB, 9097 MiB free)",
    "Available devices:\n  CUDA0: NVIDIA GeForce RTX 5080 (16302 MiB, 14985 MiB free)\n"
    "  CUDA1: NVIDIA GeForce RTX 3080 (10239 MiB, 9097 MiB free)",
    "llama_model_load: using device CUDA0 (NVIDIA GeForce RTX 5080) - 14985 MiB free\n"
    "llama_model_load: using device CUDA1 (NVIDIA GeForce RTX 3080) (0000:02:00.0) - 9097 MiB free",
]


@pytest.mark.parametrize("text", DEVICES)
def test_devices_of_llama_cpp_are_cards(text: str) -> None:
    machine = read(text)
    assert [(g.index, g.model) for g in machine.gpus] == [(0, "RTX 5080"), (1, "RTX 3080 10GB")]
    if "10239" in text:
        assert [(g.memory_mib, g.memory_free_mib) for g in machine.gpus] == [
            (16302, 14985),
            (10239, 9097),
        ]
    assert any("CUDA's" in note for note in machine.notes)


PEERS = "nvidia-smi topo -p2p p\n        GPU0    GPU1\n GPU0   X       {0}\n GPU1   {0}      X\n"


@pytest.mark.parametrize(
    ("cell", "path", "p2p"),
    [
        ("NS", "PIX", "no"),
        ("OK", "PIX", "yes"),
        ("NS", "NV4", "unknown"),
        ("OK", "NV4", "yes"),
        ("U", "PHB", "unknown"),
    ],
)
def test_peer_access_over_pcie_says_nothing_against_nvlink(cell: str, path: str, p2p: str) -> None:
    machine = read(matrix({0: (" X ", path), 1: (path, " X ")}) + "\n" + PEERS.format(cell))
    assert machine.links.pairs[0].p2p == p2p


VGPU_HOST = """+-----------------------------------------------------------------------------+
| NVIDIA-SMI 550.90.05              Driver Version: 550.90.05                 |
|---------------------------------+------------------------------+------------+
| GPU  Name                       | Bus-Id                       | GPU-Util   |
|      vGPU ID     Name           | VM ID     VM Name            | vGPU-Util  |
|=================================+==============================+============|
|   0  NVIDIA A16                 | 00000000:85:00.0             |   0%       |
|      3251649543  NVIDIA A16-8C  | 0607...  instance-00000273   |      0%    |
+---------------------------------+------------------------------+------------+
|   1  NVIDIA A16                 | 00000000:C1:00.0             |   0%       |
"""
DRAWN = """| NVIDIA-SMI 570.172.08     Driver Version: 570.172.08   CUDA Version: 12.8 |
| GPU  Name                     | Bus-Id        Disp.A | Volatile Uncorr. ECC |
|===============================+======================+======================|
|   0  NVIDIA A16               | 00000000:85:00.0 Off |                    0 |
| N/A   32C    P0     18W / 62W |      4MiB /  15356MiB |      0%   Default |
|   1  NVIDIA A16               | 00000000:C1:00.0 Off |                    0 |
| N/A   32C    P0     18W / 62W |      4MiB /  15356MiB |      0%   Default |
"""
ONE_CELL = """('| NVIDIA-SMI 570.133.07   Driver Version: 570.133.07   CUDA Version: 12.8|', 'out'),
('|   0  NVIDIA A16   On   00000000:85:00.0   Off |   N/A         |', 'out'),
('|   1  NVIDIA A16   On   00000000:C1:00.0   Off |   N/A         |', 'out'),
"""


@pytest.mark.parametrize(
    ("text", "driver", "total"),
    [
        pytest.param(VGPU_HOST, "550.90.05", None, id="host of virtual GPUs"),
        pytest.param(DRAWN, "570.172.08", 15356, id="no persistence"),
        pytest.param(ONE_CELL, "570.133.07", None, id="one cell"),
    ],
)
def test_rows_of_fewer_cells_are_cards(text: str, driver: str, total: int | None) -> None:
    machine = read(text)
    assert [(g.index, g.name, g.bus_id, g.memory_mib, g.vgpu) for g in machine.gpus] == [
        (0, "NVIDIA A16", "00000000:85:00.0", total, False),
        (1, "NVIDIA A16", "00000000:C1:00.0", total, False),
    ]
    assert machine.driver == driver


def test_the_verdict_on_nvlink_may_stand_behind_the_name() -> None:
    machine = read(
        "GPU 0: NVIDIA RTX A4000 (UUID: GPU-aaaa) Device does not have or support Nvlink\n"
        "GPU 1: Quadro RTX 5000 (UUID: GPU-bbbb) NVML: Unable to retrieve Nvlink information as"
        " all links are inActive\n"
    )
    assert machine.links.nvlink == "none"
    assert [gpu.name for gpu in machine.gpus] == ["NVIDIA RTX A4000", "Quadro RTX 5000"]


ASKED = [
    pytest.param(
        "power.limit,power.max_limit,memory.total,vbios_version,driver_version,name,temperature.gpu",
        "200.00, 292.00, 7979, 90.04.23.00.5F, 440.64, GeForce RTX 2080, 45",
        {"memory_mib": 7979, "power_cap_w": 200.0, "name": "GeForce RTX 2080"},
        "440.64",
        id="two-part driver among watts",
    ),
    pytest.param(
        "memory.used,memory.total,compute_cap",
        "20480, 24576, 8.6",
        {"memory_mib": 24576, "memory_used_mib": 20480, "compute_capability": "8.6"},
        None,
        id="numbers alone",
    ),
    pytest.param(
        "name,pcie.link.width.current,pcie.link.width.max,memory.free,memory.total",
        "NVIDIA L40S, 8, 16, 40000, 46068",
        {"pcie_width_max": 16, "memory_free_mib": 40000, "memory_mib": 46068},
        None,
        id="free before total",
    ),
]


@pytest.mark.parametrize(("columns", "values", "facts", "driver"), ASKED)
def test_rows_without_header_have_the_columns_that_were_asked_for(
    columns: str, values: str, facts: dict[str, Any], driver: str | None
) -> None:
    command = f"$ nvidia-smi --query-gpu={columns} --format=csv,noheader,nounits"
    machine = read(f"{command}\n{values}\nfirst, then, the, rest, of, the, words\n")
    (gpu,) = machine.gpus
    assert {key: getattr(gpu, key) for key in facts} == facts
    assert machine.driver == driver


def test_a_second_query_of_the_same_cards_adds_none() -> None:
    command = "nvidia-smi --query-gpu={} --format=csv,noheader,nounits\n"
    machine = read(
        command.format("name,memory.total")
        + "NVIDIA L4, 23034\nNVIDIA L4, 23034\n"
        + command.format("compute_cap,driver_version")
        + "8.9, 580.65.06\n8.9, 580.65.06\n"
    )
    assert [(g.name, g.memory_mib, g.compute_capability) for g in machine.gpus] == [
        ("NVIDIA L4", 23034, "8.9")
    ] * 2


def test_columns_of_one_query_are_not_those_of_the_next() -> None:
    uuid = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
    machine = read(
        "nvidia-smi --query-gpu=index,uuid,memory.total --format=csv,noheader,nounits\n"
        f"0, {uuid}, 23034\n"
        "nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory --format=csv,noheader,nounits\n"
        f"412, {uuid}, 9000\n"
    )
    assert [gpu.memory_mib for gpu in machine.gpus if gpu.index == 0] == [23034]
    assert len(machine.gpus) == 1


def test_rows_in_a_string_of_a_diff_are_all_read() -> None:
    rows = "\\n".join(f"{i}, NVIDIA B200, 610.43.02, 00000000:0{i + 3}:00.0" for i in range(3))
    machine = read(
        '+      "nvidia-smi",\n+      "--query-gpu=index,name,driver_version,pci.bus_id",\n'
        f'+      "stdout": "{rows}",\n'
    )
    assert [gpu.bus_id for gpu in machine.gpus] == [f"00000000:0{i + 3}:00.0" for i in range(3)]
    assert machine.driver == "610.43.02"


def test_the_bullets_of_a_rig_report_name_card_memory_driver_and_address() -> None:
    machine = read(
        "- **OS:** Ubuntu 24.04.4 LTS\n- **Kernel:** 6.6.87.2-microsoft-standard-WSL2\n\n"
        "- **GPU 0:** NVIDIA GeForce RTX 5080 | 16303 MiB | driver 596.36 | VBIOS 98.03.5c.00.b4\n"
        "  - **Power:** limit=[N/A] (default=95.00 W, max=175.00 W)\n"
        "  - **PCIe:** x8 lanes negotiated (GPU max x16, Gen up to 5) | bus 00000000:02:00.0 slow\n"
        "- **GPU 1:** NVIDIA GeForce RTX 3090 Ti | 24564 MiB | driver 596.36\n"
    )
    assert [(g.index, g.model, g.memory_mib, g.bus_id) for g in machine.gpus] == [
        (0, "RTX 5080", 16303, "00000000:02:00.0"),
        (1, "RTX 3090 Ti", 24564, None),
    ]
    assert (machine.driver, machine.platform) == ("596.36", "wsl2")


OLD, NEW = "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090"
FASTER = [
    ([(OLD, 24576), (OLD, 24576), (NEW, 24564), (NEW, 24564)], 2, (2, 3)),
    ([(OLD, 24576), (OLD, 24576), (NEW, 24564), (NEW, 24564)], None, (2, 3)),
    ([("NVIDIA GeForce RTX 5060 Ti", 16311), ("NVIDIA GeForce RTX 5080", 16303)], 1, (1,)),
    ([(NEW, 49140), (NEW, 24564), (NEW, 24564)], 2, (1, 2)),
    ([("NVIDIA A40", 46068), ("NVIDIA RTX A6000", 49140)], 1, (1,)),
    ([("NVIDIA GeForce RTX 5090", 32607), (OLD, 24576), (OLD, 24576)], None, (1, 2)),
]


@pytest.mark.parametrize(("cards", "needed", "indices"), FASTER)
def test_of_cards_of_one_size_the_faster_serve(
    cards: list[tuple[str, int]], needed: int | None, indices: tuple[int, ...]
) -> None:
    box = read(table([row(i, name, total=total) for i, (name, total) in enumerate(cards)]))
    assert choose_gpus(box, needed, catalogue=gpus()).indices == indices
