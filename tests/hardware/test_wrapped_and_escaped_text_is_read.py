"""Output that a window, a form, a renderer or a log changed gives the same facts."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest
from smi_texts import matrix, row, table

from qwendeploy.documents import Machine
from qwendeploy.hardware.merge import machine_of
from qwendeploy.hardware.texts.sniff import read_text
from qwendeploy.tables.gpus import gpus

BOX = table(
    [
        row(0, "NVIDIA GeForce RTX 5090", total=32607, sensors=" 0%   41C    P8   22W /  575W"),
        row(1, "NVIDIA GeForce RTX 5090", total=32607, sensors="100%   51C    P1  410W /  575W"),
    ],
    driver="575.57.08",
    cuda="12.9",
)


def read(text: str) -> Machine:
    return machine_of([read_text(text, "text")], gpus())


def broken(text: str, width: int) -> str:
    return "\n".join(
        line[start : start + width]
        for line in text.split("\n")
        for start in range(0, max(len(line), 1), width)
    )


def coloured(text: str, escape: str) -> str:
    lines = text.replace("MiB", f"MiB{escape}[0m{escape}[K")
    return lines.replace("NVIDIA GeForce", f"{escape}[38;5;82mNVIDIA{escape}[m GeForce")


CHANGES: dict[str, Callable[[str], str]] = {
    **{f"broken at {width}": partial(broken, width=width) for width in (50, 60, 72, 80)},
    **{f"colours {e!r}": partial(coloured, escape=e) for e in ("\x1b", "", "^[", "\\x1b")},
    "table cells of a form": lambda text: text.replace("|", "\\|"),
    "no-break spaces in HTML": lambda text: (
        "<p>" + text.replace(" ", "&nbsp;").replace("\n", "<br />\n") + "</p>"
    ),
    "unseen marks": lambda text: text.replace("|", "|\u200e").replace("MiB", "M\u00adi\u200dB"),
    "a notebook": lambda text: json.dumps(
        {"cells": [{"outputs": [{"text": [f"{line}\n" for line in text.split("\n")]}]}]}
    ),
    "preformatted HTML": lambda text: f"<pre><code>{text}</code></pre>",
    "JSON of a runner": lambda text: json.dumps({"rc": 0, "cmd": ["nvidia-smi"], "out": [text]}),
    "coloured JSON": lambda text: json.dumps({"out": coloured(text, "\x1b")}),
    "line ends in a log line": lambda text: "level=info msg=" + json.dumps(text),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_table_is_the_same_machine(change: Callable[[str], str]) -> None:
    assert read(change(BOX)) == read(BOX)
    assert [gpu.memory_mib for gpu in read(BOX).gpus] == [32607, 32607]


WIDE = matrix({i: [" X " if j == i else "NV12" for j in range(8)] for i in range(8)}, nics=10)


@pytest.mark.parametrize("width", [61, 80, 100, 132])
def test_matrix_broken_by_a_narrow_window_keeps_its_pairs(width: int) -> None:
    found = read(broken(WIDE.expandtabs(8), width)).links
    assert {(p.a, p.b): p.nvlinks for p in found.pairs} == {
        (a, b): 12 for a in range(8) for b in range(a + 1, 8)
    }


def test_rules_of_other_tables_join_nothing() -> None:
    text = "+" + "-" * 40 + "+\n" + "| a note |\n" * 3 + BOX
    assert read(text) == read(BOX)


FANS = [
    ("ERR!   38C    P5             49W /  450W", "ok"),
    ("ERR!   38C    P0             N/A /  450W", "error"),
    ("ERR!  ERR!  ERR!            ERR! /  450W", "error"),
]


@pytest.mark.parametrize(("sensors", "health"), FANS)
def test_a_fan_that_reads_err_alone_is_no_lost_gpu(sensors: str, health: str) -> None:
    found = read(table([row(0, "NVIDIA GeForce RTX 4090", total=24564, sensors=sensors)]))
    assert found.gpus[0].health == health
    assert found.usable is (health == "ok")
    assert any("fan" in note for note in found.notes) is (health == "ok")


UUID = "(UUID: GPU-0000000{}-0000-0000-0000-000000000000)"


def test_listing_run_together_is_every_card() -> None:
    text = " ".join(f"GPU {i}: NVIDIA GeForce RTX 2080 Ti {UUID.format(i)}" for i in range(4))
    assert [gpu.index for gpu in read(text).gpus] == [0, 1, 2, 3]


def test_report_names_a_card_on_the_line_of_its_heading() -> None:
    found = read("GPU models and configuration: GPU 0: NVIDIA GeForce RTX 4070 Laptop GPU\n")
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA GeForce RTX 4070 Laptop GPU"]


def test_board_without_a_known_name_counts_where_its_capability_is_given() -> None:
    board = "GPU 0,1: CF-NG-BZZ2-O\n"
    found = read(board + "GPU 0,1 Compute Capability: 10.0\nCUDA Driver Version: 570.133.20\n")
    assert [(g.index, g.name, g.compute_capability) for g in found.gpus] == [
        (0, "CF-NG-BZZ2-O", "10.0"),
        (1, "CF-NG-BZZ2-O", "10.0"),
    ]
    assert not read(board).gpus


def test_active_links_count_however_far_they_are_indented() -> None:
    text = f"GPU 3: Tesla V100-SXM2-32GB {UUID.format(3)}\n" + " " * 9 + "Link 0: 25.781 GB/s\n"
    assert read(text).links.nvlink == "unknown"


def test_slices_of_the_plain_log_are_those_of_the_xml() -> None:
    text = "\n".join(
        (
            "==============NVSMI LOG==============",
            "Driver Version                    : 535.129.03",
            "GPU 00000000:0F:00.0",
            "    Product Name                  : NVIDIA A100-SXM4-80GB",
            "    MIG Mode",
            "        Current                   : Enabled",
            "    MIG Device",
            "        Index                     : 0",
            "        GPU Instance ID           : 1",
            "        Compute Instance ID       : 0",
            "        FB Memory Usage",
            "            Total                 : 40192 MiB",
            "    MIG Device",
            "        Index                     : 1",
            "        GPU Instance ID           : 5",
            "        Compute Instance ID       : 0",
            "        FB Memory Usage",
            "            Total                 : 19968 MiB",
            "    FB Memory Usage",
            "        Total                     : 81920 MiB",
        )
    )
    found = read(text)
    assert [(d.gpu, d.gi, d.ci, d.memory_mib) for d in found.mig_devices] == [
        (0, 1, 0, 40192),
        (0, 5, 0, 19968),
    ]
    assert (found.gpus[0].memory_mib, found.gpus[0].mig) == (81920, True)


def test_gibibytes_of_a_monitor_are_mebibytes() -> None:
    text = BOX.replace("32607MiB", "31.84GiB")
    assert [gpu.memory_mib for gpu in read(text).gpus] == [32604, 32604]
