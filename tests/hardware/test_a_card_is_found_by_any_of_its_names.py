"""The GPU catalogue resolves names as people and tools write them, and never a near miss."""

from __future__ import annotations

import pytest

from qwendeploy.tables.gpus import GpuModel, find_gpu, gpus

NAMES = [
    ("RTX PRO 6000", {}, "RTX PRO 6000 Blackwell Workstation"),
    ("rtxpro6000", {}, "RTX PRO 6000 Blackwell Workstation"),
    ("3090", {}, "RTX 3090"),
    ("NVIDIA GeForce RTX 3090", {}, "RTX 3090"),
    ("h100", {}, "H100 SXM"),
    ("spark", {}, "GB10"),
    ("H200", {}, "H200"),
    ("NVIDIA H200 NVL", {}, "H200 NVL"),
    ("Tesla T4", {}, "T4"),
    ("4090D", {}, "RTX 4090 D"),
    ("NVIDIA GeForce RTX 4090 D", {}, "RTX 4090 D"),
    ("5090 laptop", {}, "RTX 5090 Laptop"),
    ("RTX 3090 24GB", {}, "RTX 3090"),
    ("RTX 2080 Ti (22 GB mod)", {}, "RTX 2080 Ti"),
    ("RTX 6000 48GB", {}, "RTX 6000 Ada"),
    ("Quadro RTX 6000", {}, "Quadro RTX 6000"),
    ("a100", {"memory_mib": 40960}, "A100 40GB SXM"),
    ("RTX 5060 Ti", {"memory_mib": 8151}, "RTX 5060 Ti 8GB"),
    ("RTX 5060 Ti", {"memory_mib": 16311}, "RTX 5060 Ti 16GB"),
    ("h100", {"memory_mib": 95830}, "H100 NVL"),
    ("h100", {"power_w": 350}, "H100 PCIe"),
    ("NVIDIA RTX PRO 6000 Blac...", {"power_w": 300}, "RTX PRO 6000 Blackwell Max-Q"),
    ("NVIDIA RTX PRO 6000 Blac...", {"power_w": 600}, "RTX PRO 6000 Blackwell Workstation"),
    ("NVIDIA RTX 6000 Ada Gene...", {"memory_mib": 49140}, "RTX 6000 Ada"),
    ("Tesla V100-SXM2...", {"memory_mib": 16130}, "V100 SXM2 16GB"),
    ("NVIDIA GeForce RTX 4080 ...", {"memory_mib": 16376, "power_w": 320}, "RTX 4080 SUPER"),
    ("NVIDIA A10G", {}, "A10G"),
    ("GRID K520", {}, "GRID K520"),
    ("P40", {}, "P40"),
    ("AMD Instinct MI300X", {}, "Instinct MI300X"),
    ("NVIDIA GeForce RTX 3080", {"memory_mib": 20480, "power_w": 350}, "RTX 3080 10GB"),
    ("NVIDIA GeForce RTX 3080", {"memory_mib": 12288, "power_w": 350}, "RTX 3080 12GB"),
    ("NVIDIA GeForce RTX 5060 Ti", {"memory_mib": 32607}, "RTX 5060 Ti 16GB"),
    ("6000 pro", {}, "RTX PRO 6000 Blackwell Workstation"),
    ("rtx6000 pro blackwell", {}, "RTX PRO 6000 Blackwell Workstation"),
    ("RTX 6000 Pro Max-Q", {}, "RTX PRO 6000 Blackwell Max-Q"),
    ("rtx pro 6000 q-max", {}, "RTX PRO 6000 Blackwell Max-Q"),
    ("a6000 ada", {}, "RTX 6000 Ada"),
    ("a100 40g", {}, "A100 40GB SXM"),
    ("A100-80G", {}, "A100 80GB SXM"),
    ("dgx spark", {}, "GB10"),
    ("GX10", {}, "GB10"),
    ("gh200", {}, "GH200 96GB"),
    ("GB200 NVL4", {}, "GB200"),
    ("h100 nvl", {}, "H100 NVL"),
    ("b200", {}, "B200"),
    ("v100", {}, "V100 SXM2 32GB"),
]


@pytest.mark.parametrize(("name", "facts", "card"), NAMES, ids=[f"{n[0]}-{n[1]}" for n in NAMES])
def test_name_means_card(name: str, facts: dict[str, float], card: str) -> None:
    found = find_gpu(name, **facts)
    assert found is not None
    assert found.name == card


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "Graphics Device",
        "...",
        "NVIDIA",
        "RTX 5090 Ti",
        "NVIDIA ...",
        "A1000000",
        "ti 5090 ada",
    ],
)
def test_unknown_name_is_no_card(name: str) -> None:
    assert find_gpu(name) is None


def test_name_of_unlike_cards_needs_a_memory_size() -> None:
    assert find_gpu("RTX 6000") is None
    assert len(gpus().near("RTX 6000")) == 3


def test_near_names_name_the_family() -> None:
    assert "RTX 5090" in gpus().near("RTX 5090 Ti")
    assert "RTX PRO 6000 Blackwell Workstation" in gpus().near("RTX PRO 6000 Blackwel")


@pytest.mark.parametrize("model", list(gpus()), ids=lambda model: model.name)
def test_row_is_plausible(model: GpuModel) -> None:
    assert find_gpu(model.name) == model
    assert model.sources
    if model.vendor == "NVIDIA":
        assert model.compute_capability is not None
    if model.memory_mib is not None and model.memory_gb_nominal is not None:
        assert model.has_memory(model.memory_mib)
    if model.fp8_tflops is not None and model.bf16_tflops is not None:
        assert model.fp8_tflops == pytest.approx(2 * model.bf16_tflops, rel=0.02)
    assert (model.nvlink_gbps is None) or model.nvlink != "none"
    if model.segment == "too-old":
        assert float(model.compute_capability or "0") < 7.0


def test_every_card_for_serving_says_its_bandwidth() -> None:
    missing = [
        model.name
        for model in gpus()
        if model.segment in ("consumer", "datacenter", "unified") and model.bandwidth_gbps is None
    ]
    assert set(missing) <= {name for name in missing if "CMP" in name} | {
        "A100 64GB SXM",
        "PG503 V100",
    }
