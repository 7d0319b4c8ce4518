"""doctor: each finding with severity, the line read and a remedy; the bundle holds no secret."""

from __future__ import annotations

import gzip
import io
import json
import socket
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_computer import FakeComputer
from hardware_inventories import FOLDER, SLUGS
from smi_texts import matrix, row, table

from qwendeploy.errors import EnvironmentProblem, NoPlan, UserError
from qwendeploy.hardware.checks.bundle import bundle_bytes
from qwendeploy.hardware.checks.doctor import (
    describe_report,
    doctor_files,
    doctor_here,
    refuse_errors,
)
from qwendeploy.hardware.checks.findings import DockerState, DoctorReport, Needs
from qwendeploy.hardware.checks.host import docker_state
from qwendeploy.hardware.checks.redact import Identity, redact
from qwendeploy.hardware.reading import Reading
from qwendeploy.tables.gpus import gpus

PAIR = table([row(0, "NVIDIA RTX A6000", total=49140), row(1, "NVIDIA RTX A6000", total=49140)])
GOOD_DOCKER = DockerState(True, version="28.2", runtimes=("nvidia", "runc"), root_dir="/tmp")
NEEDS = Needs(image="vllm/vllm-openai:v0.20.1", image_cuda="13.0", image_min_driver=580)


def no_nvml() -> Reading | None:
    return None


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def examined(
    box: FakeComputer, needs: Needs = NEEDS, docker: DockerState = GOOD_DOCKER
) -> DoctorReport:
    needs = replace(needs, port=free_port()) if needs.port == 8000 else needs
    return doctor_here(needs, catalogue=gpus(), probe=box, nvml=no_nvml, docker=lambda: docker)


def ids(report: DoctorReport) -> dict[str, str]:
    return {item.id: item.severity for item in report.findings}


def test_healthy_box_has_no_error() -> None:
    report = examined(
        FakeComputer(
            {
                "nvidia-smi": PAIR,
                "nvidia-smi topo -m": matrix({0: (" X ", "NV4"), 1: ("NV4", " X ")}),
            }
        )
    )
    assert report.errors == 0
    assert ids(report)["driver"] == "ok"
    assert ids(report)["nvidia-runtime"] == "ok"
    refuse_errors(report, live=True)


@pytest.mark.parametrize(
    ("program", "engine", "severity", "words"),
    [
        ("vllm", "vllm", "warning", "generate PLAN -f vllm"),
        ("podman", "llama.cpp", "warning", "generate PLAN -f quadlet"),
        ("llama-server", "llama.cpp", "warning", "generate PLAN -f llama-server"),
        ("vllm", None, "warning", "generate PLAN -f vllm"),
        ("llama-server", "vllm", "error", "install vLLM"),
        ("bash", None, "error", "install vLLM"),
    ],
)
def test_without_docker_it_matters_what_else_runs_a_plan(
    program: str, engine: str | None, severity: str, words: str
) -> None:
    box = FakeComputer({"nvidia-smi": PAIR}, {f"/opt/bin/{program}": ""}, {"PATH": "/opt/bin"})
    report = examined(box, replace(NEEDS, engine=engine), DockerState(False, "no such file"))
    finding = next(item for item in report.findings if item.id == "docker-unreachable")
    assert (finding.severity, words in finding.fix) == (severity, True)
    if severity == "warning":
        refuse_errors(report, live=True)
    else:
        with pytest.raises(EnvironmentProblem):
            refuse_errors(report, live=True)


