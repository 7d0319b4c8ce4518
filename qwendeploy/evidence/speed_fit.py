"""Speed fits of the tables' series: constants from ``benchdata/speed_model.yaml``, fitted live.

A series is fitted once per process. Its sisters are the same option (GPU, layout, weights, KV
cache, draft, family of images) in another session, if they have enough cells to shape a curve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from qwendeploy.errors import DataError
from qwendeploy.models.speed import SeriesFit, fit_series
from qwendeploy.models.speed_constants import Hyper
from qwendeploy.resources import data_dir
from qwendeploy.rulebook.files import cached_files
from qwendeploy.tables.series import Series, SeriesKey, all_series

SISTER_CELLS = 15
"""Smallest sister: fewer cells do not shape a curve."""
FILE = "speed_model.yaml"
HYPER_KEYS = (
    "amplitude",
    "length_concurrency",
    "length_context",
    "sister_weight",
    "sister_share",
    "roughness",
    "k",
)


@cache
def speed_model() -> Mapping[str, Any]:
    """Return the content of ``speed_model.yaml``.

    Raises:
        DataError: the file is missing, not YAML, or lacks a key.
    """
    path = data_dir("benchdata") / FILE
    try:
        content: Mapping[str, Any] = cached_files((path,), path.parent)[FILE]
    except OSError:
        raise DataError("no such file", file=str(path)) from None
    for key in ("hyper", "noise", "noise_prior", "beyond", "drift", "nested", "held_out"):
        if key not in content:
            raise DataError("missing key", file=str(path), key=key)
    return content


def hyper_from(values: Mapping[str, Any], model: Mapping[str, Any]) -> Hyper:
    """Return the constants with ``values`` as kernel and band factor, the rest from ``model``.

    Raises:
        DataError: a key is missing or not a number.
    """
    try:
        return Hyper(
            **{key: float(values[key]) for key in HYPER_KEYS},
            noise={
                str(draft): {int(level): float(value) for level, value in table.items()}
                for draft, table in model["noise"].items()
            },
            noise_prior=float(model["noise_prior"]),
            beyond_concurrency=_pair(model["beyond"]["concurrency"]),
            beyond_context=_pair(model["beyond"]["context"]),
            drift={int(level): float(value) for level, value in model["drift"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise DataError(
            f"a constant is missing or not a number: {problem}",
            file=str(data_dir("benchdata") / FILE),
        ) from None


def _pair(values: Mapping[str, Any]) -> tuple[float, float]:
    return float(values["alone"]), float(values["with_sisters"])


@cache
def default_hyper() -> Hyper:
    """Return the constants that predictions use."""
    model = speed_model()
    return hyper_from(model["hyper"], model)


def option_of(key: SeriesKey, fork: str | None) -> tuple[Any, ...]:
    """Return what two series must share to be sisters."""
    return (
        key.engine,
        fork,
        key.gpu,
        key.gpu_count,
        key.interconnect,
        key.tp,
        key.checkpoint,
        key.quant,
        key.kv_cache_dtype,
        key.spec_method,
        key.spec_tokens,
        key.contexts,
        key.content,
    )


def sisters_of(series: Series, universe: Iterable[Series]) -> tuple[Series, ...]:
    """Return the series of the same option in other sessions that have enough cells."""
    option = option_of(series.key, series.fork)
    return tuple(
        other
        for other in universe
        if other is not series
        and len(other.cells) >= SISTER_CELLS
        and option_of(other.key, other.fork) == option
    )


def fit_with(series: Series, hyper: Hyper, universe: Iterable[Series]) -> SeriesFit:
    """Return the fit of ``series`` with its sisters in ``universe``.

    Raises:
        ValueError: the series has no usable cell.
    """
    return fit_series(
        series.cells,
        hyper,
        draft=series.key.spec_method or "none",
        sisters=[other.cells for other in sisters_of(series, universe)],
        basis=f"{series.key.label} ({', '.join(series.sources)})",
    )


_FITS: dict[SeriesKey, SeriesFit] = {}


def series_fit(series: Series) -> SeriesFit:
    """Return the fit of a series of the tables; fitted on first use, then kept.

    Raises:
        ValueError: the series has no usable cell.
    """
    fit = _FITS.get(series.key)
    if fit is None:
        fit = _FITS[series.key] = fit_with(series, default_hyper(), all_series())
    return fit
