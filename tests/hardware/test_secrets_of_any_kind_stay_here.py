"""What a bundle must not carry away: tokens, passwords, names and addresses in any dress."""

from __future__ import annotations

import json
import time

import pytest
from fake_computer import FakeComputer

from qwendeploy.hardware.checks.bundle import bundle_parts
from qwendeploy.hardware.checks.findings import DoctorReport
from qwendeploy.hardware.checks.redact import Identity, redact

LETTERS = "aB3dE5gH1jK7mN9pQ2sT4vW6yZ8"
HEX = "0123456789abcdef"
BEGIN = "-----BEGIN OPENSSH PRIVATE" + " KEY-----"
OWNER = Identity(
    hosts=("rack7.corp.example", "rack7"), users=("jdoe",), secrets=("correct horse battery",)
)

SECRETS = [
    ("serve.py --hf hf_" + LETTERS, LETTERS),
    ("AWS_ACCESS_KEY_ID=ASIA" + "0Z" * 8, "0Z0Z0Z"),
    ("aws_secret_access_key = wJalrXU/K7MDENG+bPxRfi", "wJalrXU"),
    ("a.py --key AIza" + LETTERS * 2, LETTERS),
    ("bot 123456789:AA" + LETTERS * 2, LETTERS),
    ("npm_" + LETTERS, LETTERS),
    ("pypi-" + LETTERS, LETTERS),
    ("dckr_pat_" + LETTERS, LETTERS),
    ("dop_v1_" + HEX * 2, HEX),
    ("xapp-1-" + LETTERS, LETTERS),
    ("wandb login " + HEX * 2 + HEX[:8], HEX),
    ("run " + LETTERS, LETTERS),
    ("password=ab,cd;efgh&ij", "efgh"),
    ('"password": "p@ss word with spaces"', "word with"),
    ("--api-key 'my secret phrase'", "phrase"),
    ("VLLM_API_KEY='a b c d'", "b c d"),
    ("--hf-token=abcdefg12345", "abcdefg"),
    ("ExecStart=/usr/bin/x --secret hunter22", "hunter22"),
    ("MYSQL_PWD=hunter22", "hunter22"),
    ("LICENSE_KEY: ABCD-EFGH-IJKL", "EFGH"),
    ("export OPENAI_KEY=abcd1234", "abcd1234"),
    ("https://user:pa@ss@host.example/x", "pa@ss"),
    ("https://oauth2abc123@git.example", "oauth2abc123"),
    ("https://b.example/x?X-Amz-Signature=deadbeefcafe&y=1", "deadbeef"),
    ("https://a.example/c?sv=2022&sig=AbC%2Fdef", "AbC"),
    (f"{BEGIN}\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----", "b3Blbn"),
    (f"{BEGIN}\nb3BlbnNzaC1rZXk", "b3Blbn"),
    ("Authorization: Basic YWxpY2U6cGFzcw==", "YWxpY2U6"),
    ("Cookie: session=abcdef0123", "abcdef0123"),
    ("curl -u alice:hunter22 https://x", "hunter22"),
    ("sshpass -p hunter22 ssh x", "hunter22"),
    ("/Users/Alice Smith/x", "Smith"),
    ("C:\\Users\\Alice Smith\\x.exe", "Smith"),
    ("/data/alice/venv/bin/python3", "alice"),
    ("jdoe@RACK7:~$ nvidia-smi", "RACK7"),
    ("    GPU PDI                         : 0x6c1cabcdef012345", "6c1cab"),
    ("Chassis Serial Number : 1820325191234", "18203251"),
    ("GPU Fabric GUID : 0xbb7ac0ffee", "c0ffee"),
    ("inet6 fe80::1ff:fe23:4567:890a%eth0", "fe23"),
    ("it is correct horse battery staple", "correct horse"),
    ("bob@other-host:~$ nvidia-smi", "other-host"),
    ("[bob@node01 ~]$ nvidia-smi", "node01"),
    ("(base) bob@lab-7:/data/x$ ls", "bob"),
    ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 bob@lab-7", "lab-7"),
    ("ip-10-0-1-23.ec2.internal ready", "10-0-1-23"),
    ("node3.cluster.corp ready", "node3"),
    ("box.tail4517fa.ts.net", "tail4517fa"),
    ("Static hostname: lab-7", "lab-7"),
    ("mac 001a.2b3c.4d5e", "2b3c"),
    ("ether 001a2b3c4d5e", "2b3c"),
    ("Device Serial Number 48-b0-2d-ff-ff-aa-bb-cc", "bb-cc"),
    ("product_serial=ABC1234", "ABC1234"),
    ("Host ID : 0x1a2b3c", "1a2b3c"),
    ("/dev/disk/by-id/nvme-SAMSUNG_S64GNE0R123456", "S64GNE"),
    ("inet6 2001:db8:85a3::8a2e:370:7334/64", "8a2e"),
    ("http://[2001:db8::5]:8000/v1", "2001"),
    ("::ffff:192.168.1.7", "192.168"),
    ("https://hooks.slack.com/services/T00/B00/" + LETTERS, LETTERS),
    ("https://discord.com/api/webhooks/123456789012345678/" + LETTERS + "_x", LETTERS),
    ("--basic-auth alice:hunter22", "hunter22"),
    ("http_proxy=http://svc:Pa%40ss@proxy.example:3128", "Pa%40"),
    ("HTTPS_PROXY=socks5h://alice:topsecret@10.1.2.3:1080", "topsecret"),
    ("SLURM_JOB_USER=alice SLURMD_NODENAME=lab-7 ", "alice"),
    ("SLURMD_NODENAME=lab-7", "lab-7"),
    ("MY_NODE_NAME=lab-7", "lab-7"),
    ("DISPLAY=lab-7:10.0", "lab-7"),
    ("uid=1003(alice) gid=1003(alice)", "alice"),
    ("lab-7:~ alice$ nvidia-smi", "alice"),
    ("lab-7:~/models alice$ nvidia-smi", "lab-7"),
    ("May 12 03:11:01 lab-7 kernel: NVRM: Xid", "lab-7"),
    ("2026-05-12T03:11:01.123+02:00 lab-7 dockerd[934]: x", "lab-7"),
    ("Linux lab-7 6.8.0-45-generic #45-Ubuntu SMP x86_64 GNU/Linux", "lab-7"),
    ("~alice/models", "alice"),
    ("D:\\Projects\\Alice\\models", "Alice"),
    ("\\\\fileserver\\share\\alice", "fileserver"),
    ("/gpfs/work/p12345/alice/run", "p12345"),
    ("CUDA_VISIBLE_DEVICES=MIG-feb88891-0321-5fef-9c87-d4af3b54259e", "feb88891"),
    ("machine huggingface.co login bob password s3cr3t", "s3cr3t"),
    ('{"auths": {"ghcr.io": {"auth": "dXNlcjpwYXNz"}}}', "dXNlcj"),
    ("docker login -u bob -p hunter22 ghcr.io", "hunter22"),
    ("Authorization: Token abcd1234efgh", "abcd1234"),
    ("azure AccountKey=abc+def/ghi==;", "abc+def"),
    ("s3://bucket/key?X-Amz-Signature=abcdef", "abcdef"),
    ('"Env": ["HF_TOKEN=hf_x9y8z7","MYSQL_PASSWORD=abc123"]', "abc123"),
]