PCIE = {"nvidia-smi": PAIR, "nvidia-smi topo -m": matrix({0: (" X ", "SYS"), 1: ("SYS", " X ")})}
CASES: list[Any] = [
    pytest.param(
        {"nvidia-smi": PAIR.replace("580.65.06", "550.54.14")},
        {},
        {},
        "driver-too-old",
        "error",
        id="driver",
    ),
    pytest.param(
        {"nvidia-smi": PAIR},
        {},
        {"docker": DockerState(False, "no such file")},
        "docker-unreachable",
        "error",
        id="docker",
    ),
    pytest.param(
        {"nvidia-smi": PAIR},
        {},
        {"docker": DockerState(True, version="28", runtimes=("runc",))},
        "nvidia-runtime-absent",
        "error",
        id="runtime",
    ),
    pytest.param(
        {"nvidia-smi": PAIR},
        {"/etc/cdi/nvidia.yaml": ""},
        {"docker": DockerState(True, version="28", runtimes=("runc",))},
        "nvidia-runtime",
        "ok",
        id="cdi",
    ),
    pytest.param(
        {"nvidia-smi": table([row(0, "NVIDIA L40S", total=46068, used=30000)])},
        {},
        {},
        "gpu-memory-held",
        "warning",
        id="held",
    ),
    pytest.param(
        PCIE,
        {"/sys/class/iommu/dmar0": "", "/proc/cmdline": "quiet intel_iommu=on"},
        {},
        "iommu-on",
        "warning",
        id="iommu",
    ),
    pytest.param(PCIE, {}, {}, "across-sockets", "warning", id="sockets"),
    pytest.param(
        {"nvidia-smi": PAIR},
        {"/proc/version": "microsoft-standard-WSL2"},
        {},
        "wsl2",
        "warning",
        id="wsl2",
    ),
    pytest.param(
        {"nvidia-smi": PAIR},
        {},
        {"needs": replace(NEEDS, download_gib=1e9)},
        "disk-short",
        "error",
        id="disk",
    ),
    pytest.param(
        {"nvidia-smi": PAIR},
        {},
        {"needs": replace(NEEDS, gated=("z-lab/Qwen3.6-27B-DFlash",))},
        "token-absent",
        "error",
        id="token",
    ),
    pytest.param({"nvidia-smi": PAIR}, {}, {}, "persistence-off", "info", id="persistence"),
    pytest.param(
        {"nvidia-smi": table([row(0, "NVIDIA H100 80GB HBM3", mig="Enabled")])},
        {},
        {},
        "mig-mode",
        "warning",
        id="mig",
    ),
    pytest.param(
        {"nvidia-smi": table([row(0, "GRID T4-16Q")])}, {}, {}, "virtual-gpu", "warning", id="vgpu"
    ),
    pytest.param(
        {
            "nvidia-smi": table(
                [row(0, "NVIDIA GeForce RTX 3090"), row(1, "NVIDIA RTX A5000", total=24564)]
            )
        },
        {},
        {},
        "unlike-cards",
        "warning",
        id="unlike",
    ),
    pytest.param(
        {"nvidia-smi": table([row(0, "NVIDIA L4", ecc="ERR!"), row(1, "NVIDIA L4")])},
        {},
        {},
        "gpu-faulty",
        "warning",
        id="faulty",
    ),
    pytest.param(
        {"nvidia-smi": "No devices were found"}, {}, {}, "gpu-unusable", "error", id="no devices"
    ),
    pytest.param({}, {}, {}, "gpu-absent", "error", id="no gpu"),
    pytest.param({}, {"/dev/nvidia0": ""}, {}, "gpu-absent", "error", id="no driver"),
    pytest.param(
        {"nvidia-smi": table([row(0, "Tesla P40"), row(1, "NVIDIA L4")])},
        {},
        {"needs": replace(NEEDS, gpu_indices=(0,))},
        "gpu-too-old",
        "error",
        id="named card too old",
    ),
    pytest.param(
        {"nvidia-smi": table([row(0, "Tesla P40"), row(1, "NVIDIA L4")])},
        {},
        {},
        "gpu-too-old",
        "info",
        id="other card too old",
    ),
    pytest.param(
        {"nvidia-smi": PAIR},
        {},
        {"needs": replace(NEEDS, gpu_indices=(1, 9))},
        "gpu-not-there",
        "error",
        id="named card not there",
    ),
    pytest.param(
        {"nvidia-smi": PAIR},
        {},
        {"needs": replace(NEEDS, image_capabilities=("9.0", "12.0"))},
        "image-lacks-architecture",
        "error",
        id="architecture",
    ),
]


@pytest.mark.parametrize(("outputs", "files", "settings", "finding", "severity"), CASES)
def test_what_will_bite_is_found(
    outputs: dict[str, Any],
    files: dict[str, str],
    settings: dict[str, Any],
    finding: str,
    severity: str,
) -> None:
    report = examined(FakeComputer(outputs, files), **settings)
    found = next(item for item in report.findings if item.id == finding)
    assert found.severity == severity
    assert found.text and found.evidence
    assert found.fix or severity == "ok"


