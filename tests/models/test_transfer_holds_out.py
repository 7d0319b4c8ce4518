"""Ceilings on the errors between machines: what is published stays true of the tables."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from qwendeploy.evaluation.transfer import (
    WAYS,
    HeldOut,
    band_scale,
    calibrated,
    fitted_rows,
    group_errors,
    held_out_rows,
    transfer_accuracy,
)
from qwendeploy.evidence.transfer_rows import (
    TransferRow,
    set_aside,
    transfer_fit,
    transfer_rows,
    weight_features,
)
from qwendeploy.models.step import Features
from qwendeploy.models.transfer_fit import Fitter, Observation
from qwendeploy.resources import data_dir
from qwendeploy.tables.decode import decode_rows
from qwendeploy.tables.transfer import KEYS, transfer_coefficients


def test_a_held_out_machine_meets_its_goals() -> None:
    stated, others, _ = transfer_accuracy(["machine"])
    assert stated.median <= 0.12
    assert others.median <= 0.20
    assert stated.coverage >= 0.88
    assert others.coverage >= 0.88
    assert others.half_width <= 0.35


def test_a_held_out_layout_of_a_known_machine_meets_its_goals() -> None:
    stated, _, everything = transfer_accuracy(["layout"])
    assert stated.median <= 0.12
    assert stated.coverage >= 0.85
    assert stated.half_width <= 0.20
    assert everything.coverage >= 0.85


def test_the_worst_groups_are_reported_too() -> None:
    lines = group_errors("machine")
    assert [line.median for line in lines] == sorted((x.median for x in lines), reverse=True)
    assert sum(line.n for line in lines) == sum(not item.derived for item in fitted_rows())


def test_published_errors_of_every_way_are_within_their_ceilings() -> None:
    published = transfer_coefficients()["provenance"]["held_out"]
    for way in WAYS:
        line = published[f"{way}, complete"]
        assert line["median"] <= (0.20 if way == "machine" else 0.12), way
        assert line["coverage"] >= 0.85, way
        assert line["half_width"] <= 0.35, way


def test_the_shipped_fit_is_what_the_tables_give() -> None:
    fresh = Fitter([item.observation for item in fitted_rows()]).fit()
    shipped = transfer_fit()
    assert fresh.names == shipped.names
    assert np.exp(fresh.theta) == pytest.approx(np.exp(shipped.theta), rel=0.02)
    assert dict(fresh.measured) == dict(shipped.measured)


def test_the_stored_file_is_json_and_says_where_it_comes_from() -> None:
    text = (data_dir("benchdata") / "transfer_fit.yaml").read_text(encoding="utf-8")
    data = json.loads(text)
    assert set(KEYS) <= set(data)
    assert sum(data["provenance"]["rows"].values()) == len(fitted_rows())
    assert len(data["provenance"]["sources"]) > 10


def test_rows_outside_the_physics_are_set_aside_with_a_reason() -> None:
    reasons = {set_aside(row) for row in decode_rows() if row.usable}
    assert {"unlike cards", None} <= reasons
    assert all(set_aside(item.row) is None for item in fitted_rows())


def test_only_usable_or_synthetic_step_time_rows_are_fitted() -> None:
    fitted = {item.row.row_id for item in fitted_rows()}
    for row in decode_rows():
        if row.row_id in fitted:
            assert row.usable or (row.status == "synthetic" and row.origin == "h200")


def test_repetitions_of_one_cell_are_one_observation() -> None:
    points = [
        (item.observation.features, item.row.experiment, item.row.config, item.row.source)
        for item in fitted_rows()
        if item.row.origin == "study"
    ]
    assert len(points) == len(set(points))


def test_complete_rows_state_version_and_context() -> None:
    for item in transfer_rows(decode_rows()):
        stated = item.row.engine_version is not None and item.row.context is not None
        assert item.complete == stated


def held(group: str, error: float) -> HeldOut:
    item = fitted_rows()[0]
    measured = item.observation.rate
    return HeldOut("machine", group, item, measured * math.exp(error), 0.1, "architecture")


def test_bands_are_calibrated_on_other_groups_only() -> None:
    calm = [held(f"g{i}", 0.05) for i in range(30)]
    wild = [held("wild", 0.9) for _ in range(30)]
    lines = {row.group: row for row in calibrated([*calm, *wild])}
    assert not lines["wild"].covered
    assert lines["g0"].scale >= lines["wild"].scale
    assert band_scale(calm) < band_scale([*calm, *wild])


def test_an_odd_rig_does_not_bend_the_physics() -> None:
    """One of eight hosts at a third of the speed moves the others' prediction by little."""
    base = {
        "bandwidth_gbps": 1000.0,
        "bf16_tflops": 150.0,
        "compute_capability": 8.9,
        "quant": "int4-autoround",
        "gpu": "card",
    }

    def observations(odd: float) -> list[Observation]:
        return [
            Observation(Features(**base, rig=f"r{i}"), 50.0 * (odd if i == 0 else 1.0))  # type: ignore[arg-type]
            for i in range(8)
        ]

    point = Features(**base)  # type: ignore[arg-type]
    clean = Fitter(observations(1.0)).fit().predict(point).value
    bent = Fitter(observations(1 / 3)).fit().predict(point).value
    assert bent == pytest.approx(clean, rel=0.05)


