"""Settings that exclude each other, or have no value, are refused before anything is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Ran


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("verify", "--quick", "--thorough"), "--quick and --thorough are mutually exclusive"),
        (("verify", "--thorough", "--quick"), "--quick and --thorough are mutually exclusive"),
        (("verify", "--fill", "--no-fill"), "--fill and --no-fill are mutually exclusive"),
        (("recommend", "--gpu", "4090", "--nvlink", "--no-nvlink"), "--no-nvlink are mutually"),
        (("recommend", "--image", ""), "--image needs a value"),
        (("recommend", "--image", "  "), "--image needs a value"),
        (("recommend", "--checkpoint="), "--checkpoint needs a value"),
        (("data", "import", "x.json", "--gpu", ""), "--gpu needs a value"),
        (("detect", ""), "an argument is empty"),
    ],
    ids=" ".join,
)
def test_it_is_a_usage_error_that_names_them(
    run: Callable[..., Ran], words: tuple[str, ...], told: str
) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert told in ran.err


def test_one_setting_said_twice_in_one_way_is_no_contradiction(run: Callable[..., Ran]) -> None:
    assert "exclude" not in run("verify", "--self-test", "--no-fill", "--no-fill", "--boots", "1",
                                "--help").err  # fmt: skip


def test_a_cell_asked_for_twice_is_told_once(run: Callable[..., Ran]) -> None:
    ran = run("predict", "--gpu", "4090", "--gpus", "2", "--quant", "int4-autoround",
              "--c", "1,1,4,1", "--ctx", "4k,4096", "--json")  # fmt: skip
    assert ran.code == 0, ran.err
    cells = [(cell["concurrency"], cell["context"]) for cell in json.loads(ran.out)["cells"]]
    assert cells == [(1, 4096), (4, 4096)]


def test_plans_for_other_cards_differ_in_their_cards(
    run: Callable[..., Ran], tmp_path: Path
) -> None:
    for card in ("3090", "4090"):
        path = tmp_path / f"{card}.yaml"
        assert run("recommend", "--gpu", card, "--gpus", "2", "-o", path).code == 0
    ran = run("compare", tmp_path / "3090.yaml", tmp_path / "4090.yaml")
    assert "machine.gpus: 2 x RTX 3090 24,576 MiB -> 2 x RTX 4090" in ran.out


FAILED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that"
    " the latest NVIDIA driver is installed and running.\n"
)
QUERY = "index, name, memory.total [MiB], driver_version, compute_cap\n"
CARDS = (
    "0, NVIDIA GeForce RTX 3090, 24576 MiB, 580.65.06, 8.6\n"
    "1, NVIDIA GeForce RTX 4090, 24564 MiB, 580.65.06, 8.9\n"
)


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        pytest.param("smi.txt", FAILED, 1, id="nothing-can-serve"),
        pytest.param("smi.csv", QUERY + CARDS, 0, id="cards"),
        pytest.param(
            "smi.csv", QUERY + CARDS.replace("24576", "99999999"), 2, id="impossible-memory"
        ),
        pytest.param(
            "gh.json",
            json.dumps(
                {"gpus": [{"index": 0, "name": "NVIDIA GeForce RTX 3090",
                           "memory.total": "24576 MiB"}]}
            ),
            0,
            id="another-tools-json",
        ),
    ],
)  # fmt: skip
def test_detect_and_recommend_read_a_file_alike(
    run: Callable[..., Ran], tmp_path: Path, name: str, text: str, code: int
) -> None:
    (tmp_path / name).write_text(text)
    assert run("detect", "--from", tmp_path / name).code == code
    assert run("recommend", "--machine", tmp_path / name).code == code


def test_doctor_says_that_the_plan_is_for_other_cards(
    run: Callable[..., Ran], tmp_path: Path
) -> None:
    plan, saved = tmp_path / "plan.yaml", tmp_path / "smi.csv"
    pro = ("--gpu", "RTX PRO 6000 Blackwell Workstation", "--gpus", "2")
    assert run("recommend", *pro, "-o", plan).code == 0
    saved.write_text(QUERY + CARDS)
    ran = run("doctor", plan, "--from", saved, "--json")
    assert ran.code == 1
    found = {item["id"]: item for item in json.loads(ran.out)["findings"]}
    other = found["gpu-other-than-planned"]
    assert "RTX PRO 6000 Blackwell Workstation" in other["evidence"]
    assert "1 x RTX 3090 24 GiB, 1 x RTX 4090 24 GiB" in other["evidence"]