def saved(tmp_path: Path, text: str) -> DoctorReport:
    path = tmp_path / "saved.txt"
    path.write_text(text, encoding="utf-8")
    return doctor_files([path], NEEDS, catalogue=gpus())


def test_cards_that_cannot_be_told_are_said_and_their_links_examined(tmp_path: Path) -> None:
    peers = "        GPU0    GPU1\n GPU0   X       GNS\n GPU1   GNS     X\n"
    report = saved(tmp_path, matrix({0: (" X ", "SYS"), 1: ("SYS", " X ")}) + "\n" + peers)
    assert ids(report) == {
        "gpu-unknown": "warning",
        "driver-unknown": "info",
        "no-peer-access": "warning",
        "across-sockets": "warning",
    }


def test_a_cut_name_is_the_evidence_for_an_unknown_card(tmp_path: Path) -> None:
    report = saved(tmp_path, table([row(0, "NVIDIA GeForce ...")]))
    (finding,) = (item for item in report.findings if item.id == "gpu-unknown")
    assert finding.evidence == "NVIDIA GeForce ..."
    assert "nvidia-smi -L" in finding.fix


def test_lowered_power_cap_and_slowdown_are_read_from_the_log() -> None:
    log = (FOLDER / "xml-rtx3090-vm-525" / "nvidia-smi.xml").read_text(encoding="utf-8")
    found = ids(examined(FakeComputer({"nvidia-smi -q -x": log})))
    assert found["power-cap-lowered"] == "warning"


def test_port_that_is_taken_is_named() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        report = examined(FakeComputer({"nvidia-smi": PAIR}), replace(NEEDS, port=port))
    found = next(item for item in report.findings if item.id == "port-in-use")
    assert str(port) in found.evidence


def test_token_is_found_and_never_printed() -> None:
    box = FakeComputer({"nvidia-smi": PAIR}, variables={"HF_TOKEN": "hf_abcdefghijklmnop"})
    report = examined(box, replace(NEEDS, gated=("z-lab/Qwen3.6-27B-DFlash",)))
    assert ids(report)["token"] == "ok"
    assert "hf_" not in report.model_dump_json()


def test_iommu_in_pass_through_is_no_finding() -> None:
    box = FakeComputer(PCIE, {"/sys/class/iommu/dmar0": "", "/proc/cmdline": "iommu=pt"})
    assert "iommu-on" not in ids(examined(box))


def test_daemon_that_is_not_there_is_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    state = docker_state()
    assert not state.reachable and state.problem


@pytest.mark.parametrize("slug", SLUGS)
def test_every_posted_box_can_be_examined(slug: str) -> None:
    report = doctor_files([FOLDER / slug], NEEDS, catalogue=gpus())
    assert describe_report(report)
    order = [item.severity for item in report.findings]
    assert order == sorted(order, key=["error", "warning", "info", "ok"].index)
    if report.machine is not None and report.machine.usable is False:
        assert report.errors


def test_errors_leave_with_the_code_of_where_they_were_read() -> None:
    report = doctor_files([FOLDER / "fail-no-devices"], NEEDS, catalogue=gpus())
    with pytest.raises(EnvironmentProblem):
        refuse_errors(report, live=True)
    with pytest.raises(NoPlan):
        refuse_errors(report, live=False)


SECRETS = {
    "host": "gpubox-emil7",
    "user": "kowalskaanna",
    "ipv4": "10.23.45.67",
    "public ipv4": "203.0.113.9",
    "ipv6": "2001:db8:85a3::8a2e:370:7334",
    "link local": "fe80::1ff:fe23:4567:890a",
    "mac": "52:54:00:ab:cd:ef",
    "uuid": "9f1d2c3b-4a5e-6f70-8192-a3b4c5d6e7f8",
    "serial": "1650123498765",
    "hf": "hf_QwErTyUiOpAsDfGhJkLz",
    "sk": "sk-proj-AbCdEf123456",
    "bearer": "aGVsbG8td29ybGQtdG9rZW4",
    "github": "ghp_0123456789abcdefABCDEF",
    "password": "correct-horse-battery",
    "mail": "anna@example.org",
}
LEAK = "\n".join(
    (
        "Linux {host} 6.8.0 x86_64, user {user} at {ipv4} and {public ipv4}",
        "inet6 {ipv6}, {link local}%eth0",
        "GPU 0: NVIDIA RTX A6000 (UUID: GPU-{uuid})",
        "  Serial Number                     : {serial}",
        "<serial>{serial}</serial><uuid>GPU-{uuid}</uuid>",
        '{{"serial": "{serial}", "api_key": "{password}", "HF_TOKEN": "{hf}"}}',
        "link/ether {mac} brd ff:ff:ff:ff:ff:ff inet6 {link local}/64 inet {ipv4}/24",
        "docker run -e HF_TOKEN={hf} -e OPENAI_API_KEY={sk} --api-key {password} image",
        "Authorization: Bearer {bearer}",
        "git clone https://{user}:{github}@example.org/x.git # {mail}",
        "/home/{user}/models C:\\Users\\{user}\\x {host}.example.org ssh {user}@{ipv4}",
    )
).format(**SECRETS)


