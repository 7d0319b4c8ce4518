"""Live detection: a GPU box is read, a broken one refused with its line, a bare one is no box."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_computer import FakeComputer
from hardware_inventories import FOLDER
from smi_texts import matrix, row, table

from qwendeploy.errors import EnvironmentProblem, ExitCode, NoPlan
from qwendeploy.hardware import assumed_machine, detect, find_machine, refuse_unusable
from qwendeploy.hardware.live.machine import in_container
from qwendeploy.hardware.live.nvml import read_nvml
from qwendeploy.hardware.live.probe import Ran
from qwendeploy.hardware.reading import Reading
from qwendeploy.tables.gpus import gpus

XML = (FOLDER / "h200-x2-nv18" / "nvidia-smi.xml").read_text(encoding="utf-8")
TOPO = (FOLDER / "h200-x2-nv18" / "topo.txt").read_text(encoding="utf-8")
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.1"


def no_nvml() -> Reading | None:
    return None


def test_box_without_nvml_is_read_through_the_tool() -> None:
    box = FakeComputer(
        {"nvidia-smi -q -x": XML, "nvidia-smi topo -m": TOPO},
        {"/proc/meminfo": "MemTotal:       263000000 kB\n"},
    )
    found = detect(gpus(), box, no_nvml)
    assert [(gpu.index, gpu.model, gpu.memory_mib) for gpu in found.gpus] == [
        (0, "H200", 143771),
        (1, "H200", 143771),
    ]
    assert (found.interconnect, found.links.nvlink) == ("nvlink", "pairs")
    assert (found.host_memory_mib, found.platform) == (256835, "linux-x86_64")
    assert (found.origin, found.usable) == ("detected", True)


BROKEN = [
    pytest.param({"nvidia-smi": MISMATCH, "nvidia-smi -q -x": MISMATCH}, "mismatch", id="mismatch"),
    pytest.param({"nvidia-smi": "No devices were found"}, "No devices", id="no devices"),
    pytest.param({"nvidia-smi": Ran(9, "Segmentation fault")}, "exit 9", id="crash"),
    pytest.param({"nvidia-smi": Ran(-1, "", timed_out=True)}, "timed out", id="hangs"),
]


@pytest.mark.parametrize(("outputs", "line"), BROKEN)
def test_tool_that_fails_is_an_environment_problem_with_its_line(
    outputs: dict[str, Any], line: str
) -> None:
    with pytest.raises(EnvironmentProblem, match=line) as problem:
        find_machine(gpus(), FakeComputer(outputs), no_nvml)
    assert problem.value.exit_code == ExitCode.ENVIRONMENT
    assert problem.value.hint


SIGNS = [
    {"/dev/nvidia0": ""},
    {"/proc/driver/nvidia/version": "NVRM version"},
    {
        "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
        "/sys/bus/pci/devices/0000:01:00.0/class": "0x030000\n",
    },
]


@pytest.mark.parametrize("files", SIGNS)
def test_card_without_a_driver_is_refused_and_never_replaced_by_another(
    files: dict[str, str],
) -> None:
    with pytest.raises(EnvironmentProblem, match="NVIDIA device"):
        find_machine(gpus(), FakeComputer({}, files), no_nvml)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"/sys/bus/pci/devices/0000:01:00.0/vendor": "0x1002\n"},
        {
            "/sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n",
            "/sys/bus/pci/devices/0000:01:00.1/class": "0x040300\n",
        },
    ],
)
def test_only_a_computer_without_any_sign_lets_another_machine_be_assumed(
    files: dict[str, str],
) -> None:
    assert find_machine(gpus(), FakeComputer({}, files), no_nvml) is None
    with pytest.raises(EnvironmentProblem, match="no NVIDIA GPU"):
        detect(gpus(), FakeComputer({}, files), no_nvml)


def test_assumed_machine_says_so() -> None:
    found = assumed_machine(gpus())
    assert (found.origin, found.count) == ("assumed", 2)
    assert found.gpus[0].model == "RTX PRO 6000 Blackwell Workstation"
    assert "assumed" in found.notes[0]


def test_unusable_box_is_refused_with_the_cause_by_where_it_was_read() -> None:
    text = table([row(0, "Tesla P40", total=24576)], driver="550.54.14", cuda="12.4")
    found = detect(gpus(), FakeComputer({"nvidia-smi": text}), no_nvml)
    with pytest.raises(EnvironmentProblem, match=r"compute capability 6\.1"):
        refuse_unusable(found, live=True)
    with pytest.raises(NoPlan, match=r"compute capability 6\.1"):
        refuse_unusable(found, live=False)


def test_container_and_wsl_are_told_apart() -> None:
    text = {"nvidia-smi": table([row(0, "NVIDIA GeForce RTX 4090", total=24564)])}
    wsl = FakeComputer(text, {"/proc/version": "Linux 5.15 Microsoft-standard-WSL2"})
    assert detect(gpus(), wsl, no_nvml).os == "wsl2"
    docker = FakeComputer(text, {"/.dockerenv": ""})
    assert in_container(docker)
    assert detect(gpus(), docker, no_nvml).os == "container"
    arm = FakeComputer(text, architecture="aarch64")
    assert detect(gpus(), arm, no_nvml).platform == "linux-aarch64"


class FakeNvml:
    """The part of pynvml that is used, for two bridged RTX 3090 of which a third is lost."""

    NVML_ERROR_LIBRARY_NOT_FOUND = 12

    class NVMLError(Exception):
        def __init__(self, value: int, text: str = "NVML error") -> None:
            super().__init__(text)
            self.value = value

    def __init__(self, start: int | None = None, text: str = "") -> None:
        self.start, self.text = start, text

    def nvmlInit(self) -> None:
        if self.start is not None:
            raise self.NVMLError(self.start, self.text)

    def nvmlShutdown(self) -> None: ...

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65.06"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13000

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 2:
            raise self.NVMLError(15, "GPU is lost")
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: ARG002
        return "NVIDIA GeForce RTX 3090"

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=f"00000000:0{handle + 1}:00.0")

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: ARG002
        return SimpleNamespace(total=24576 << 20, used=500 << 20, free=24076 << 20)

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:  # noqa: ARG002
        return (8, 6)

    def nvmlDeviceGetMigMode(self, handle: int) -> Any:  # noqa: ARG002
        raise self.NVMLError(3, "Not Supported")

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:  # noqa: ARG002
        return 280000

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: ARG002
        return int(link < 4)

    def nvmlDeviceGetNvLinkRemotePciInfo_v2(self, handle: int, link: int) -> Any:  # noqa: ARG002
        return SimpleNamespace(busId=f"00000000:0{2 - handle}:00.0")

    def nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:  # noqa: ARG002
        return 30

    def nvmlDeviceGetP2PStatus(self, a: int, b: int, kind: int) -> int:  # noqa: ARG002
        return 0


def test_nvml_gives_the_same_facts_as_the_tool() -> None:
    found = detect(gpus(), FakeComputer(), lambda: read_nvml(FakeNvml()))
    assert [(g.index, g.health, g.compute_capability) for g in found.gpus] == [
        (0, "ok", "8.6"),
        (1, "ok", "8.6"),
        (2, "lost", None),
    ]
    assert (found.driver, found.cuda) == ("580.65.06", "13.0")
    assert found.gpus[0].power_cap_w == 280
    assert [(p.a, p.b, p.nvlinks, p.p2p) for p in found.links.pairs] == [(0, 1, 4, "yes")]
    assert found.usable_gpu_indices == (0, 1)
    assert found.interconnect == "nvlink"


def test_nvml_that_is_absent_is_no_reading_and_one_that_fails_is_a_failure() -> None:
    assert read_nvml(FakeNvml(start=12)) is None
    reading = read_nvml(FakeNvml(start=18, text="Driver/library version mismatch"))
    assert reading is not None
    with pytest.raises(EnvironmentProblem, match="version mismatch"):
        find_machine(gpus(), FakeComputer(), lambda: reading)


def stub(folder: Path, answers: dict[str, str]) -> Path:
    """Write an nvidia-smi that answers by its arguments."""
    program = folder / "nvidia-smi"
    cases = "\n".join(
        f"  {arguments!r}) cat {folder / f'{number}.txt'};;"
        for number, arguments in enumerate(answers)
    )
    for number, text in enumerate(answers.values()):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    program.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}\n  *) exit 2;;\nesac\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def run(*arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{path}:/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-m", "qwendeploy", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )


def test_the_verb_reads_a_box_and_writes_a_file_that_gives_the_same_machine(tmp_path: Path) -> None:
    rows = [row(i, "NVIDIA GeForce RTX 3090") for i in range(2)]
    stub(tmp_path, {"": table(rows), "topo -m": matrix({0: (" X ", "NV4"), 1: ("NV4", " X ")})})
    target = tmp_path / "machine.yaml"
    live = run("detect", "--json", "-o", str(target), path=tmp_path)
    assert (live.returncode, live.stderr) == (0, "")
    again = run("detect", "-o", str(target), path=tmp_path)
    assert again.returncode == ExitCode.USAGE and "--force" in again.stderr
    from qwendeploy.documents import Machine
    from qwendeploy.hardware import load_machine

    assert load_machine(target, catalogue=gpus()) == Machine.model_validate_json(live.stdout)


@pytest.mark.parametrize("text", [MISMATCH, "No devices were found"])
def test_the_verb_leaves_with_four_on_a_broken_box(text: str, tmp_path: Path) -> None:
    stub(tmp_path, {"": text, "-q -x": text})
    done = run("detect", path=tmp_path)
    assert done.returncode == ExitCode.ENVIRONMENT
    assert text.split("\n")[0] in done.stderr
    assert "Traceback" not in done.stderr


def test_the_verb_shows_an_unusable_box_and_leaves_with_four(tmp_path: Path) -> None:
    stub(tmp_path, {"": table([row(0, "Tesla K80", total=11441)], driver="470.82.01", cuda="11.4")})
    done = run("detect", "--json", path=tmp_path)
    assert done.returncode == ExitCode.ENVIRONMENT
    assert '"usable": false' in done.stdout
    assert "3.7" in done.stderr


def test_plan_from_the_file_equals_the_plan_on_the_box(tmp_path: Path) -> None:
    rows = [row(i, "NVIDIA RTX PRO 6000 Blac...", total=97887) for i in range(2)]
    stub(tmp_path, {"": table(rows), "topo -m": matrix({0: (" X ", "PHB"), 1: ("PHB", " X ")})})
    saved = tmp_path / "machine.yaml"
    asked = ("--ctx", "32k", "--c", "8", "--json")
    assert run("detect", "-o", str(saved), path=tmp_path).returncode == 0
    here = run("recommend", *asked, path=tmp_path)
    there = run("recommend", "--machine", str(saved), *asked, path=tmp_path)
    plans = [json.loads(done.stdout) for done in (here, there)]
    for plan in plans:
        del plan["created"], plan["inputs"]
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (MISMATCH, "version mismatch"),
        (table([row(0, "Tesla P40")], driver="550.54.14", cuda="12.4"), "compute capability 6.1"),
        (table([row(0, "ERR!", ecc="ERR!")]), "faulty"),
        (table([row(0, "NVIDIA L4")], driver="470.82.01", cuda="11.4"), "older than R525"),
    ],
    ids=["driver", "too old", "faulty", "old driver"],
)
def test_box_that_cannot_serve_gets_no_plan_for_another(
    text: str, cause: str, tmp_path: Path
) -> None:
    stub(tmp_path, {"": text, "-q -x": text})
    here = run("recommend", "--ctx", "32k", path=tmp_path)
    assert (here.returncode, here.stdout) == (ExitCode.ENVIRONMENT, "")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "smi.txt").write_text(text, encoding="utf-8")
    there = run("recommend", "--ctx", "32k", "--machine", str(tmp_path / "saved"), path=tmp_path)
    assert (there.returncode, there.stdout) == (ExitCode.REFUTED, "")
    for done in (here, there):
        assert cause in done.stderr and "Traceback" not in done.stderr
