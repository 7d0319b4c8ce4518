"""Unlike, unknown and busy cards: the plan names what it takes and what stands in its way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

HEAD = "index, name, memory.total [MiB], memory.used [MiB], driver_version, compute_cap\n"
CARDS = {
    "5090": "NVIDIA GeForce RTX 5090, 32607 MiB, 3 MiB, 580.65.06, 12.0",
    "3090": "NVIDIA GeForce RTX 3090, 24576 MiB, 3 MiB, 580.65.06, 8.6",
    "busy": "NVIDIA GeForce RTX 3090, 24576 MiB, 20000 MiB, 580.65.06, 8.6",
    "other": "NVIDIA Nobody's 7000, 65536 MiB, 3 MiB, 580.65.06, 12.0",
}


def saved(folder: Path, *cards: str) -> Path:
    """What nvidia-smi printed on a machine of these cards."""
    rows = (f"{index}, {CARDS[card]}\n" for index, card in enumerate(cards))
    (folder / "query.csv").write_text(HEAD + "".join(rows))
    return folder


def plan_of(run: Any, *settings: object) -> tuple[dict[str, Any], str]:
    ran = run("recommend", "--ctx", "16k", *settings, "--json")
    assert ran.code == 0, ran.err
    plan: dict[str, Any] = json.loads(ran.out)
    return plan, "\n".join(plan["headlines"])


def test_a_lowered_class_says_on_which_card_and_how_to_take_the_rest(
    run: Any, tmp_path: Path
) -> None:
    machine = saved(tmp_path, "5090", "3090")
    one, told = plan_of(run, "--machine", machine)
    both, both_told = plan_of(run, "--machine", machine, "--devices", "0,1")

    assert "on GPU 0 alone (--devices 0,1 adds" in told
    assert one["option"]["quant"] != "fp8" and both["option"]["quant"] == "fp8"
    assert "No option in quality class" not in both_told


def test_unlike_cards_are_both_named(run: Any, tmp_path: Path) -> None:
    machine = saved(tmp_path, "5090", "3090")
    text = run("recommend", "--machine", machine, "--devices", "0,1").out

    assert "1 x RTX 5090 + 1 x RTX 3090" in text


@pytest.mark.parametrize(("cards", "said"), [(("busy", "3090"), True), (("3090", "3090"), False)])
def test_memory_that_others_hold_is_said_first(
    run: Any, tmp_path: Path, cards: tuple[str, ...], said: bool
) -> None:
    _, told = plan_of(run, "--machine", saved(tmp_path, *cards))

    assert ("GPU 0 has 4.5 GiB free and the plan needs 21.6" in told) is said
    assert "GPU 1 has" not in told


def test_an_unknown_card_has_no_order_of_speed(run: Any, tmp_path: Path) -> None:
    plan, told = plan_of(run, "--machine", saved(tmp_path, "other"))

    assert plan["predictions"]["aggregate_decode_tps"] is None
    assert "No speed can be predicted on NVIDIA Nobody's 7000" in told


@pytest.mark.parametrize(
    ("stated", "taken", "others"),
    [
        pytest.param("A100", "A100 80GB", "A100 40GB", id="a100"),
        pytest.param("A100 x2", "A100 80GB", "A100 40GB", id="number-behind"),
        pytest.param("RTX 4060 Ti", "RTX 4060 Ti 16GB", "RTX 4060 Ti 8GB", id="4060-ti"),
        pytest.param("RTX 4090", None, None, id="one-size"),
        pytest.param("A100 80GB PCIe", None, None, id="whole-name"),
    ],
)
def test_a_short_name_says_which_card_it_was_taken_for(
    run: Any, stated: str, taken: str | None, others: str | None
) -> None:
    _, told = plan_of(run, "--gpu", stated)

    assert ("is read as" in told) is (taken is not None)
    if taken and others:
        assert f"{stated!r} is read as the {taken}" in told and others in told


def test_a_stated_memory_settles_which_card_it_is(run: Any) -> None:
    plan, told = plan_of(run, "--gpu", "A100", "--vram", "40")

    assert "is read as" not in told
    assert "40GB" in plan["machine"]["gpus"][0]["model"]
