"""Forms in which people post what their cards are, found in public repositories and issues.

The shapes are those of the posts (run together by a web page, listed by PowerShell, logged by
ollama, numbered by an editor); cards, versions and addresses are our own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from pasted_texts import BOX, GPU_LIST, HEADED, HEADS, LINES, LOG, NAME, OLD, PAIR, cards, read
from smi_texts import row, table

from qwendeploy.errors import UserError
from qwendeploy.hardware.texts.sniff import read_text


def each(form: Callable[[int, str], str]) -> str:
    return "\n".join(form(number, line) for number, line in enumerate(LINES, 1))


def mailed(text: str, width: int = 72) -> str:
    """Return the text as a mail program breaks it: at blanks, which are lost."""
    found = []
    for line in text.split("\n"):
        rest = line
        while len(rest) > width and (cut := rest.rfind(" ", 0, width + 1)) > 0:
            found.append(rest[:cut].rstrip())
            rest = rest[cut:].strip()
        found.append(rest)
    return "\n".join(found)


TABLES = {
    "line ends lost": "see: ``` nvidia-smi ``` " + re.sub(r"\s+", " ", BOX) + " ``` and then",
    "line ends lost, then cut": re.sub(r"\s+", " ", BOX)[:1050] + "...\n\nnext part",
    "blanks lost": re.sub(r" +", " ", BOX),
    "lines apart": BOX.replace("\n", "\n\n"),
    "broken by a mail program": mailed(BOX),
    "numbered by an editor": each(lambda number, line: f"{number:>3} | {line}"),
    "cat -n": each(lambda number, line: f"{number:6}\t{line}"),
    "grep -n": each(lambda number, line: f"{number}:{line}"),
    "system log": each(lambda number, line: f"May 12 03:11:{number:02} node-17 bash[934]: {line}"),
    "log of a pod": each(lambda _, line: f"2025-08-11T09:12:33.123456789Z stdout F {line}"),
    "pods side by side": each(lambda _, line: f"[pod/vllm-6c9d/vllm] {line}"),
    "time in brackets": each(lambda _, line: f"[2026-01-11 09:12:33] {line}"),
    "host before each line": each(lambda _, line: f"gpu01: {line}"),
    "comment": each(lambda _, line: f"#    {line}"),
    "source of a program": each(lambda _, line: f'    "{line}\\n"'),
    "bars lost": "NVIDIA-SMI 580.65.06   Driver Version: 580.65.06   CUDA Version: 13.0\n"
    + "\n".join(
        f"  {i}  {NAME}   Off   00000000:0{i}:00.0\n    N/A  30C  P0  46W / 350W"
        "   0MiB / 46068MiB   0%   Default"
        for i in (0, 1)
    ),
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in TABLES.items()])
def test_a_table_is_read_however_it_was_pasted(text: str) -> None:
    machine = read(text)
    assert cards(machine) == [(0, NAME, 46068), (1, NAME, 46068)]
    assert (machine.driver, machine.cuda) == ("580.65.06", "13.0")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("topology: " + re.sub(r"\s+", " ", PAIR), id="line ends lost"),
        pytest.param("\n".join(f"node7: {line}" for line in PAIR.split("\n")), id="host"),
        pytest.param(
            "\n".join(f'"{line}\\n"' for line in PAIR.replace("\t", "\\t").split("\n")),
            id="source of a program",
        ),
    ],
)
def test_a_matrix_is_read_however_it_was_pasted(text: str) -> None:
    machine = read(text)
    assert (machine.count, machine.links.nvlink, machine.links.worst_pcie_path) == (
        2,
        "none",
        "NODE",
    )


RECORDS = [
    {"index": "0", "name": NAME, "memory.total [MiB]": "46068 MiB", "driver_version": "570.86.15"},
    {"index": "3", "name": NAME, "memory.total [MiB]": "46068 MiB", "driver_version": "570.86.15"},
]
QUERIES = {
    "PowerShell list": "\n\n".join(
        "\n".join(f"{key:<18} : {value}" for key, value in record.items()) for record in RECORDS
    ),
    "PowerShell table": "index name        memory.total [MiB] driver_version\n"
    "----- ----        ------------------ --------------\n"
    + "\n".join(f"{r['index']:<5} {NAME} 46068 MiB          570.86.15" for r in RECORDS),
    "objects of JSON": json.dumps(RECORDS, indent=1),
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in QUERIES.items()])
def test_a_query_is_read_in_the_form_of_its_shell(text: str) -> None:
    machine = read(text)
    assert cards(machine) == [(0, NAME, 46068), (3, NAME, 46068)]
    assert machine.driver == "570.86.15"


@pytest.mark.parametrize(
    "text",
    [
        "index : 0\nname : my-search-index\n",
        json.dumps([{"index": 4, "name": "orders", "count": 12}]),
        "index name\n----- ----\n0     first\n",
    ],
)
def test_other_lists_with_such_names_are_no_gpus(text: str) -> None:
    assert read_text(text, "text").gpus == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HEADED, id="whole"),
        pytest.param(LOG, id="heading cut off"),
        pytest.param("\n".join(line.strip() for line in LOG.split("\n")), id="indents lost"),
        pytest.param(LOG.replace("\n", " \\\n"), id="Markdown line ends"),
        pytest.param("\n".join("    " + line for line in HEADED.split("\n")), id="indented more"),
    ],
)
def test_a_log_is_read_without_its_heading_or_indents(text: str) -> None:
    machine = read(text)
    assert cards(machine) == [(0, "NVIDIA RTX A4000", 16376)]
    assert machine.platform == "windows"


def test_what_stands_around_a_log_is_read_too() -> None:
    machine = read(f"$ nvidia-smi -L\n{GPU_LIST}\n$ nvidia-smi -q -d MEMORY -i 1\n{HEADED}\n$ date")
    assert [gpu.index for gpu in machine.gpus] == [0, 1]
    assert machine.driver == "538.78"
    twice = read(HEADED + HEADED.replace(":01:00.0", ":02:00.0").replace("0000\n", "0001\n"))
    assert cards(twice) == [(0, "NVIDIA RTX A4000", 16376), (1, "NVIDIA RTX A4000", 16376)]


DCGM = """2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA L40S                                                    |
|        | PCI Bus ID: 00000000:07:00.0                                         |
|        | Device UUID: GPU-aaaaaaaa-0000-0000-0000-000000000000                |
+--------+----------------------------------------------------------------------+
| 1      | Name: NVIDIA L40S                                                    |
|        | PCI Bus ID: 00000000:0A:00.0                                         |
|        | Device UUID: GPU-aaaaaaaa-0000-0000-0000-000000000001                |
+--------+----------------------------------------------------------------------+
"""
PROC = "".join(
    f"Model: \t\t NVIDIA L40S\nIRQ:   \t\t 13{i}\n"
    f"GPU UUID: \t GPU-aaaaaaaa-0000-0000-0000-00000000000{i}\nBus Location: \t 0000:0{i}:00.0\n"
    for i in (0, 1)
)
OLLAMA = "".join(
    'time=2026-06-03T11:29:50.606Z level=INFO source=types.go:71 msg="inference compute"'
    f" id=GPU-aaaaaaaa-0000-0000-0000-00000000000{i} library=cuda compute=8.9 driver=12.4"
    ' name="NVIDIA L40S" total="44.5 GiB" available="44.1 GiB"\n'
    for i in (0, 1)
)

SAMPLE = "".join(
    f'Device {i}: "NVIDIA L40S"\n  CUDA Driver Version / Runtime Version          12.2 / 11.8\n'
    "  CUDA Capability Major/Minor version number:    8.9\n"
    for i in (0, 1)
)
DUMP = "Found 2 NVIDIA devices\n" + "".join(
    f"\tDevice ID:              {i}\n\tDevice name:            NVIDIA L40S\n" for i in (0, 1)
)


@pytest.mark.parametrize(
    "text", [SAMPLE, DUMP, "GPU 0: NVIDIA L40S (46068 MiB)\nGPU 1: NVIDIA L40S"]
)
def test_samples_and_people_name_the_cards(text: str) -> None:
    machine = read(text)
    assert [(gpu.index, gpu.name) for gpu in machine.gpus] == [(0, NAME), (1, NAME)]
    assert {gpu.compute_capability for gpu in machine.gpus} == {"8.9"}
    assert machine.gpus[0].memory_mib in (None, 46068)


@pytest.mark.parametrize(
    ("text", "read_capability"),
    [
        pytest.param(DCGM, False, id="dcgmi discovery"),
        pytest.param(PROC, False, id="/proc"),
        pytest.param(OLLAMA, True, id="ollama"),
        pytest.param(OLLAMA + OLLAMA, True, id="ollama started twice"),
    ],
)
def test_other_listings_name_the_cards(text: str, read_capability: bool) -> None:
    machine = read(text)
    assert [(gpu.index, gpu.name) for gpu in machine.gpus] == [(0, NAME), (1, NAME)]
    assert {gpu.compute_capability for gpu in machine.gpus} == {"8.9"}
    assert {gpu.compute_capability_by_name for gpu in machine.gpus} == {not read_capability}
    assert len({gpu.uuid for gpu in machine.gpus}) == 2


NVITOP = """NVITOP 1.6.2      Driver Version: 580.126.09      CUDA Driver Version: 13.0
╒═══════════════════════════════╤══════════════════════╤══════════════════════╕
│ GPU  Name        Persistence-M│ Bus-Id        Disp.A │ MIG M.   Uncorr. ECC │
╞═══════════════════════════════╪══════════════════════╪══════════════════════╡
│   0  ..la V100-SXM2-16GB  Off │ 00000000:21:00.0 Off │ Disabled           0 │ MEM: ▏ 0B     0.0% │
│ 27%   42C   P8     17W / 250W │      0B  / 16.00GiB  │      0%      Default │ UTL: ▏ 0%          │
╘═══════════════════════════════╧══════════════════════╧══════════════════════╛
"""


def test_nvitop_cuts_a_name_at_its_beginning() -> None:
    machine = read(NVITOP)
    assert cards(machine) == [(0, "..la V100-SXM2-16GB", 16384)]
    assert machine.gpus[0].name_truncated
    assert (machine.gpus[0].compute_capability, machine.cuda) == ("7.0", "13.0")


def test_the_oldest_layout_is_read() -> None:
    machine = read(OLD)
    assert cards(machine) == [(0, "Tesla C2075", 5375)]
    assert (machine.driver, machine.usable) == ("290.10", False)


def remote(address: str, links: int) -> str:
    return "".join(
        f"\t Link {k}: Remote Device 00000000:{address}:00.0: Link {k}\n" for k in range(links)
    )


PLACES = "index, pci.bus_id\n0, 00000000:99:00.0\n1, 00000000:D5:00.0\n"


def test_links_are_paired_by_the_address_at_their_other_end() -> None:
    ends = f"{HEADS[0]}\n{remote('D5', 4)}{HEADS[1]}\n{remote('99', 4)}"
    for machine in (read(PLACES, ends), read(ends)):
        assert [(p.a, p.b, p.nvlinks) for p in machine.links.pairs] == [(0, 1, 4)]
    switched = f"{HEADS[0]}\n{remote('CD', 12)}{HEADS[1]}\n{remote('CD', 12)}"
    for machine in (read(PLACES, switched), read(switched)):
        assert machine.links.nvlink == "unknown"


def test_a_link_that_carries_nothing_is_down() -> None:
    down = "\n".join(f"{head}\n\t Link 0: 0 GB/s\n\t Link 1: <inactive>" for head in HEADS)
    assert read(down).links.nvlink == "none"


SLICES = """| MIG devices:                                                                |
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|==================+==================================+===========+=======================|
|  0    3   0   0  |              12MiB /  5952MiB    | 14      0 |  1   0    1    0    0 |
|                  |               0MiB /  8191MiB    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
"""
INSTANCES = """| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.6gb          14        3          2:1     |
"""
COMPUTE = """| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|====================================================================|
|   0      3       MIG 1c.1g.6gb        0         0          0:1     |
"""
OFFERS = INSTANCES.replace("instances:", "instance profiles:").replace("1g.6gb ", "2g.12gb")


def test_instances_name_the_profile_of_a_slice_and_offers_do_not() -> None:
    box = table([row(0, "NVIDIA A30", mig="Enabled")])
    profiles = [
        [device.profile for device in read(text).mig_devices]
        for text in (
            f"{box}\n{SLICES}",
            f"{box}\n{SLICES}{INSTANCES}",
            f"{box}\n{SLICES}{INSTANCES}{COMPUTE}",
            f"{box}\n{SLICES}{OFFERS}",
        )
    ]
    assert profiles == [[None], ["1g.6gb"], ["1c.1g.6gb"], [None]]


def test_a_report_lists_slices_under_its_gpu() -> None:
    machine = read(
        "GPU models and configuration :\nGPU 0: NVIDIA GH200 144G HBM3e\n"
        "MIG 1g.18gb     Device  0:\n\nNvidia driver version        : 575.57.08"
    )
    assert [(d.gpu, d.profile) for d in machine.mig_devices] == [(0, "1g.18gb")]
    assert (machine.gpus[0].mig, machine.links.nvlink) == (True, "unknown")


SHELLS = [
    ("-bash: nvidia-smi: Kommando nicht gefunden.", "linux-x86_64"),
    ("Command 'nvidia-smi' not found, but can be installed with:", "linux-x86_64"),
    ("fish: Unknown command: nvidia-smi", "linux-x86_64"),
    ("nvidia-smi : The term 'nvidia-smi' is not recognized as the name of a cmdlet,", "windows"),
    ('Die Benennung "nvidia-smi" wurde nicht als Name eines Cmdlet, einer Funktion', "windows"),
    ("无法将“nvidia-smi”项识别为 cmdlet、函数、脚本文件或可运行程序的名称。", "windows"),
    ("'nvidia-smi' 不是内部或外部命令，也不是可运行的程序", "windows"),
]


@pytest.mark.parametrize(("text", "platform"), SHELLS)
def test_a_shell_that_does_not_find_the_tool_says_no_in_its_language(
    text: str, platform: str
) -> None:
    machine = read(text)
    assert (machine.usable, machine.count, machine.platform) == (False, None, platform)


def test_the_tools_own_version_shows_the_driver_of_the_windows_beside_it() -> None:
    version = "NVIDIA-SMI version  : 580.82.07\nDRIVER version      : 581.42\nCUDA Version : 13.0"
    machine = read(f"{HEADS[0]}\n{version}")
    assert (machine.platform, machine.driver, machine.smi_version) == (
        "wsl2",
        "581.42",
        "580.82.07",
    )


def test_a_monitor_without_a_name_or_size_is_refused_not_guessed() -> None:
    text = "# gpu    pwr  gtemp     sm\n# Idx      W      C      %\n    0     27     34      -\n"
    assert read_text(text, "text").is_empty()
    with pytest.raises(UserError):
        read_text("<!DOCTYPE a [<!ENTITY b 'c'>]>\n<nvidia_smi_log></nvidia_smi_log>", "text")
