"""Differences of two runs are claimed where both measured the same thing, and well."""

from __future__ import annotations

import pytest

from qwendeploy.documents import ClientFacts, RunDocument, ServerFacts, Step, Tool, Window
from qwendeploy.errors import UserError
from qwendeploy.figures import Figure, Kind
from qwendeploy.verification.judging.comparing import Difference, compare_runs

POINT = {"concurrency": 4, "context": 600, "contexts": "separate", "content": "mixed"}


def figure(value: float, half: float, *, n: int = 5, source: str = "this run") -> Figure:
    return Figure(value=value, unit="tok/s", low=value - half, high=value + half,
                  kind=Kind.MEASURED_HERE, source=source, n=n)  # fmt: skip


def run(name: str, rate: Figure, *steps: Step, limited: str = "", root: str = "a/b",
        **figures: Figure) -> RunDocument:  # fmt: skip
    return RunDocument(
        created="2026-11-30T12:00:00Z",
        tool=Tool(version="0"),
        run_id=name,
        status="complete",
        machine_id="here",
        operating_point=POINT,
        server=ServerFacts(base_url="http://h", model="m", root=root, boot_id=name),
        client=ClientFacts(loop="uvloop", limited=bool(limited), limited_reason=limited),
        figures={"aggregate_decode_tps": rate, **figures},
        steps=steps,
    )


def step(shape: str, name: str, *, steady: bool = True) -> Step:
    window = Window(start_s=0, duration_s=1, tokens=1, aggregate_tps=1, tpot_ms=1, running_low=4)
    return Step.model_validate(
        {"name": name, "shape": shape, "concurrency": 4, "context": 600, "contexts": "separate",
         "status": "complete", "steady": steady, "windows": (window,) * 3}
    )  # fmt: skip


def of(a: RunDocument, b: RunDocument, quantity: str = "aggregate_decode_tps") -> Difference:
    found = compare_runs(a, b).differences
    return next(one for one in found if one.quantity == quantity)


@pytest.mark.parametrize(
    ("first", "second", "significant"),
    [
        pytest.param(figure(100, 1), figure(105, 1), False, id="within-a-boot"),
        pytest.param(figure(100, 1), figure(112, 1), True, id="beyond"),
        pytest.param(figure(100, 1, n=1), figure(150, 1), None, id="one-value"),
        pytest.param(figure(100, 1, n=3, source="3 boots"), figure(105, 1, n=4, source="4 boots"),
                     True, id="boots-measured"),
    ],
)  # fmt: skip
def test_a_difference_must_exceed_what_boots_differ(
    first: Figure, second: Figure, significant: bool | None
) -> None:
    assert of(run("a", first), run("b", second)).significant is significant


def test_runs_that_decide_nothing_claim_nothing() -> None:
    well = run("a", figure(100, 1), step("decode", "decode"))
    slow = run("b", figure(200, 1), step("decode", "decode"), limited="97% of a core")
    restless = run("c", figure(200, 1), step("decode", "decode", steady=False))
    assert of(well, slow).significant is None
    assert "b: the client was the bottleneck" in of(well, slow).reason
    assert "c: the rate was not steady" in of(well, restless).reason
    assert of(well, slow).change == 1.0


def test_loops_of_other_requests_are_not_like_for_like() -> None:
    short = run("a", figure(100, 1), step("mixed", "mixed c=4 100 in 20 out"),
                output_tps_end_to_end=figure(50, 1))  # fmt: skip
    long = run("b", figure(100, 1), step("mixed", "mixed c=4 4000 in 20 out"),
               output_tps_end_to_end=figure(20, 1))  # fmt: skip
    found = of(short, long, "output_tps_end_to_end")
    assert found.significant is None
    assert "100 in 20 out and mixed c=4 4000 in" in found.reason
    assert of(short, short, "output_tps_end_to_end").significant is False


def test_another_model_is_refused_with_the_key() -> None:
    with pytest.raises(UserError, match=r"server\.model: 'a/b' and 'c/d'"):
        compare_runs(run("a", figure(100, 1)), run("b", figure(100, 1), root="c/d"))
