"""Query tables in any form, what monitors print, and cards that are gone by one text or another."""

from __future__ import annotations

import pytest
from smi_texts import matrix, row, table

from qwendeploy.documents import Machine
from qwendeploy.hardware.merge import machine_of
from qwendeploy.hardware.texts.sniff import read_text
from qwendeploy.tables.gpus import gpus


def read(*texts: str) -> Machine:
    return machine_of([read_text(text, f"text {i}") for i, text in enumerate(texts)], gpus())


def listed(text: str) -> list[tuple[int | None, str | None, int | None]]:
    return [(gpu.index, gpu.name, gpu.memory_mib) for gpu in read(text).gpus]


ROWS = "index, name, memory.total [MiB], driver_version\n0, NVIDIA L40, 46068 MiB, 535.161.08\n"
RULE = "\n|---|---|---|---|\n"
DIVIDED = {
    "semicolons": ROWS.replace(", ", ";"),
    "tabs": ROWS.replace(", ", "\t"),
    "quotes": "\n".join(
        ",".join(f'"{cell}"' for cell in line.split(", ")) for line in ROWS.splitlines()
    ),
    "bars": "\n".join(f"| {line.replace(', ', ' | ')} |" for line in ROWS.splitlines()).replace(
        "\n", RULE, 1
    ),
}


@pytest.mark.parametrize("text", DIVIDED.values(), ids=DIVIDED)
def test_query_is_read_whatever_divides_its_cells(text: str) -> None:
    assert listed(text) == [(0, "NVIDIA L40", 46068)]
    assert read(text).driver == "535.161.08"


@pytest.mark.parametrize(
    "text",
    [
        "| # | GPU | tok/s | VRAM |\n|---|---|---|---|\n| 1 | NVIDIA RTX 4090 | 74.03 | 24 GB |\n",
        "| NVIDIA RTX PRO 6000 Blackwell Workstation Edition | 74.03 | 183.51 | 390.92 |\n",
        "|   0  MIG 1g.24gb       19     7/7        20.00      No     18     1     0   |\n",
        "NVIDIA H100 80GB, 2.49, 80\nNVIDIA A100 80GB, 1.19, 80\nNVIDIA RTX 4090, 0.34, 24\n",
        "GPU KV cache size: 123,456 tokens\nGPU 0 has a total capacity of 23.65 GiB\n",
    ],
)
def test_tables_and_logs_about_gpus_list_none(text: str) -> None:
    assert not read(text).gpus


UUIDS = [f"GPU-0000000{i}-1111-2222-3333-444444444444" for i in range(2)]


def looped(columns: str, *, hidden: bool = False) -> str:
    rows = []
    for second in range(3):
        for uuid in UUIDS:
            cells = {
                "timestamp": f"2026/07/06 11:49:0{second}.123",
                "name": "NVIDIA A40",
                "uuid": UUIDS[0] if hidden else uuid,
            }
            rows.append(", ".join(cells[column] for column in columns.split(", ")))
    return "\n".join((columns, *rows))


def test_a_loop_prints_the_same_cards_again() -> None:
    assert read(looped("timestamp, name, uuid")).count == 2
    assert read(looped("name, uuid")).count == 2


def test_hidden_identifiers_make_no_loop() -> None:
    assert read(looped("name, uuid", hidden=True)).count == 6


def test_capability_alone_counts_cards() -> None:
    found = read("compute_cap\n8.6\n8.6\n")
    assert (found.count, found.usable_gpu_indices) == (2, (0, 1))
    assert not found.gpus[0].compute_capability_by_name


def test_counted_names_are_that_many_cards() -> None:
    found = read("$ nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c\n"
                 "      8 NVIDIA H100 80GB HBM3\n")  # fmt: skip
    assert {gpu.name for gpu in found.gpus} == {"NVIDIA H100 80GB HBM3"}
    assert found.count == 8


ASIDE = [
    "NVIDIA DGX A100\n",
    "NVIDIA GeForce RTX 4090\n(sold, now this:)\n",
    "NVIDIA Release 24.05 (build 91431255)\n",
    "NVIDIA GeForce RTX 3050 6GB Laptop GPU 32.0.15.6078  4293918720\n",
    "GPU 00000000:01:00.0\n    NVIDIA RTX6000-Ada-1Q\n    NVIDIA RTX6000-Ada-48Q\n",
    "      8 NVIDIA H100 80GB HBM3\n",
]


@pytest.mark.parametrize("text", ASIDE)
def test_a_name_alone_in_its_line_says_nothing_beside_a_table(text: str) -> None:
    box = table([row(0, "NVIDIA L40S", total=46068), row(1, "NVIDIA L40S", total=46068)])
    assert read(text + box).gpus == read(box).gpus


@pytest.mark.parametrize(
    "text", [ASIDE[2], ASIDE[3], ASIDE[4], "NVIDIA Broadcast 2", "A2", "L4\nT4"]
)
def test_products_and_offers_are_no_cards(text: str) -> None:
    assert not read(text).gpus