def test_more_rows_of_a_card_narrow_its_band() -> None:
    base = {
        "bandwidth_gbps": 1000.0,
        "bf16_tflops": 150.0,
        "compute_capability": 8.9,
        "quant": "int4-autoround",
    }
    rows = [
        Observation(Features(**base, gpu="card", rig=f"r{i}"), 50.0)  # type: ignore[arg-type]
        for i in range(6)
    ]
    fit = Fitter(rows).fit()
    known = fit.predict(Features(**base, gpu="card"))  # type: ignore[arg-type]
    unknown = fit.predict(Features(**base, gpu="other"))  # type: ignore[arg-type]
    assert known.half_width < unknown.half_width


def test_every_fitted_row_belongs_to_a_group_of_every_way() -> None:
    items: tuple[TransferRow, ...] = fitted_rows()
    for way, name in WAYS.items():
        groups = {name(item) for item in items}
        assert "None" not in groups, way
        if way == "row":
            assert groups == {None, *(f"quarter {i}" for i in range(4))}
        else:
            assert len(groups) > 10, way
            assert None not in groups, way


def test_the_community_rows_left_out_a_quarter_at_a_time_meet_the_goals() -> None:
    """What a stranger's row of a known card should expect: one row in four, all facts stated."""
    stated, _, everything = transfer_accuracy(["row"])
    assert stated.median <= 0.12
    assert stated.half_width <= 0.35
    assert everything.coverage >= 0.85


def test_rows_are_predicted_from_what_can_be_said_before_a_run() -> None:
    """The acceptance that a community run measured is fitted, and not asked."""
    known = [item for item in fitted_rows() if item.observation.features.acceptance_known]
    community = [item for item in known if item.row.origin == "community"]
    assert len(community) > 10
    for item in community:
        assert item.asked.acceptance_length is None
        assert not item.asked.acceptance_known


def test_a_draft_that_yields_nothing_is_read_with_its_acceptance() -> None:
    """Four DFlash drafts on one image: 0.5 % accepted, one token a step at a third of the rate."""
    dead = [
        item.observation.features
        for item in fitted_rows()
        if item.row.origin == "study" and item.observation.features.acceptance_known
    ]
    assert {(f.spec_method, f.drafted) for f in dead} == {("dflash", 4)}
    assert all(f.accepted == pytest.approx(1.02) for f in dead)


def test_a_row_worked_out_from_a_closed_loop_is_fitted_and_not_judged() -> None:
    derived = {item.row.row_id for item in fitted_rows() if item.derived}
    assert derived
    for way in ("machine", "layout"):
        assert derived.isdisjoint(row.item.row.row_id for row in held_out_rows(way))


@pytest.mark.parametrize(
    ("checkpoint", "gigabytes", "weight_only"),
    [
        pytest.param("sakamakismile/Qwen3.6-27B-Text-NVFP4-MTP", 16.2, False, id="all linears"),
        pytest.param("unsloth/Qwen3.6-27B-NVFP4", 19.3, False, id="part in 16 bits"),
        pytest.param("nvidia/Qwen3.6-27B-NVFP4", 17.7, True, id="weights only"),
    ],
)
def test_four_bit_checkpoints_differ_by_publisher(
    checkpoint: str, gigabytes: float, weight_only: bool
) -> None:
    facts = weight_features(checkpoint, "nvfp4")
    assert facts["weights_bytes"] == pytest.approx(gigabytes * 1e9, rel=0.01)
    assert facts["weight_only"] is weight_only


def test_a_checkpoint_of_unknown_size_is_read_by_its_quant() -> None:
    assert weight_features("somebody/else-NVFP4", "nvfp4") == {}
    assert weight_features("Qwen/Qwen3.6-27B-FP8", "fp8") == {}