@pytest.mark.parametrize(("line", "secret"), SECRETS, ids=[line[:24] for line, _ in SECRETS])
def test_secret_is_taken_out(line: str, secret: str) -> None:
    for text in (line, json.dumps({"line": line}), f"| {line} |\n{line}"):
        assert secret not in redact(text, OWNER)


KEPT = [
    "Bus Id : 00000000:3B:00.0",
    "| NVIDIA-SMI 580.95.05   Driver Version: 580.95.05   CUDA Version: 13.0 |",
    "GPU0\t X \tNV18\t0-55,112-167\t0\t\tN/A",
    "max_num_batched_tokens: 32768 --num-speculative-tokens 3",
    "VBIOS Version : 94.02.42.00.3E, Image Version : G001.0000.03.03",
    "vllm/vllm-openai:v0.26.0 Qwen/Qwen3.6-27B-FP8 Lorbus/Qwen3.6-27B-int4-AutoRound",
    "sha256:" + HEX * 4,
    "pcie_aspm=off iommu=pt 127.0.0.1:8000 [::1]:8000",
    "/usr/local/cuda/lib64/libcuda.so.1 /proc/driver/nvidia/version /root/.cache/huggingface/hub",
    "Persistence Mode : Enabled, Board ID : 0x4100",
    "vllm/vllm-openai@sha256:" + HEX * 4,
    "docs.nvidia.com/deploy/cuda-compatibility Driver/library version mismatch",
    "/var/lib/docker on /dev/nvme0n1p2, Linux version 6.8.0-45-generic, Linux 6.8.0-45",
    "C:\\Windows\\System32\\nvidia-smi.exe C:\\Program Files\\NVIDIA Corporation\\NVSMI",
    "HOST=0.0.0.0 2026-05-12 03:11:01.123 INFO engine: started DISPLAY=:0",
    "0000:3b:00.0 10de:2bb4 580.159.04 94.02.42.00.b0",
]


@pytest.mark.parametrize("line", KEPT)
def test_facts_of_the_machine_stay(line: str) -> None:
    assert redact(line, OWNER) == line


def test_registries_and_proxies_of_the_daemon_stay_here() -> None:
    settings = {
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},
        "registry-mirrors": ["https://mirror.corp.example"],
        "proxies": {"http-proxy": "http://proxy.corp.example:3128"},
    }
    computer = FakeComputer(files={"/etc/docker/daemon.json": json.dumps(settings)})
    part = bundle_parts(DoctorReport(findings=()), computer)["etc_docker_daemon.json.txt"]
    assert "nvidia-container-runtime" in part
    assert "registry-mirrors" in part
    assert "corp.example" not in part


NOISE = ["a", "A1a", "/a", "password=", "x@", "http://", "-", "_key", '"token', "1.2", "a:", "--a"]


@pytest.mark.parametrize("piece", NOISE)
def test_noise_is_redacted_in_bounded_time(piece: str) -> None:
    started = time.monotonic()
    redact(piece * (300_000 // len(piece)), OWNER)
    assert time.monotonic() - started < 20
