"""Results of llama.cpp's ``llama-bench`` and ``llama-batched-bench`` (``-o json`` or ``jsonl``).

``llama-bench`` times one request: a row with only ``n_gen`` is decode at the context ``n_depth``,
one with only ``n_prompt`` is prefill, which is not read. ``llama-batched-bench`` decodes ``pl``
requests of ``pp`` prompt tokens each; ``speed_tg`` is the rate of all of them. Neither drafts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qwendeploy.errors import DataError
from qwendeploy.tables.importers.points import Fields, Point, check_rate, each_load

NAME = "llama-bench"
TITLE = "llama-bench or llama-batched-bench result"
ENGINE = "llama.cpp"
NO_GPU = "no layer ran on the GPU"

_OF_ONE = frozenset({"n_prompt", "n_gen", "avg_ts"})
_OF_MANY = frozenset({"pp", "tg", "pl", "speed_tg"})


def matches(documents: Sequence[Any]) -> bool:
    """Return whether these are rows of either program."""
    return any(
        isinstance(row, dict) and (row.keys() >= _OF_ONE or row.keys() >= _OF_MANY)
        for row in documents
    )


def read(documents: Sequence[Any], file: str) -> Iterator[Point | DataError]:
    """Return one point per decode row, or the error that names the key of its bad value."""
    return each_load(documents, file, "", _point)


def _point(fields: Fields) -> Point | None:
    return _batched(fields) if fields.data.keys() >= _OF_MANY else _single(fields)


def _single(fields: Fields) -> Point | None:
    """Return the decode of one request, ``None`` for a row of prefill alone."""
    prompt, output = fields.count("n_prompt"), fields.count("n_gen")
    if output == 0:
        return None
    rate = fields.above_zero("avg_ts")
    nanoseconds = fields.maybe("avg_ns")
    if nanoseconds:
        check_rate(fields, "avg_ts", rate, prompt + output, nanoseconds / 1e9)
    fault = "one rate over prompt and output: no decode rate" if prompt else None
    if not _on_gpu(fields):
        fault = NO_GPU
    test_time = fields.text("test_time")
    return Point(
        name=fields.place,
        concurrency=1,
        context=fields.count("n_depth", 0),
        output_tokens=output,
        aggregate_tps=rate,
        rate_basis="steady",
        completed=_repetitions(fields.data),
        per_user_tps=rate,
        tpot_ms=1000 / rate,
        std_tps=fields.maybe("stddev_ts"),
        model=fields.text("model_filename"),
        engine=ENGINE,
        spec_method="none",
        kv_cache_dtype=_kv(fields),
        engine_version=f"b{build}" if (build := fields.count("build_number", 0)) else None,
        date=None if test_time is None else test_time[:10],
        note="llama-bench",
        fault=fault,
    )


def _on_gpu(fields: Fields) -> bool:
    backends = fields.text("backends") or "GPU"
    return fields.data.get("n_gpu_layers") != 0 and backends not in ("CPU", "BLAS", "CPU,BLAS")


def _kv(fields: Fields) -> str | None:
    """Return the type of keys and values, both if they differ."""
    kinds = [kind for name in ("type_k", "type_v") if (kind := fields.text(name))]
    return "/".join(dict.fromkeys(kinds)) or None


def _repetitions(row: Mapping[str, Any]) -> int:
    samples = row.get("samples_ts")
    return max(1, len(samples)) if isinstance(samples, list) else 1


def _batched(fields: Fields) -> Point:
    concurrency, output = fields.count("pl"), fields.count("tg")
    rate = fields.above_zero("speed_tg")
    seconds = fields.maybe("t_tg")
    if seconds and output and concurrency:
        check_rate(fields, "speed_tg", rate, output * concurrency, seconds)
    shared = fields.data.get("is_pp_shared")
    return Point(
        name=fields.place,
        concurrency=concurrency,
        context=fields.count("pp"),
        output_tokens=output,
        aggregate_tps=rate,
        rate_basis="steady",
        completed=concurrency,
        per_user_tps=rate / concurrency if concurrency else None,
        tpot_ms=1000 * concurrency / rate,
        contexts_shared=None if shared is None else bool(shared),
        note="llama-batched-bench",
        engine=ENGINE,
        spec_method="none",
        fault=None if _on_gpu(fields) else NO_GPU,
    )