LEFT_OUT = "name, pci.bus_id\nNVIDIA H100 PCIe, 00000000:04:00.0\n{}\nNVIDIA H100 PCIe, {}:00.0\n"


@pytest.mark.parametrize("mark", ["[...]", "...", "  …", ""])
def test_rows_behind_an_omission_are_cards_of_their_own(mark: str) -> None:
    assert read(LEFT_OUT.format(mark, "00000000:8B")).count == 2


def test_row_torn_by_a_decimal_comma_keeps_name_and_memory() -> None:
    text = "index, name, power.limit [W], memory.total [MiB]\n0, NVIDIA L40, 300,00 W, 46068 MiB\n"
    assert listed(text) == [(0, "NVIDIA L40", 46068)]


def test_shortened_output_keeps_driver_name_and_host_memory() -> None:
    found = read(
        "NVIDIA-SMI 580.159.03   Driver 580.159.03   CUDA Version: 13.0\n"
        "GPU 0: NVIDIA GB10   35C   P8   4W   Memory-Usage: Not Supported   0% util\n"
    )
    assert (found.driver, found.gpus[0].name, found.unified_memory) == (
        "580.159.03",
        "NVIDIA GB10",
        True,
    )


MONITORS = [
    pytest.param(
        "rig4          Mon Jul  6 11:49:06 2026  550.54.14\n"
        "[0] NVIDIA A100 80GB PCIe | 33'C,   0 % |     4 / 81920 MB |\n"
        "[3] NVIDIA T1000 8GB      | 44°C,   2 %,   12 /  50 W |   300 /  8192 MB | gdm(120M)\n",
        [(0, "NVIDIA A100 80GB PCIe", 81920), (3, "NVIDIA T1000 8GB", 8192)],
        "550.54.14",
        id="gpustat",
    ),
    pytest.param(
        " Device 0 [NVIDIA GeForce RTX 3090] PCIe GEN 4@16x RX: 0.000 KiB/s TX: 0.000 KiB/s\n"
        " GPU[                 0%] MEM[|        0.352Gi/24.000Gi]\n"
        " Device 1 [NVIDIA GeForce RTX 3060] PCIe GEN 4@ 4x RX: 0.000 KiB/s TX: 0.000 KiB/s\n"
        " GPU[                 0%] MEM[|        0.352Gi/12.000Gi]\n",
        [(0, "NVIDIA GeForce RTX 3090", 24576), (1, "NVIDIA GeForce RTX 3060", 12288)],
        None,
        id="nvtop",
    ),
    pytest.param(
        "ggml_cuda_init: found 2 CUDA devices:\n"
        "  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes\n"
        "  Device 1: Tesla P40, compute capability 6.1, VMM: yes\n",
        [(0, "NVIDIA GeForce RTX 4090", None), (1, "Tesla P40", None)],
        None,
        id="llama.cpp",
    ),
    pytest.param(
        "$ nvidia-smi -q | grep -i 'product name'\n"
        "    Product Name                          : NVIDIA GeForce RTX 3060\n"
        "    Product Name                          : NVIDIA GeForce RTX 3060\n",
        [(0, "NVIDIA GeForce RTX 3060", None), (1, "NVIDIA GeForce RTX 3060", None)],
        None,
        id="filtered log",
    ),
]


@pytest.mark.parametrize(("text", "cards", "driver"), MONITORS)
def test_monitor_names_the_cards(
    text: str, cards: list[tuple[int, str, int | None]], driver: str | None
) -> None:
    assert listed(text) == cards
    assert read(text).driver == driver


def test_a_monitor_beside_the_tool_adds_no_card() -> None:
    box = table([row(0, "Tesla P40"), row(1, "NVIDIA GeForce RTX 4090")])
    found = read(box + "\n  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9\n")
    assert [gpu.compute_capability for gpu in found.gpus] == ["6.1", "8.9"]


PAIR = table([row(0, "NVIDIA RTX A5000", bus="00000000:02:00.0"),
              row(1, "NVIDIA RTX A5000", bus="00000000:04:00.0")])  # fmt: skip
XID = "[99.1] NVRM: Xid (PCI:0000:{}:00): 79, pid=123, GPU has fallen off the bus.\n"
FELL = (
    "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
    "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
    "               NVRM: fallen off the bus and is not responding to commands.\n"
)


def test_card_that_the_kernel_log_lost_is_missing() -> None:
    alone = read(FELL)
    assert (alone.count, alone.usable) == (None, False)
    assert [gpu.bus_id for gpu in alone.missing_gpus] == ["0000:b3:00.0"]
    beside = read(XID.format("03") + PAIR)
    assert [gpu.bus_id for gpu in beside.missing_gpus] == ["0000:03:00.0"]
    assert beside.usable_gpu_indices == (0, 1)


