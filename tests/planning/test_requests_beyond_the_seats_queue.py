"""Requests beyond what memory seats wait; they take nothing from those that run."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from qwendeploy.documents import Objective, Workload
from qwendeploy.documents.request import Request
from qwendeploy.planning import machines
from qwendeploy.planning.recommend import best_survey, make_scene
from qwendeploy.planning.resolve import last_of
from qwendeploy.planning.survey import Survey

CARDS = ("A100 40GB", "H100 SXM", "RTX 3090", "RTX 5090", "RTX PRO 6000", "L40S", "GB10", "H200")
LOADS = tuple(2**power for power in range(13))
QUICK = settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each example plans: do not shrink
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def judged(gpu: str, gpus: int, concurrency: int, longest: int, typical: int) -> Survey:
    workload = Workload(
        concurrency=concurrency,
        max_context=longest,
        typical_context=typical,
        contexts="separate",
    )
    scene = make_scene(machines.resolve(gpu=gpu, gpus=gpus), workload, Request())
    return best_survey(scene)[0]


@QUICK
@given(
    st.sampled_from(CARDS),
    st.sampled_from((1, 2)),
    st.sampled_from(((8192, 2048), (16384, 4096), (32768, 16384))),
)
def test_more_requests_never_lower_the_rate(gpu: str, gpus: int, lengths: tuple[int, int]) -> None:
    if gpu == "GB10" and gpus > 1:
        return
    surveys = [judged(gpu, gpus, load, *lengths) for load in LOADS]
    # which class or engine holds a few requests and not many is another question
    kinds = [
        (found.ranked[0].quality, found.ranked[0].candidate.option.engine) for found in surveys
    ]
    rates = [max(item.score(Objective.THROUGHPUT) for item in found.ranked) for found in surveys]

    for few, more in pairwise(range(len(LOADS))):
        if kinds[few] == kinds[more]:
            assert rates[more] >= 0.98 * rates[few], (LOADS[few], LOADS[more])
    assert len(set(kinds[LOADS.index(64) :])) == 1, "the queue changed what is planned"


@pytest.mark.parametrize(
    ("gpu", "lengths", "few", "many"),
    [
        pytest.param("A100 40GB", (16384, 4096), 16, 4096, id="drafts or not"),
        pytest.param("H100 SXM", (32768, 4096), 64, 4096, id="large pool"),
        pytest.param("RTX 5090", (32768, 4096), 32, 2048, id="graphs and sampler fill the card"),
        pytest.param("RTX 3090", (32768, 4096), 8, 16, id="a seat costs a request"),
    ],
)
def test_a_longer_queue_is_served_as_fast(
    gpu: str, lengths: tuple[int, int], few: int, many: int
) -> None:
    short, long = (judged(gpu, 1, load, *lengths).ranked[0] for load in (few, many))

    assert short.predictions.aggregate_decode_tps == long.predictions.aggregate_decode_tps
    assert short.running == long.running
    same = {"max_num_seqs": short.candidate.option.max_num_seqs}
    assert long.candidate.option.model_copy(update=same) == short.candidate.option


def test_no_draft_starves_beside_a_queue() -> None:
    result = judged("H100 SXM", 1, 4096, 32768, 4096)

    assert not [
        entry
        for entry in result.trace
        if entry.rule == "memory-weights" and "fp8 ·" in entry.option
    ]
    most = max(item.running for item in result.ranked)
    of_plan = result.ranked[0].candidate.option.quant
    running = [i.running for i in result.ranked if i.candidate.option.quant == of_plan]
    assert min(running) > most / 4


@pytest.mark.parametrize("other", ["512", "4096"])
def test_a_cell_of_a_grid_hardly_depends_on_the_others(run: Any, other: str) -> None:
    line = "predict --gpu H100-SXM --quant fp8 --spec mtp --spec-tokens 3 --kv-cache-dtype fp8"
    line += " --ctx 4k --json --c "
    alone, beside = (
        json.loads(run(*(line + loads).split()).out) for loads in ("32", "32," + other)
    )

    rates = [found["cells"][0]["figures"]["aggregate_decode_tps"] for found in (alone, beside)]
    assert rates[0]["value"] == pytest.approx(rates[1]["value"], rel=0.02)
    # the seats of the larger load take memory from the pool, no more than they can use
    pools = [found["memory"]["kv_pool_blocks"]["value"] for found in (alone, beside)]
    assert pools[0] * 0.95 <= pools[1] <= pools[0]


def test_the_seats_that_nobody_stated_are_not_blamed(run: Any) -> None:
    line = "recommend --gpu A100-40GB --ctx 16k --typical-ctx 4k --separate-contexts --c 1024"
    assert "--max-num-seqs" not in run(*line.split()).out
    stated = run(*line.split(), "--max-num-seqs", "3").out
    assert "--max-num-seqs lets 3 of 1024 requests run at once: the rest queue." in stated


@pytest.mark.parametrize("seats", [8, 12])
def test_no_more_requests_are_said_to_run_than_there_are_seats(run: Any, seats: int) -> None:
    line = "recommend --gpu H200 --gpus 2 --ctx 16k --c 16 --tp 1 --replicas 2 --json"
    plan = json.loads(run(*line.split(), "--max-num-seqs", str(seats)).out)

    counts = [
        int(n)
        for n in re.findall(
            r"(\d+) (?:requests of 16k|at full length|concurrent requests)",
            " ".join(plan["capacity"]),
        )
    ]
    assert counts and max(counts) <= 2 * seats


def test_the_first_of_a_falling_row_is_found() -> None:
    for edge in range(1, 20):
        assert last_of(1, 19, edge.__ge__) == edge


def test_the_first_token_end_to_end_waits_for_a_seat(run: Any) -> None:
    line = "recommend --gpu H100-SXM --ctx 32k --typical-ctx 4k --separate-contexts --c"
    seated, queued = (json.loads(run(*line.split(), load, "--json").out) for load in ("32", "4096"))
    figures = queued["predictions"]

    # in a closed loop every user has one request underway: users = answers a second x seconds each
    answer = queued["operating_point"]["osl"]
    first, pace = (figures[f"{name}_end_to_end_ms"]["value"] for name in ("ttft", "tpot"))
    a_second = figures["output_tps_end_to_end"]["value"] / answer
    assert a_second * (first + pace * answer) / 1000 == pytest.approx(4096, rel=0.02)
    assert seated["predictions"]["ttft_end_to_end_ms"]["value"] < 5000
    told = [
        "with queueing" in " ".join(run(*line.split(), load).out.split()) for load in ("32", "4096")
    ]
    assert told == [False, True]
