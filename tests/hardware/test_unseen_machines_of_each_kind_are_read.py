"""Machines that nobody posted, one or more of each kind of trap, give their facts too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from smi_texts import matrix, row, table

from qwendeploy.documents import Machine
from qwendeploy.errors import UserError
from qwendeploy.hardware import machine_from_files
from qwendeploy.hardware.merge import machine_of
from qwendeploy.hardware.texts.sniff import read_bytes, read_text
from qwendeploy.tables.gpus import gpus


def read(*texts: str) -> Machine:
    return machine_of([read_text(text, f"text {i}") for i, text in enumerate(texts)], gpus())


TWO_3090 = table([row(0, "NVIDIA GeForce RTX 3090"), row(1, "NVIDIA GeForce RTX 3090")])
PAIR = matrix({0: (" X ", "PHB"), 1: ("PHB", " X ")})

WRAPPINGS = [
    pytest.param(lambda text: text.replace("\n", "\r\n"), id="windows line ends"),
    pytest.param(lambda text: "\n".join(f"> {line}" for line in text.split("\n")), id="quoted"),
    pytest.param(lambda text: f"```\n{text}\n```", id="fenced"),
    pytest.param(lambda text: "\n".join("    " + s for s in text.split("\n")), id="indented"),
    pytest.param(lambda text: "\n".join("gpu-1  | " + s for s in text.split("\n")), id="compose"),
    pytest.param(lambda text: f"\x1b[1;32m{text}\x1b[0m", id="coloured"),
    pytest.param(lambda text: f"[1;32m{text}[0m", id="colour without ESC"),
    pytest.param(lambda text: f"^[[4m{text}^[[0m", id="colour in carets"),
    pytest.param(lambda text: text.replace("|", "│"), id="box characters"),
    pytest.param(lambda text: text.replace(" ", "\u00a0"), id="no-break spaces"),
    pytest.param(lambda text: f"$ nvidia-smi\n{text}\nfertig, alles gut ✅ 完成", id="session"),
    pytest.param(lambda text: f"{text}\n\n{text}", id="watched twice"),
    pytest.param(lambda text: "\n".join(s.rstrip(" |") for s in text.split("\n")), id="bars lost"),
]


@pytest.mark.parametrize("wrap", WRAPPINGS)
def test_table_survives_the_way_it_was_saved(wrap: Any) -> None:
    found = read(wrap(TWO_3090))
    assert [(gpu.index, gpu.name, gpu.memory_mib) for gpu in found.gpus] == [
        (0, "NVIDIA GeForce RTX 3090", 24576),
        (1, "NVIDIA GeForce RTX 3090", 24576),
    ]
    assert (found.driver, found.cuda) == ("580.65.06", "13.0")


@pytest.mark.parametrize(
    "wrap", [case for case in WRAPPINGS if case.id not in ("no-break spaces", "bars lost")]
)
def test_matrix_survives_the_way_it_was_saved(wrap: Any) -> None:
    found = read(TWO_3090, wrap(PAIR))
    assert (found.links.nvlink, found.links.worst_pcie_path) == ("none", "PHB")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_powershell_encodings_are_read(encoding: str) -> None:
    reading = read_bytes(TWO_3090.encode(encoding), "saved.txt")
    assert len(reading.gpus) == 2


NAMES = [
    ("NVIDIA RTX PRO 4000 Bla...", "12.0", "RTX PRO 4000 Blackwell"),
    ("NVIDIA RTX 5000 Ada Gen...", "8.9", "RTX 5000 Ada"),
    ("NVIDIA A100-SXM4-40...", "8.0", "A100 40GB SXM"),
    ("NVIDIA GeForce RTX 4070 ...", "8.9", "RTX 4070 Ti SUPER"),
    ("NVIDIA GeForce RTX 5090 D", "12.0", "RTX 5090 D"),
    ("NVIDIA L4", "8.9", "L4"),
    ("Tesla P100-PCIE-16GB", "6.0", "P100 PCIe 16GB"),
    ("NVIDIA GeForce RTX 5065 Ti", None, None),
    ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", "12.0", "RTX 5070 Ti Laptop"),
    ("Quadro RTX 6000", "7.5", "Quadro RTX 6000"),
    ("NVIDIA RTX PRO 9000 Blackwell", "12.0", None),
    ("NVIDIA Graphics Device", None, None),
    ("NVIDIA GH200 480GB", "9.0", "GH200 96GB"),
]


@pytest.mark.parametrize(("name", "capability", "card"), NAMES, ids=[n[0] for n in NAMES])
def test_name_gives_capability_and_card(
    name: str, capability: str | None, card: str | None
) -> None:
    (gpu,) = read(table([row(0, name, total=None, sensors="N/A   41C    P8    7W /  N/A")])).gpus
    assert (gpu.compute_capability, gpu.compute_capability_by_name) == (
        capability,
        capability is not None,
    )
    assert gpu.name_truncated == name.endswith("...")
    if card is not None and not name.endswith("4070 ..."):
        assert gpu.model == card


VGPUS = [
    ("GRID T4-16Q", "7.5"),
    ("NVIDIA A40-48Q", "8.6"),
    ("GRID A100D-80C", "8.0"),
    ("NVIDIA L40S-24C", "8.9"),
    ("NVIDIA RTXA6000-48Q", "8.6"),
    ("GRID RTX6000-24Q", "7.5"),
    ("NVIDIA RTX6000-Ada-48Q", "8.9"),
    ("NVIDIA H100XL-80C", "9.0"),
    ("NVIDIA A100-3-20C", "8.0"),
    ("GRID M60-8Q", "5.2"),
]


@pytest.mark.parametrize(("name", "capability"), VGPUS)
def test_virtual_gpu_is_known_by_its_board(name: str, capability: str) -> None:
    (gpu,) = read(table([row(0, name, total=16384)])).gpus
    assert (gpu.vgpu, gpu.compute_capability) == (True, capability)


@pytest.mark.parametrize("name", ["GRID K520", "NVIDIA A100-SXM4-80GB", "NVIDIA A40", "Tesla T4"])
def test_board_is_no_virtual_gpu(name: str) -> None:
    assert not read(table([row(0, name)])).gpus[0].vgpu


@pytest.mark.parametrize(
    ("name", "total"),
    [("RTX 4090", 49140), ("RTX 2080 Ti", 22528), ("RTX 3080", 20480), ("RTX 3070", 16384)],
)
def test_rebuilt_memory_is_kept_as_read(name: str, total: int) -> None:
    (gpu,) = read(table([row(0, f"NVIDIA GeForce {name}", total=total)])).gpus
    assert gpu.memory_mib == total
    assert gpu.model is not None and name in gpu.model


def test_fields_renamed_by_driver_610_are_the_same_facts() -> None:
    text = table([row(0, "NVIDIA B200", total=183359)], driver="615.10.01", cuda="13.4")
    renamed = text.replace("Driver Version", "KMD Version").replace(
        "CUDA Version", "CUDA UMD Version"
    )
    assert read(renamed) == read(text)


@pytest.mark.parametrize("lines", range(5, 11))
def test_table_cut_by_head_keeps_the_rows_before_the_cut(lines: int) -> None:
    found = read("\n".join(TWO_3090.split("\n")[: lines + 3]))
    assert [gpu.index for gpu in found.gpus] in ([0], [0, 1])
    assert {gpu.memory_mib for gpu in found.gpus} <= {None, 24576}
    assert found.driver == "580.65.06"


BEFORE = [
    "Failed to properly shut down NVML: Driver Not Loaded",
    "Unable to determine the device handle for GPU5: 0000:C1:00.0: Unknown Error",
    "Unable to determine the device handle for gpu 0000:C1:00.0: GPU is lost.  Reboot the system"
    " to recover this GPU",
    "WARNING: infoROM is corrupted at gpu 0000:02:00.0",
]


@pytest.mark.parametrize("line", BEFORE)
@pytest.mark.parametrize("order", [1, -1])
def test_error_lines_beside_a_table_leave_the_table(line: str, order: int) -> None:
    found = read("\n".join([line, TWO_3090][::order]))
    assert (found.count, found.usable) == (2, True)
    lost = "device handle" in line
    assert [item.bus_id for item in found.missing_gpus] == (["0000:C1:00.0"] if lost else [])


FAILURES = [
    ("NVIDIA-SMI has failed because it couldn’t communicate with the NVIDIA driver.", None),
    ("NVIDIA-SMI has failed because it couldn't communicate\nwith the NVIDIA driver. Make", None),
    ("Failed to initialize NVML: Driver/library version mismatch", None),
    ("Failed to initialize NVML: Insufficient Permissions", None),
    ("Failed to initialize NVML: GPU access blocked by the operating system", None),
    ("bash: nvidia-smi: command not found", None),
    ("zsh: command not found: nvidia-smi", None),
    ("bash: nvidia-smi：未找到命令", None),
    ("'nvidia-smi' is not recognized as an internal or external command,", None),
    ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", None),
    (
        "Unable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error\n"
        "No devices were found",
        0,
    ),
    (
        'docker: Error response from daemon: could not select device driver "" with capabilities:'
        " [[gpu]].",
        None,
    ),
]


@pytest.mark.parametrize(("text", "count"), FAILURES, ids=[f[0][:40] for f in FAILURES])
def test_error_text_instead_of_a_table_is_a_no_with_its_line(text: str, count: int | None) -> None:
    found = read(text)
    assert (found.usable, found.count, found.gpus) == (False, count, ())
    assert found.usable_reason.split()[0].strip("':") in text


CAPABLE = [
    ("NVIDIA GeForce RTX 5090", "565.57.01", False),
    ("NVIDIA GeForce RTX 5090", "570.86.10", True),
    ("NVIDIA GeForce RTX 3090", "525.60.13", True),
    ("NVIDIA GeForce RTX 3090", "515.65.01", False),
    ("Tesla V100-SXM2-32GB", "535.54.03", True),
    ("Tesla P40", "550.54.14", False),
    ("NVIDIA GB10", "580.95.05", True),
]


@pytest.mark.parametrize(("name", "driver", "usable"), CAPABLE)
def test_one_rule_decides_whether_a_machine_can_serve(name: str, driver: str, usable: bool) -> None:
    found = read(table([row(0, name)], driver=driver, cuda="12.0"))
    assert found.usable is usable
    assert found.usable_gpu_indices == ((0,) if usable else ())


def test_unknown_capability_is_neither_yes_nor_no() -> None:
    assert read(table([row(0, "NVIDIA Graphics Device")])).usable is None


FAULTS = [
    row(0, "NVIDIA L40S", sensors="ERR!   30C    P8            N/A  /  350W"),
    row(0, "ERR!", ecc="ERR!", sensors="ERR!  ERR! ERR!    ERR! / ERR!"),
    row(0, "NVIDIA L40S", mig="ERR!"),
    row(0, "NVIDIA L40S", ecc="ERR!"),
]


@pytest.mark.parametrize("text", FAULTS)
def test_faulty_gpu_is_listed_and_not_used(text: str) -> None:
    found = read(table([text, row(1, "NVIDIA L40S", total=46068)]))
    assert [gpu.health for gpu in found.gpus] == ["error", "ok"]
    assert found.usable_gpu_indices == (1,)


QUERIES = [
    pytest.param(
        "index, name, memory.total [MiB], memory.free [MiB]\n0, NVIDIA L4, 23034 MiB, 22600 MiB",
        [(0, "NVIDIA L4", 23034)],
        id="header and units",
    ),
    pytest.param(
        "name, index, memory.total [MiB]\nNVIDIA L4, 1, 23034\nNVIDIA L4, 3, 23034",
        [(1, "NVIDIA L4", 23034), (3, "NVIDIA L4", 23034)],
        id="gap and no units",
    ),
    pytest.param(
        "0, GPU-11111111-2222-3333-4444-555555555555, NVIDIA RTX A6000, 49140 MiB",
        [(0, "NVIDIA RTX A6000", 49140)],
        id="no header, with uuid",
    ),
    pytest.param("0, 24564 MiB\n1, 24564 MiB", [(0, None, 24564), (1, None, 24564)], id="sizes"),
    pytest.param(
        "0, NVIDIA GeForce RTX 5090, 32607, 412.34, 12.0",
        [(0, "NVIDIA GeForce RTX 5090", 32607)],
        id="watts are no driver",
    ),
    pytest.param("Tesla T4\nTesla T4", [(0, "Tesla T4", None), (1, "Tesla T4", None)], id="names"),
    pytest.param(
        "0, NVIDIA GeForce RTX 3090, 24576, 512, 24064",
        [(0, "NVIDIA GeForce RTX 3090", 24576)],
        id="bare numbers",
    ),
    pytest.param(
        "index, name, memory.total [MiB]\n0, NVIDIA GB10, [N/A]",
        [(0, "NVIDIA GB10", None)],
        id="na",
    ),
    pytest.param(
        "index,name,memory.total [MiB]\n0,NVIDIA H20,97871 MiB",
        [(0, "NVIDIA H20", 97871)],
        id="tight",
    ),
    pytest.param(
        "index, name, memory.total [MiB]\n0, [GPU is lost], [GPU is lost]\n"
        "1, NVIDIA A30, 24576 MiB",
        [(0, None, None), (1, "NVIDIA A30", 24576)],
        id="lost",
    ),
]


@pytest.mark.parametrize(("text", "listed"), QUERIES)
def test_query_of_any_columns_is_read(text: str, listed: list[tuple[Any, ...]]) -> None:
    found = read(text)
    assert [(gpu.index, gpu.name, gpu.memory_mib) for gpu in found.gpus] == listed
    assert found.driver is None


def test_idle_link_is_not_the_links_ability() -> None:
    (gpu,) = read(
        "index, name, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.max\n"
        "0, NVIDIA GeForce RTX 4090, 1, 4, 16"
    ).gpus
    assert (gpu.pcie_generation_max, gpu.pcie_width_max) == (4, 16)


def test_program_list_is_no_list_of_gpus() -> None:
    text = "pid, process_name, used_gpu_memory [MiB]\n4711, NVIDIA Overlay, 512 MiB"
    assert read(TWO_3090, text).count == 2
    with pytest.raises(UserError, match="recognizable"):
        machine_from_files_text(text)


def machine_from_files_text(text: str) -> Machine:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.txt"
        path.write_text(text, encoding="utf-8")
        return machine_from_files([path], catalogue=gpus())


MATRICES = [
    pytest.param(PAIR, "none", "PHB", id="pcie"),
    pytest.param(
        matrix({0: (" X ", "NV12"), 1: ("NV12", " X ")}, nics=4), "pairs", None, id="nics"
    ),
    pytest.param(PAIR.expandtabs(8), "none", "PHB", id="blanks"),
    pytest.param(PAIR.replace("NV#", "---"), "unknown", "PHB", id="topo -mp"),
    pytest.param(PAIR.split("\n\n")[0], "none", "PHB", id="no legend"),
    pytest.param(PAIR.replace("\t0-31\t0\t\tN/A", "\t\t\t\tN/A"), "none", "PHB", id="no affinity"),
    pytest.param(PAIR.replace("\t0\t\tN/A", "\t0-7\t\tN/A"), "none", "PHB", id="numa range"),
    pytest.param(PAIR.replace("PHB", "SOC"), "none", "SYS", id="word of old drivers"),
    pytest.param(PAIR.replace("PHB", "NODE"), "none", "NODE", id="node"),
    pytest.param("topo failed: exit 255", "unknown", None, id="no matrix"),
]


@pytest.mark.parametrize(("text", "nvlink", "worst"), MATRICES)
def test_links_of_a_pair(text: str, nvlink: str, worst: str | None) -> None:
    links = read(TWO_3090, text).links
    assert (links.nvlink, links.worst_pcie_path) == (nvlink, worst)


def test_matrix_with_a_gap_keeps_its_indices() -> None:
    found = read(
        matrix({0: (" X ", "NV4", "SYS"), 2: ("NV4", " X ", "SYS"), 5: ("SYS", "SYS", " X ")})
    )
    assert [gpu.index for gpu in found.gpus] == [0, 2, 5]
    assert [(p.a, p.b, p.nvlinks, p.pcie_path) for p in found.links.pairs] == [
        (0, 2, 4, None),
        (0, 5, 0, "SYS"),
        (2, 5, 0, "SYS"),
    ]


def test_numa_node_is_read_behind_any_number_of_nics() -> None:
    one = matrix({0: (" X ", "SYS"), 1: ("SYS", " X ")}, tail="\t72-143\t1,18-33\t\tN/A", nics=7)
    assert [gpu.numa_node for gpu in read(TWO_3090, one).gpus] == [1, 1]


@pytest.mark.parametrize(
    ("cell", "p2p"), [("OK", "yes"), ("CNS", "no"), ("GNS", "no"), ("U", "unknown")]
)
def test_peer_matrix_says_whether_gpus_reach_each_other(cell: str, p2p: str) -> None:
    peers = f" \tGPU0\tGPU1\t\n GPU0\tX\t{cell}\t\n GPU1\t{cell}\tX\t\n"
    found = read(TWO_3090, PAIR, peers)
    assert found.links.pairs[0].p2p == p2p
    assert found.links.worst_pcie_path == "PHB"


LISTINGS = [
    ("Device does not have or support Nvlink", "none"),
    ("\t Link 0: 14.062 GB/s\n\t Link 1: 14.062 GB/s", "unknown"),
    ("\t Link 0: <inactive>\n\t Link 1: <inactive>", "none"),
]


@pytest.mark.parametrize(("status", "nvlink"), LISTINGS)
def test_links_without_a_matrix_are_none_only_if_every_gpu_denies_them(
    status: str, nvlink: str
) -> None:
    gpu = "GPU {}: NVIDIA GeForce RTX 3090 (UUID: GPU-0000000{}-0000-0000-0000-000000000000)"
    text = "\n".join(f"{gpu.format(i, i)}\n{status}" for i in range(2))
    assert read(text).links.nvlink == nvlink
    assert read(text.split("GPU 1")[0] + "GPU 1: NVIDIA GeForce RTX 3090").links.nvlink == "unknown"


SLICES = (
    "GPU 0: NVIDIA A30 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000000)\n"
    "  MIG 2g.12gb Device 0: (UUID: MIG-GPU-aaaaaaaa-0000-0000-0000-000000000000/1/0)\n"
    "  MIG 1g.6gb Device 1: (UUID: MIG-GPU-aaaaaaaa-0000-0000-0000-000000000000/5/0)\n"
)


def test_slices_of_old_drivers_carry_their_instance_in_the_uuid() -> None:
    found = read(SLICES)
    assert [(d.gpu, d.gi, d.ci, d.profile) for d in found.mig_devices] == [
        (0, 1, 0, "2g.12gb"),
        (0, 5, 0, "1g.6gb"),
    ]
    assert found.gpus[0].mig and found.links.nvlink == "unknown"


def test_a_table_and_a_full_name_elsewhere_are_one_card() -> None:
    cut = table([row(3, "NVIDIA RTX PRO 5000 Blac...", total=48935)])
    found = read(cut, "name, compute_cap\nNVIDIA RTX PRO 5000 Blackwell, 12.0")
    assert [(g.index, g.name, g.memory_mib, g.compute_capability_by_name) for g in found.gpus] == [
        (3, "NVIDIA RTX PRO 5000 Blackwell", 48935, False)
    ]


PLATFORMS = [
    (table([row(0, "NVIDIA GB200", total=189471)]), "linux-aarch64"),
    (table([row(0, "NVIDIA GeForce RTX 4090", mode="WDDM")], driver="572.16"), "windows"),
    (table([row(0, "NVIDIA RTX A6000", mode="TCC")], driver="551.61"), "windows"),
    (table([row(0, "NVIDIA RTX A6000")], driver="566.36", smi="565.77.01"), "wsl2"),
    (TWO_3090 + "\nLinux box 5.15.167.4-microsoft-standard-WSL2 x86_64 GNU/Linux", "wsl2"),
    (TWO_3090 + "\nLinux box 6.8.0-aarch64 #1 SMP aarch64 GNU/Linux", "linux-aarch64"),
    (TWO_3090, "linux-x86_64"),
    ("driver_version, name\n551.61, NVIDIA GeForce RTX 4090", "unknown"),
]


@pytest.mark.parametrize(("text", "platform"), PLATFORMS)
def test_platform_is_what_the_text_shows(text: str, platform: str) -> None:
    assert read(text).platform == platform


def test_unified_memory_is_the_hosts() -> None:
    text = table([row(0, "NVIDIA Thor", total=None)]) + "\nMemTotal:       128460800 kB\n"
    found = read(text)
    assert found.unified_memory and found.gpus[0].memory_mib is None
    assert found.host_memory_mib == 125450


def test_board_without_a_pci_address_is_listed() -> None:
    text = table([row(0, "Orin (nvgpu)", total=None, bus="N/A", mode="N/A", display="N/A")])
    found = read(text)
    assert (found.count, found.unified_memory, found.gpus[0].compute_capability) == (1, True, "8.7")


def test_environment_reports_name_cards_driver_and_system() -> None:
    vllm = read(
        "OS: Ubuntu 22.04.3 LTS (x86_64)\n"
        "Python platform: Linux-5.15.153.1-microsoft-standard-WSL2-x86_64-with-glibc2.35\n"
        "CUDA runtime version: 12.1.105\nGPU models and configuration: \n"
        "GPU 0: NVIDIA GeForce RTX 4090\nGPU 1: NVIDIA GeForce RTX 4090\n\n"
        "Nvidia driver version: 546.17\n"
    )
    assert (vllm.count, vllm.driver, vllm.platform, vllm.cuda) == (2, "546.17", "wsl2", None)
    sglang = read(
        "GPU 0,1: NVIDIA B300 SXM6 AC\nGPU 0,1 Compute Capability: 10.3\n"
        "CUDA Driver Version: 590.44.01\n"
    )
    assert (sglang.count, sglang.driver) == (2, "590.44.01")
    assert [gpu.compute_capability_by_name for gpu in sglang.gpus] == [False, False]


def test_texts_of_two_machines_are_noticed() -> None:
    found = read(TWO_3090, "GPU 0: NVIDIA H200 (UUID: GPU-00000000-1111-2222-3333-444444444440)")
    assert any("one machine" in note for note in found.notes)