def test_listed_card_is_out_if_it_fell_after_the_table() -> None:
    after = read(f"{PAIR}\n{XID.format('04')}")
    assert [gpu.health for gpu in after.gpus] == ["ok", "lost"]
    assert after.usable_gpu_indices == (0,)
    for came_back in (read(f"{XID.format('04')}\n{PAIR}"), read(XID.format("04"), PAIR)):
        assert came_back.usable_gpu_indices == (0, 1)
        assert any("fell off the bus" in note for note in came_back.notes)


def test_other_xids_take_no_card_away() -> None:
    found = read(f"{PAIR}\n{XID.format('04').replace(': 79', ': 13')}".replace("fallen off", "hit"))
    assert found.usable_gpu_indices == (0, 1)


def test_one_unnumbered_missing_card_belongs_into_the_one_gap() -> None:
    gone = "Unable to determine the device handle for GPU0000:{}:00.0: Unknown Error\n"
    gap = table([row(0, "NVIDIA A10", bus="00000000:01:00.0"),
                 row(2, "NVIDIA A10", bus="00000000:05:00.0")])  # fmt: skip
    assert [gpu.index for gpu in read(gone.format("03") + gap).missing_gpus] == [1]
    assert [gpu.index for gpu in read(gone.format("09") + gap).missing_gpus] == [None]
    assert [gpu.index for gpu in read(gone.format("09") + PAIR).missing_gpus] == [None]


def test_two_addresses_of_one_number_are_noticed() -> None:
    other = table([row(0, "NVIDIA RTX A5000", bus="00000000:61:00.0")])
    assert any("one machine" in note for note in read(f"{PAIR}\n{other}").notes)


PEERS = " \tGPU0\tGPU1\t\n GPU0\tX\t{0}\t\n GPU1\t{0}\tX\t\n"


def test_peer_matrix_lists_gpus_and_tells_reads_from_links() -> None:
    alone = read("nvidia-smi topo -p2p r\n" + PEERS.format("OK"))
    assert (alone.count, alone.p2p, alone.links.nvlink) == (2, "yes", "unknown")
    links = read("nvidia-smi topo -p2p n\n" + PEERS.format("NS"))
    assert (links.count, links.p2p) == (2, "unknown")
    both = "nvidia-smi topo -p2p r\n{}\nnvidia-smi topo -p2p n\n{}"
    assert read(both.format(PEERS.format("OK"), PEERS.format("NS"))).p2p == "yes"


def test_matrix_header_behind_its_command_is_a_header() -> None:
    text = matrix({0: (" X ", "PHB"), 1: ("PHB", " X ")}).expandtabs(8)
    assert read("nvidia-smi topo -m   " + text).links.worst_pcie_path == "PHB"


def test_matrix_in_a_form_is_a_matrix() -> None:
    text = (
        "| | GPU0 | GPU1 | CPU Affinity |\n|---|---|---|---|\n"
        "| GPU0 | X | NV4 | 0-31 |\n| GPU1 | NV4 | X | 0-31 |\n"
    )
    assert [(p.a, p.b, p.nvlinks) for p in read(text).links.pairs] == [(0, 1, 4)]


def test_links_of_unnamed_cards_are_known_or_unknown_but_not_none() -> None:
    assert read(matrix({0: (" X ", "PHB"), 1: ("PHB", " X ")})).interconnect == "pcie"
    assert read("compute_cap\n8.0\n8.0").interconnect == "unknown"


PLACES = [
    ("C:\\Users\\x>nvidia-smi\nNVIDIA-SMI has failed because it couldn't communicate with the"
     " NVIDIA driver.", "windows"),
    ("'nvidia-smi' is not recognized as an internal or external command,", "windows"),
    ("me@desk:/mnt/c/Users/me$ nvidia-smi\nNo devices were found", "wsl2"),
    ("PS C:\\> wsl nvidia-smi\nNo devices were found", "wsl2"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "platform"), PLACES)
def test_prompt_tells_the_system(text: str, platform: str) -> None:
    assert read(text).platform == platform


@pytest.mark.parametrize(
    "line",
    [
        "docker: Error response from daemon: CDI device injection failed: unresolvable CDI devices"
        " nvidia.com/gpu=all",
        "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.",
        "RuntimeError: Found no NVIDIA driver on your system. Please check",
        "docker: Error response from daemon: unknown or invalid runtime name: nvidia",
    ],
)
def test_runtime_that_cannot_give_gpus_is_a_no(line: str) -> None:
    found = read(line)
    assert (found.usable, found.count) == (False, None)


NAMES = [
    ("NVIDIA GeForce RTX 2050", "8.6"),
    ("NVIDIA GeForce RTX 2060", "7.5"),
    ("NVIDIA RTX 6000D", "12.0"),
    ("NVIDIA RTX PRO 6000D Blackwell Workstation Edition", "12.0"),
    ("NVIDIA H100XM-80C", "9.0"),
    ("Xavier (nvgpu)", "7.2"),
]


@pytest.mark.parametrize(("name", "capability"), NAMES)
def test_name_gives_capability(name: str, capability: str) -> None:
    assert read(table([row(0, name)])).gpus[0].compute_capability == capability
