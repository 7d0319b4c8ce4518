"""More cards, coarser weights, shorter contexts never make the best plan worse; figures agree."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from qwendeploy.documents import Objective, Quality, Workload
from qwendeploy.documents.request import Pins, Request
from qwendeploy.errors import NoPlan
from qwendeploy.planning import machines
from qwendeploy.planning.ranking import Scored, tie
from qwendeploy.planning.recommend import best_survey, make_scene, recommend
from qwendeploy.units import format_count

CARDS = ("RTX PRO 6000", "RTX 3090", "RTX 4090", "RTX 5090", "H200", "A100 80GB", "L40S", "GB10")
LENGTHS = (8192, 32768, 65536, 131072, 262144)
OPEN = Pins()
QUICK = settings(
    max_examples=10,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each example plans: do not shrink
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

cards = st.sampled_from(CARDS)
lengths = st.sampled_from(LENGTHS)
loads = st.sampled_from((1, 4, 8, 32, 128))
objectives = st.sampled_from(list(Objective))


@cache
def best(
    gpu: str,
    gpus: int,
    concurrency: int,
    longest: int,
    objective: Objective,
    quality: Quality = Quality.ANY,
    pins: Pins = OPEN,
) -> Scored | None:
    """Return the option that is chosen, ``None`` where none can run."""
    workload = Workload(
        concurrency=concurrency,
        max_context=longest,
        typical_context=min(longest, 8192),
        objective=objective,
        quality=quality,
        quality_explicit=True,
    )
    try:
        scene = make_scene(machines.resolve(gpu=gpu, gpus=gpus), workload, Request(pins=pins))
    except NoPlan:
        return None
    return next(iter(best_survey(scene)[0].ranked), None)


def no_worse(option: Scored | None, than: Scored | None, objective: Objective) -> bool:
    """Say whether an option is as good as another, as far as the ranking can tell."""
    if than is None:
        return True
    return option is not None and (
        option.score(objective) >= than.score(objective) or tie(option, than, objective)
    )


@QUICK
@given(cards.filter(lambda card: card != "GB10"), st.integers(1, 4), loads, lengths, objectives)
def test_another_card_never_lowers_the_best(
    gpu: str, gpus: int, concurrency: int, longest: int, objective: Objective
) -> None:
    few = best(gpu, gpus, concurrency, longest, objective)
    more = best(gpu, gpus + 1, concurrency, longest, objective)

    assert no_worse(more, few, objective)


@QUICK
@given(cards, st.sampled_from((1, 2)), loads, lengths, objectives)
def test_looser_weights_never_lower_the_best(
    gpu: str, gpus: int, concurrency: int, longest: int, objective: Objective
) -> None:
    chosen = [best(gpu, gpus, concurrency, longest, objective, quality) for quality in Quality]

    for stricter, looser in pairwise(chosen):
        assert no_worse(looser, stricter, objective)


@QUICK
@given(cards, st.sampled_from((1, 2)), loads, st.integers(0, len(LENGTHS) - 2))
def test_longer_requests_never_run_in_greater_number(
    gpu: str, gpus: int, concurrency: int, at: int
) -> None:
    pins = Pins(quant="int4-autoround", spec_method="mtp", spec_tokens=3, kv_cache_dtype="fp8")
    short, long = (
        best(gpu, gpus, concurrency, longest, Objective.THROUGHPUT, pins=pins)
        for longest in LENGTHS[at : at + 2]
    )

    if long is not None:
        assert short is not None
        assert long.running <= short.running
        figures = [item.predictions.max_full_length_requests for item in (long, short)]
        assert figures[0] is not None and figures[1] is not None
        assert figures[0].value <= figures[1].value


@QUICK
@given(cards, st.sampled_from((1, 2)), loads, lengths)
def test_rates_of_a_plan_are_one_rate(gpu: str, gpus: int, concurrency: int, longest: int) -> None:
    found = best(gpu, gpus, concurrency, longest, Objective.THROUGHPUT)
    if found is None or found.predictions.aggregate_decode_tps is None:
        return
    figures = found.predictions
    rate, user, step = (
        figures.aggregate_decode_tps,
        figures.per_user_decode_tps,
        figures.tpot_ms,
    )
    assert rate is not None and user is not None and step is not None

    for end, other in (("low", "high"), ("value", "value"), ("high", "low")):
        whole, one, time = getattr(rate, end), getattr(user, end), getattr(step, other)
        assert abs(one * found.running - whole) < 1e-6 * whole
        assert abs(one * time - 1000) < 1e-3
    running = figures.max_running_requests
    assert running is not None
    assert found.running == min(concurrency, running.value)


@QUICK
@given(cards, st.sampled_from((1, 2)), loads, lengths)
def test_the_same_input_gives_the_same_plan(
    gpu: str, gpus: int, concurrency: int, longest: int
) -> None:
    workload = Workload(concurrency=concurrency, max_context=longest)
    machine = machines.resolve(gpu=gpu, gpus=gpus)
    try:
        plans = [recommend(machine, workload) for _ in range(2)]
    except NoPlan:
        return

    first, second = (plan.model_dump(exclude={"created"}) for plan in plans)
    assert first == second


SETTINGS = st.tuples(cards, st.sampled_from(("1", "2")), loads, st.sampled_from(("32k", "128k")))


@QUICK
@given(SETTINGS)
def test_text_and_document_say_the_same(run: Any, stated: tuple[str, str, int, str]) -> None:
    gpu, gpus, concurrency, longest = stated
    line = ("recommend", "--gpu", gpu, "--gpus", gpus, "--c", str(concurrency), "--ctx", longest)
    text, document = run(*line), run(*line, "--json")
    assert text.code == document.code
    if text.code:
        return
    figures = json.loads(document.out)["predictions"]

    for row, name in (
        ("per request", "per_user_decode_tps"),
        ("TPOT", "tpot_ms"),
        ("cold TTFT", "ttft_cold_ms"),
        ("end to end", "output_tps_end_to_end"),
    ):
        place = rf"^  {row} +" if row != "TPOT" else "; TPOT "
        shown = re.search(rf"{place}([\d,.]+) \(([\d,.]+)–([\d,.]+)\)", text.out, re.MULTILINE)
        assert shown is not None, row
        figure = figures[name]
        assert list(shown.groups()) == [
            format_count(figure[end]) for end in ("value", "low", "high")
        ]


@QUICK
@given(SETTINGS)
def test_a_stored_plan_is_predicted_and_generated_alike(
    run: Any, tmp_path: Path, stated: tuple[str, str, int, str]
) -> None:
    gpu, gpus, concurrency, longest = stated
    line = ("recommend", "--gpu", gpu, "--gpus", gpus, "--c", str(concurrency), "--ctx", longest)
    stored, folder = tmp_path / "plan.yaml", tmp_path / "deploy"
    if run(*line, "-o", stored, "--force").code:
        return
    plan = json.loads(run(*line, "--json").out)
    predicted = json.loads(run("predict", "--plan", stored, "--json").out)
    point = plan["operating_point"]
    cell = next(
        item
        for item in predicted["cells"]
        if (item["concurrency"], item["context"]) == (point["concurrency"], point["context"])
    )

    assert cell["figures"]["aggregate_decode_tps"] == plan["predictions"]["aggregate_decode_tps"]
    assert predicted["option"] == plan["option"]
    kind = "docker" if plan["option"]["engine"] == "vllm" else "llama-server"
    generated = run("generate", stored, "-f", kind, "-o", folder, "--force")
    assert generated.code == 0, generated.err
    written = "".join(path.read_text() for path in folder.iterdir() if path.is_file())
    assert plan["plan_id"] in written
    assert plan["option"]["checkpoint"] in written