def test_bundle_holds_no_planted_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET_THING", "tr0ub4dor-and-3")
    monkeypatch.setattr(socket, "gethostname", lambda: SECRETS["host"])
    log = PAIR + "\n" + LEAK + "\nrun with tr0ub4dor-and-3\n"
    box = FakeComputer(
        {
            "nvidia-smi": log,
            "nvidia-smi -q": log,
            "nvidia-smi -L": f"GPU 0: NVIDIA RTX A6000 (UUID: GPU-{SECRETS['uuid']})",
            "docker version": LEAK,
            "uname -srmo": LEAK,
        },
        {"/etc/docker/daemon.json": LEAK, "/proc/cmdline": LEAK, "/etc/hostname": SECRETS["host"]},
        {"USER": SECRETS["user"], "HOME": f"/home/{SECRETS['user']}"},
    )
    report = examined(box, replace(NEEDS, gated=("z-lab/x",)))
    packed = bundle_bytes(report, box)
    plain = gzip.decompress(packed)
    for data in (packed, plain):
        for name, secret in {**SECRETS, "variable": "tr0ub4dor-and-3"}.items():
            assert secret.encode() not in data, name
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        members = archive.getmembers()
        assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 0)}
        texts = {}
        for member in members:
            stream = archive.extractfile(member)
            assert stream is not None
            texts[member.name.rsplit("/", 1)[-1]] = stream.read().decode()
    assert "NVIDIA RTX A6000" in texts["nvidia-smi.txt"]
    assert "580.65.06" in texts["nvidia-smi.txt"]
    assert json.loads(texts["machine.json"])["count"] == 2
    assert bundle_bytes(report, box) == packed


KEPT = [
    "| NVIDIA-SMI 580.65.06   Driver Version: 580.65.06   CUDA Version: 13.0 |",
    "00000000:0A:00.0 Off",
    "VLLM::EngineCore 22934MiB at 12:34:56",
    "listening on 127.0.0.1:8000 and 0.0.0.0",
    "max_num_batched_tokens: 8192, num_speculative_tokens=3",
    "VBIOS 95.02.66.00.02",
    "vllm 0.20.1, nvidia-container-toolkit 1.17.8",
]


@pytest.mark.parametrize("text", KEPT)
def test_what_a_report_needs_is_kept(text: str) -> None:
    assert redact(text, Identity(hosts=("box",), users=("anna",))) == text


def test_names_are_replaced_as_words_only() -> None:
    text = redact("box boxes anna@box BOX-1 annabel", Identity(hosts=("box",), users=("anna",)))
    assert "boxes" in text and "annabel" in text
    assert "anna@" not in text and " box " not in f" {text} "


def test_verb_writes_a_bundle_once(tmp_path: Path) -> None:
    from qwendeploy.cli.doctor import command

    target = tmp_path / "report.tar.gz"
    arguments = ["--from", str(FOLDER / "l40s-4x-phb-sys"), "--bundle", str(target)]
    first = CliRunner().invoke(command, arguments)
    assert first.exception is None and target.exists()
    assert "across-sockets" in first.output
    second = CliRunner().invoke(command, arguments)
    assert isinstance(second.exception, UserError)
    assert CliRunner().invoke(command, [*arguments, "--force"]).exception is None
    shown = CliRunner().invoke(command, ["--json", "--from", str(FOLDER / "l40s-4x-phb-sys")])
    assert json.loads(shown.output)["machine"]["count"] == 4
