"""Isotonic regression: what may not fall, from values of which neighbours disagree by noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qwendeploy.models.nnls import Array


def rising(values: Sequence[float] | Array) -> Array:
    """Return the nearest values, by least squares, none of which is below one before it.

    Neighbours that fall are pooled to their mean (pool adjacent violators, Ayer et al. 1955).
    """
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, size = float(value), 1
        while pools and pools[-1][0] > mean:
            before, others = pools.pop()
            mean = (before * others + mean * size) / (others + size)
            size += others
        pools.append((mean, size))
    return np.repeat([mean for mean, _ in pools], [size for _, size in pools]).astype(np.float64)


def between(curve: Array, places: Array, here: float, value: float) -> float:
    """Return a value at a place, held between those of a rising curve before and after it."""
    before, after = curve[places <= here], curve[places >= here]
    least = float(before.max(initial=-np.inf))
    return min(max(value, least), float(after.min(initial=np.inf)))
