"""A layout takes the GPUs that are joined best for it, and its figures are of their links."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from ruamel.yaml import YAML
from smi_texts import matrix, row, table

from qwendeploy.documents import Machine, Plan, Workload
from qwendeploy.documents.request import Pins, Request
from qwendeploy.hardware import with_chosen
from qwendeploy.hardware.choose import choice_text, choose_gpus
from qwendeploy.hardware.merge import machine_of
from qwendeploy.hardware.placing import place_groups
from qwendeploy.hardware.texts.sniff import read_text
from qwendeploy.planning.recommend import recommend
from qwendeploy.rendering import render
from qwendeploy.tables.gpus import gpus


def box(
    count: int, links: dict[tuple[int, int], str], name: str = "NVIDIA GeForce RTX 3090", **odd: str
) -> Machine:
    """Return a box whose pairs are joined as given, else by ``PHB``; ``odd`` names other cards."""
    rows = [
        row(at, odd.get(f"gpu{at}", name), display="On" if odd.get("display") == str(at) else "Off")
        for at in range(count)
    ]
    cells: dict[int, Sequence[str]] = {
        a: [" X " if a == b else links.get((min(a, b), max(a, b)), "PHB") for b in range(count)]
        for a in range(count)
    }
    texts = (table(rows), matrix(cells))
    machine = machine_of([read_text(text, "text") for text in texts], gpus())
    return with_chosen(machine, choose_gpus(machine, catalogue=gpus()), gpus())


def plan(machine: Machine, **pins: object) -> Plan:
    return recommend(
        machine,
        Workload(concurrency=4, max_context=32768),
        Request(pins=Pins(**pins)),  # type: ignore[arg-type]
    )


BRIDGED_ACROSS = {(0, 2): "NV4", (1, 3): "NV4"}


@pytest.mark.parametrize(
    ("machine", "size", "count", "groups"),
    [
        (box(4, BRIDGED_ACROSS), 2, 2, ((0, 2), (1, 3))),
        (box(4, BRIDGED_ACROSS), 2, 1, ((0, 2),)),
        (box(4, {(1, 3): "NV4"}), 2, 2, ((0, 2), (1, 3))),
        (box(4, BRIDGED_ACROSS), 1, 3, ((0,), (1,), (2,))),
        (box(4, BRIDGED_ACROSS, display="0"), 1, 3, ((1,), (2,), (3,))),
        (box(3, {(1, 2): "NV4"}, display="0"), 2, 1, ((1, 2),)),
        (box(4, {(0, 1): "PIX", (2, 3): "PIX"}), 2, 2, ((0, 1), (2, 3))),
        (box(4, {(0, 3): "PIX", (1, 2): "PIX"}), 2, 2, ((0, 3), (1, 2))),
        # taking the best pair first would leave the two that are farthest apart
        (
            box(4, {(0, 1): "NV4", (2, 3): "SYS", (0, 2): "PIX", (1, 3): "PIX"}),
            2,
            2,
            ((0, 2), (1, 3)),
        ),
        (
            box(8, {(a, b): "NV4" for a, b in combinations((0, 2, 4, 6), 2)}),
            4,
            2,
            ((0, 2, 4, 6), (1, 3, 5, 7)),
        ),
    ],
)
def test_groups_are_those_with_the_best_links(
    machine: Machine, size: int, count: int, groups: tuple[tuple[int, ...], ...]
) -> None:
    found = place_groups(machine, machine.chosen_gpu_indices, size, count, gpus())
    assert found == groups


def test_no_replica_has_unlike_cards_without_need() -> None:
    other = "NVIDIA GeForce RTX 4090"
    machine = box(4, {}, gpu1=other, gpu2=other)
    found = place_groups(machine, (0, 1, 2, 3), 2, 2, gpus())
    assert found == ((0, 3), (1, 2))


def test_pair_of_a_larger_box_is_the_bridged_one_and_counts_as_bridged() -> None:
    whole = plan(box(4, BRIDGED_ACROSS), tp=2, replicas=1)
    alone = plan(
        with_chosen(
            machine := box(4, BRIDGED_ACROSS), choose_gpus(machine, 2, catalogue=gpus()), gpus()
        ),
        tp=2,
        replicas=1,
    )
    apart = plan(box(4, {}), tp=2, replicas=1)
    assert whole.gpu_indices == alone.gpu_indices == (0, 2)
    rates = [
        figures.aggregate_decode_tps.value
        for figures in (whole.predictions, alone.predictions, apart.predictions)
        if figures.aggregate_decode_tps
    ]
    assert rates[0] == pytest.approx(rates[1]) and rates[0] > rates[2]
    assert {flag.name for flag in whole.flags} == {flag.name for flag in alone.flags}


def test_each_replica_is_given_its_own_bridged_pair() -> None:
    made = plan(box(4, BRIDGED_ACROSS), tp=2, replicas=2)
    assert made.gpu_indices == (0, 2, 1, 3)
    services = YAML(typ="safe").load(render(made, "compose")["compose.yaml"][0])["services"]
    given = [
        services[f"engine-{number}"]["deploy"]["resources"]["reservations"]["devices"][0]
        for number in (1, 2)
    ]
    assert [item["device_ids"] for item in given] == [["0", "2"], ["1", "3"]]


@pytest.mark.parametrize("kind", ["docker", "systemd", "quadlet"])
def test_replicas_of_one_process_take_the_gpus_in_the_order_of_the_pairs(kind: str) -> None:
    text = "\n".join(
        text for text, _ in render(plan(box(4, BRIDGED_ACROSS), tp=2, replicas=2), kind).values()
    )
    assert "CUDA_VISIBLE_DEVICES=0,2,1,3" in text
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in text
    in_order = plan(box(4, {(0, 1): "NV4", (2, 3): "NV4"}), tp=2, replicas=2)
    assert "CUDA_VISIBLE_DEVICES" not in "\n".join(
        text for text, _ in render(in_order, kind).values()
    )


def test_plan_says_which_gpus_serve_and_why_the_others_do_not() -> None:
    made = plan(box(3, {(1, 2): "NV4"}, display="0"), tp=2)
    said = "1, 2: usable and best placed, connected by NV4; not 0: drives a display"
    assert choice_text(made.machine, made.gpu_indices) == said
    assert f"GPUs {said}" in made.reasons
    assert not [line for line in plan(box(2, {}), tp=2).reasons if line.startswith("GPUs")]
