"""Summaries of aiperf (``profile_export_aiperf.json``): blocks of ``{unit, avg, p50, …}``.

Its ``inter_token_latency`` is our TPOT. The block's unit is obeyed, and a block that is absent was
not applicable. Older files keep the blocks under ``records``. The load is stated in one of three
places: ``loadgen``, the ``phases`` of later versions, or, in the files of genai-perf, which aiperf
follows, ``perf_analyzer.stimulus`` or ``input_config`` itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qwendeploy.errors import DataError
from qwendeploy.tables.importers.points import Fields, Point, check_latency, check_requests

NAME = "aiperf"
TITLE = "aiperf or genai-perf summary"


def matches(documents: Sequence[Any]) -> bool:
    """Return whether this is a summary of aiperf."""
    return isinstance(documents[0], dict) and isinstance(
        _blocks(documents[0]).get("output_token_throughput"), dict
    )


def _blocks(document: Mapping[str, Any]) -> Mapping[str, Any]:
    records = document.get("records")
    return records if isinstance(records, dict) else document


def read(documents: Sequence[Any], file: str) -> Iterator[Point]:
    """Return the point of the summary. Raises ``DataError`` naming the key of a bad value."""
    document = documents[0]
    version = str(document.get("schema_version", "1"))
    if version.split(".")[0] != "1":
        raise DataError(f"schema {version} is not known; 1.x is", file=file, key="schema_version")
    if document.get("was_cancelled"):
        raise DataError("the run was cancelled", file=file, key="was_cancelled")
    place = "records" if _blocks(document) is not document else ""
    fields = Fields(_blocks(document), file, place)
    failed = fields.child("error_request_count").count("avg", 0)
    completed = fields.child("request_count").count("avg")
    check_requests(fields, completed, failed)
    ttft, tpot = _time(fields, "time_to_first_token"), _time(fields, "inter_token_latency")
    output = fields.child("output_sequence_length").maybe("avg")
    prompt = fields.child("input_sequence_length").maybe("avg")
    check_latency(
        fields,
        "request_latency",
        e2e_ms=_time(fields, "request_latency"),
        ttft_ms=ttft,
        tpot_ms=tpot,
        tokens=output,
    )
    rate = fields.child("output_token_throughput")
    concurrency, fault = _load(Fields(document, file).child("input_config"))
    start = document.get("start_time")
    yield Point(
        name="summary",
        concurrency=concurrency,
        context=None if prompt is None else round(prompt),
        output_tokens=None if output is None else round(output),
        aggregate_tps=rate.per_second("avg", rate.text("unit") or ""),
        rate_basis="wall",
        completed=completed,
        per_user_tps=1000 / tpot if tpot else None,
        ttft_ms=ttft,
        ttft_p99_ms=_time(fields, "time_to_first_token", "p99"),
        tpot_ms=tpot,
        accept_rate=_fraction(fields, "draft_acceptance_rate"),
        model=_model(document),
        date=start[:10] if isinstance(start, str) else None,
        note=f"aiperf, {completed} requests",
        fault=fault,
    )


def _time(fields: Fields, name: str, statistic: str = "avg") -> float | None:
    block = fields.child(name)
    if not block.data:
        return None
    return block.milliseconds(statistic, block.text("unit") or "")


def _fraction(fields: Fields, name: str) -> float | None:
    block = fields.child(name)
    value = block.maybe("avg")
    if value is None:
        return None
    value = value / 100 if block.text("unit") == "%" else value
    if not 0 <= value <= 1:
        raise block.refusal("avg", f"{value:g} is not a fraction of 0 to 1")
    return value


def _load(config: Fields) -> tuple[int | None, str | None]:
    """Return the requests kept in flight if the file says, and why the load is no cell if so."""
    phases = config.data.get("phases")
    if isinstance(phases, list):
        measured = [
            Fields(phase, config.file, f"{config.place}.phases[{index}]")
            for index, phase in enumerate(phases)
            if isinstance(phase, dict) and not phase.get("exclude_from_results")
        ]
        if len(measured) != 1:
            return None, f"{len(measured)} measured phases in one summary: no one load was held"
        kind = measured[0].text("type")
        if kind not in (None, "concurrency"):
            rate = measured[0].maybe("rate")
            pace = "" if rate is None else f" at {rate:g} requests/s"
            return None, f"open loop, {kind}{pace}: no concurrency was held"
        return measured[0].count("concurrency", 0) or None, None
    for holder in (
        config.child("loadgen"),
        config.child("perf_analyzer").child("stimulus"),
        config,
    ):
        rate = holder.maybe("request_rate")
        if rate is not None:
            return None, f"open loop at {rate:g} requests/s: no concurrency was held"
        if "concurrency" in holder.data:
            return holder.count("concurrency", 0) or None, None
    return None, None


def _model(document: Mapping[str, Any]) -> str | None:
    config = document.get("input_config")
    if not isinstance(config, dict):
        return None
    endpoint, models = config.get("endpoint"), config.get("models")
    items = models.get("items") if isinstance(models, dict) else None
    first = items[0] if isinstance(items, list) and items else None
    for names in (
        endpoint.get("model_names") if isinstance(endpoint, dict) else None,
        [first.get("name")] if isinstance(first, dict) else None,
        config.get("model_names"),
        [config.get("model")],
    ):
        if isinstance(names, list) and names and isinstance(names[0], str):
            return names[0]
    return None
