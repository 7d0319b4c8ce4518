"""Far from its cells a series is continued by the joint physics, moved to the series' level."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from qwendeploy.documents import Option, Workload
from qwendeploy.documents.request import Request
from qwendeploy.evidence.series_choice import FEWEST_CELLS, best_series
from qwendeploy.evidence.speed_fit import default_hyper
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.models.anchored import SHAPE, Anchor, combined
from qwendeploy.models.speed import fit_series
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.recommend import make_scene
from qwendeploy.tables.gpus import gpus
from qwendeploy.tables.series import Series, SeriesCell, all_series

CARD = "RTX PRO 6000 Blackwell Workstation"
CONCURRENCY = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (0, 8192, 65536, 131072, 262144)
COLLAPSED = "v0.20.1"


@cache
def rates(cards: int) -> Rates:
    """Return the rates on this many cards of the study's kind."""
    machine = stated_machine(CARD, cards, catalogue=gpus())
    return Rates(make_scene(machine, Workload(concurrency=8, max_context=262144), Request()))


def option_of(series: Series) -> Option:
    """Return the option that a series measured, every step captured."""
    key = series.key
    return Option(
        engine=key.engine,
        image=key.image or "",
        engine_version=key.engine_version,
        fork=series.fork is not None,
        checkpoint=key.checkpoint or "",
        quant=key.quant,
        kv_cache_dtype="bf16",
        spec_method=key.spec_method or "none",
        spec_tokens=key.spec_tokens or 0,
        tp=key.tp or 1,
        replicas=1,
        prefix_cache=True,
        max_num_seqs=256,
        capture_size=8192,
    )


def speaking() -> list[Series]:
    """Return one series for every option of the study's card that a series speaks for."""
    found: dict[str, Series] = {}
    for series in all_series():
        key = series.key
        if key.gpu == CARD and key.gpu_count == key.tp and len(series.cells) >= FEWEST_CELLS:
            match = best_series(rates(key.tp or 1).series, option_of(series))
            if match is not None and match[1]:
                found[match[0].key.label] = match[0]
    return list(found.values())


@pytest.mark.parametrize("series", speaking(), ids=lambda series: series.key.label)
@pytest.mark.parametrize("contexts", ["shared", "separate"])
def test_no_point_has_a_silly_rate_or_band(series: Series, contexts: str) -> None:
    option = option_of(series)
    points = [(option, c, x, contexts) for x in CONTEXTS for c in CONCURRENCY]
    answers = rates(option.tp).aggregate_many(points)
    assert all(answer is not None for answer in answers)
    for (_, c, x, _), answer in zip(points, answers, strict=True):
        assert answer is not None
        assert 0 < answer.low <= answer.value <= answer.high, (c, x)
        if not (option.spec_method == "dflash" and COLLAPSED in series.key.label):
            assert max(answer.high / answer.value, answer.value / answer.low) < 1.6, (c, x)


def cut(series: Series, most: int) -> tuple[list[SeriesCell], list[SeriesCell]]:
    """Return the cells up to a concurrency and those from eight times of it on."""
    near = [cell for cell in series.cells if cell.concurrency <= most]
    return near, [cell for cell in series.cells if cell.concurrency >= 8 * most]


@pytest.mark.parametrize("most", [2, 4])
def test_cells_far_outside_are_met(most: int) -> None:
    errors, alone, covered = [], [], []
    for series in speaking():
        near, far = cut(series, most)
        if len(near) < FEWEST_CELLS or not far:
            continue
        option = option_of(series)
        fit = fit_series(near, default_hyper(), draft=option.spec_method)
        physics = rates(option.tp)._step_times(series, option)
        for cell in far:
            answer = fit.predict(cell.concurrency, cell.context, physics=physics)
            errors.append(abs(math.log(answer.value / cell.aggregate_tps)))
            covered.append(answer.low <= cell.aggregate_tps <= answer.high)
            plain = fit.predict(cell.concurrency, cell.context)
            alone.append(abs(math.log(plain.value / cell.aggregate_tps)))
    assert len(errors) >= 20
    assert np.median(errors) < 0.08
    assert np.median(errors) < np.median(alone) / 2
    assert np.mean(covered) >= 0.85


def test_cells_inside_do_not_hear_the_physics() -> None:
    series = max(speaking(), key=lambda series: len(series.cells))
    option = option_of(series)
    fit = fit_series(series.cells, default_hyper(), draft=option.spec_method)
    physics = rates(option.tp)._step_times(series, option)
    for cell in series.cells:
        if fit.octaves_outside(cell.concurrency, cell.context) == 0:
            plain = fit.predict(cell.concurrency, cell.context)
            assert fit.predict(cell.concurrency, cell.context, physics=physics) == plain


def test_cells_that_agree_carry_their_level() -> None:
    places = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    level, scatter = Anchor(places, np.full(3, 0.2)).shift(np.array([6.0, 0.0]))
    assert level == pytest.approx(0.2)
    assert scatter == pytest.approx(0.0, abs=1e-12)


def test_cells_that_disagree_silence_the_physics() -> None:
    places = np.array([[0.0, 0.0], [0.0, 3.0]])
    moved = Anchor(places, np.array([0.0, 2.0])).shift(np.array([1.0, 1.5]))
    assert moved[1] > 5 * SHAPE
    value, deviation = combined((0.0, 0.1), moved, 1.0)
    assert abs(value) < 0.02
    assert deviation < 0.1
