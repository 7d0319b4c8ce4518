"""Fit the speed model's constants and write benchdata/speed_model.yaml.

Reads the decode tables alone; running it twice writes the same bytes. The kernel is chosen by the
likelihood of held-out cells (Student's t) over the series with at least 20 of them, k is the 90 %
quantile of their errors in deviations. `nested` repeats the choice once per cell without that
cell's error, with k from the other series alone; `held_out` once per series without any of its
cells. `qwendeploy data accuracy` judges with these, never with a constant that has seen the error
it is judged by. About a minute.

    scripts/fit_speed.py            write the file
    scripts/fit_speed.py --check    exit 1 if the file differs
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import pandas as pd

from qwendeploy.evidence.speed_fit import FILE, fit_with, sisters_of
from qwendeploy.models.conformal import FEW_CELLS, T_QUANTILE
from qwendeploy.models.nnls import Array
from qwendeploy.models.speed import fit_series
from qwendeploy.models.speed_constants import Hyper
from qwendeploy.resources import data_dir
from qwendeploy.tables.series import Series, all_series

GRID: Mapping[str, Sequence[float]] = {
    "amplitude": (0.05, 0.08, 0.12),
    "length_concurrency": (0.7, 1.0, 1.5),
    "length_context": (1.5, 2.5, 4.0),
}
FIXED: Mapping[str, float] = {"sister_weight": 0.4, "sister_share": 0.8, "roughness": 0.006}
"""Not chosen but set: between 0.5 and 0.9 of share, 0.16 and 0.4 of weight, 0.003 and 0.009 of
roughness the score differs by less than 0.01, so that choosing would follow single cells. Without
a rough part the bands of series with five repetitions are far too narrow."""
NOISE_PRIOR = 8.0
NOISE_FLOOR = 0.003
"""Least deviation of one run: a greedy decode without drafts repeats to 0.1 %, which would make
the process follow every wiggle of a single cell."""
NOISE_LEVELS = (1, 2, 4, 8, 16, 32)
DRIFT = {1: 0.22, 4: 0.22, 8: 0.14, 16: 0.08}
"""Half-widths stated by the study's repeats of one option between sessions; the LOSO table of
`data accuracy` shows what they cover."""
ALPHA = 0.10
T_FREEDOM = 4

Result = tuple[tuple[float, ...], list[Array]]
"""A grid point and, per series, its held-out errors and deviations (one row per cell)."""


def run_noise(series: Sequence[Series]) -> dict[str, dict[int, float]]:
    """Return the pooled deviation of one run by draft and concurrency.

    NVFP4 on the fork is left out: it loses and regains speed within a minute (07-D), which is that
    build's own noise, found again by the fit from its repetitions.
    """
    cells = pd.DataFrame(
        [
            (
                one.key.spec_method or "none",
                cell.concurrency,
                cell.n - 1,
                cell.std / cell.aggregate_tps,
            )
            for one in series
            if one.key.origin == "study" and one.key.quant != "nvfp4"
            for cell in one.cells
            if cell.std is not None and cell.n > 1 and cell.concurrency in NOISE_LEVELS
        ],
        columns=["draft", "level", "freedom", "deviation"],
    )
    cells["square"] = cells["freedom"] * cells["deviation"] ** 2
    pooled = cells.groupby(["draft", "level"])[["square", "freedom"]].sum().query("freedom >= 3")
    noise = np.sqrt(pooled["square"] / pooled["freedom"]).round(4).clip(lower=NOISE_FLOOR)
    return {draft: part.droplevel(0).to_dict() for draft, part in noise.groupby(level=0)}


def score(errors: Array, k: float) -> float:
    """Return the mean negative log likelihood of errors under Student's t, scaled by the band.

    A proper score, so that neither narrow nor wide bands win by themselves; four degrees of
    freedom, because a few cells of every series miss by three bands.
    """
    scale = errors[:, 1] * k / T_QUANTILE
    likelihood = (T_FREEDOM + 1) / 2 * np.log1p((errors[:, 0] / scale) ** 2 / T_FREEDOM)
    return float(np.mean(np.log(scale) + likelihood))


def quantile_k(errors: Array) -> float:
    """Return the 0.90 quantile of errors in deviations."""
    return float(np.quantile(np.abs(errors[:, 0]) / errors[:, 1], 1 - ALPHA))


def evaluate(base: Hyper, big: Sequence[Series], every: Sequence[Series]) -> list[Result]:
    """Return per grid point its values and the held-out errors of each big series."""
    results = []
    for values in itertools.product(*GRID.values()):
        named: dict[str, Any] = dict(zip(GRID, values, strict=True))
        hyper = replace(base, **named)
        errors = [np.array(fit_with(one, hyper, every).leave_one_out()) for one in big]
        results.append((values, errors))
    return results


def choose(pools: Sequence[tuple[tuple[float, ...], Array]]) -> tuple[dict[str, float], float]:
    """Return the grid point with the best score over its pooled errors, and k there."""
    scored = []
    for values, pooled in pools:
        k = quantile_k(pooled)
        scored.append((score(pooled, k), values, k))
    _, values, k = min(scored)
    return dict(zip(GRID, values, strict=True)), round(k, 2)


def nested(results: Sequence[Result], big: Sequence[Series]) -> dict[str, Any]:
    """Return per series k from the others, and the cells whose kernel differs from the common one.

    For every cell the kernel is chosen from the errors of all other cells.
    """
    common, _ = choose([(values, np.concatenate(errors)) for values, errors in results])
    content: dict[str, Any] = {}
    for index, one in enumerate(big):
        others = [other for other in range(len(big)) if other != index]
        outside = {
            values: quantile_k(np.concatenate([errors[other] for other in others]))
            for values, errors in results
        }
        entry: dict[str, Any] = {"k": round(outside[tuple(common.values())], 2)}
        for position, cell in enumerate(one.cells):
            pools = [
                (
                    values,
                    np.delete(
                        np.concatenate([errors[index], *(errors[o] for o in others)]),
                        position,
                        axis=0,
                    ),
                )
                for values, errors in results
            ]
            chosen, _ = choose(pools)
            if chosen != common:
                k = round(outside[tuple(chosen.values())], 2)
                entry[f"c{cell.concurrency}_x{cell.context}"] = {**chosen, **FIXED, "k": k}
        content[one.key.label] = entry
    return content


def held_out(results: Sequence[Result], big: Sequence[Series]) -> dict[str, Any]:
    """Return per series the kernel and k chosen without any of its cells."""
    content = {}
    for index, one in enumerate(big):
        others = [other for other in range(len(big)) if other != index]
        pools = [
            (values, np.concatenate([errors[other] for other in others]))
            for values, errors in results
        ]
        chosen, k = choose(pools)
        content[one.key.label] = {**chosen, **FIXED, "k": k}
    return content


def beyond(hyper: Hyper, big: Sequence[Series], every: Sequence[Series], axis: int) -> list[float]:
    """Return the deviation per octave outside the cells, alone and with sisters.

    The upper concurrencies (or contexts) of a series are cut off and predicted.
    """
    still = replace(hyper, beyond_concurrency=(0.0, 0.0), beyond_context=(0.0, 0.0))
    slopes = []
    for with_sisters in (False, True):
        excess = octaves = 0.0
        for one in big:
            sisters = sisters_of(one, every) if with_sisters else ()
            if with_sisters and not sisters:
                continue
            for cut in ((4, 8, 16), (16384, 33000, 66000))[axis]:
                cells = [c for c in one.cells if (c.concurrency, c.context)[axis] <= cut]
                fit = fit_series(
                    cells,
                    still,
                    draft=one.key.spec_method or "none",
                    sisters=[other.cells for other in sisters],
                )
                for cell in one.cells:
                    ends = ((cell.concurrency, cut), (1 + cell.context / 16384, 1 + cut / 16384))
                    distance = math.log2(ends[axis][0] / ends[axis][1])
                    if not 0 < distance <= 3:
                        continue
                    point = np.array([[cell.concurrency, cell.context]], dtype=np.float64)
                    (log_time,), (deviation,) = fit.log_times(point)
                    error = log_time - math.log(cell.concurrency / cell.aggregate_tps)
                    excess += max(error**2 - deviation**2, 0.0)
                    octaves += distance**2
        slopes.append(round(math.sqrt(excess / octaves), 3))
    return slopes


def fitted() -> dict[str, Any]:
    """Return the content of the file."""
    every = tuple(one for one in all_series() if one.cells)
    big = [one for one in every if len(one.cells) >= FEW_CELLS]
    noise = run_noise(every)
    start = Hyper(
        amplitude=0.08,
        length_concurrency=1.0,
        length_context=2.5,
        noise=noise,
        noise_prior=NOISE_PRIOR,
        k=2.0,
        beyond_concurrency=(0.0, 0.0),
        beyond_context=(0.0, 0.0),
        drift=DRIFT,
        **FIXED,
    )
    by_concurrency = beyond(start, big, every, 0)
    by_context = beyond(start, big, every, 1)
    base = replace(
        start,
        beyond_concurrency=(by_concurrency[0], by_concurrency[1]),
        beyond_context=(by_context[0], by_context[1]),
    )
    results = evaluate(base, big, every)
    values, k = choose([(values, np.concatenate(errors)) for values, errors in results])
    return {
        "hyper": {**values, **FIXED, "k": k},
        "noise": noise,
        "noise_prior": NOISE_PRIOR,
        "beyond": {
            "concurrency": dict(zip(("alone", "with_sisters"), by_concurrency, strict=True)),
            "context": dict(zip(("alone", "with_sisters"), by_context, strict=True)),
        },
        "drift": DRIFT,
        "nested": nested(results, big),
        "held_out": held_out(results, big),
    }


HEADER = """\
# Constants of the speed model (qwendeploy/models/speed.py). Written by scripts/fit_speed.py from
# the decode tables; do not edit. Deviations are in log units (0.02 is about 2 %), lengths in
# octaves of concurrency and of 1 + context/16384.
"""
NOTES = {
    "hyper": "kernel, sister weights and k: best score of held-out cells, series >= 20",
    "noise": "deviation of one run by draft and concurrency, pooled over repetitions of the study",
    "noise_prior": "observations that the pooled noise is worth against a series' own repetitions",
    "beyond": "deviation per octave outside the cells, from predicting cells that were cut off",
    "drift": "half-width that another session, host or image adds, by concurrency",
    "nested": "k from the other series' errors; cells whose kernel, chosen without them, differs",
    "held_out": "kernel and k chosen without any cell of the named series",
}


def _lines(value: Any, indent: int) -> list[str]:
    lines = []
    for key, item in value.items():
        name = f'"{key}"' if isinstance(key, str) and " " in key else str(key)
        if isinstance(item, dict):
            if item and all(not isinstance(inner, dict) for inner in item.values()):
                body = ", ".join(f"{inner}: {number:g}" for inner, number in item.items())
                lines.append(f"{' ' * indent}{name}: {{{body}}}")
            else:
                lines.append(f"{' ' * indent}{name}:")
                lines.extend(_lines(item, indent + 2))
        else:
            lines.append(f"{' ' * indent}{name}: {item:g}")
    return lines


def text_of(content: Mapping[str, Any]) -> str:
    """Return the file's text."""
    parts = [HEADER]
    for key, value in content.items():
        parts.append(f"\n# {NOTES[key]}\n")
        parts.append("\n".join(_lines({key: value}, 0)) + "\n")
    return "".join(parts)


def main() -> int:
    path = data_dir("benchdata") / FILE
    text = text_of(fitted())
    if "--check" in sys.argv[1:]:
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        print("unchanged" if same else f"{path.name} differs from what the tables give")
        return 0 if same else 1
    path.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
