"""Replicas that have no request add nothing to a rate: one request runs on one of them."""

from __future__ import annotations

import pytest

from qwendeploy import api
from qwendeploy.documents import Predictions, Workload


def figures(replicas: int, concurrency: int) -> Predictions:
    """One cell of FP8 + MTP3 on single cards of the study."""
    pins = api.Pins(
        quant="fp8", spec_method="mtp", spec_tokens=3, tp=1, replicas=replicas, max_num_seqs=8
    )
    document = api.predict(
        api.resolve_machine(gpu="RTX PRO 6000", gpus=4),
        Workload(concurrency=concurrency, max_context=4096),
        api.Request(pins=pins),
        [concurrency],
        [4096],
    )
    return document.cells[0].figures


@pytest.mark.parametrize("concurrency", [1, 2, 3, 4])
def test_only_replicas_with_a_request_count(concurrency: int) -> None:
    alone, found = figures(1, 1), figures(4, concurrency)
    assert alone.aggregate_decode_tps is not None
    assert found.aggregate_decode_tps is not None and found.per_user_decode_tps is not None
    one = alone.aggregate_decode_tps.value
    assert found.aggregate_decode_tps.value == pytest.approx(concurrency * one)
    assert found.per_user_decode_tps.value == pytest.approx(one)


def test_one_request_ends_no_sooner_on_more_replicas() -> None:
    alone, many = figures(1, 1).output_tps_end_to_end, figures(4, 1).output_tps_end_to_end
    assert alone is not None and many is not None
    assert many.value == pytest.approx(alone.value)
