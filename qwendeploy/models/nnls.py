"""Non-negative least squares on a few terms: the active-set method of Lawson and Hanson (1974).

Works on the normal equations, so that leaving one row out costs one rank-one downdate. The
columns are scaled to unit length first: the terms of the speed model span eight decades.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def nnls(design: Array, target: Array) -> Array:
    """Return the coefficients >= 0 that minimise ``|design @ x - target|``.

    Raises:
        ValueError: shapes disagree or a value is not finite.
    """
    if design.ndim != 2 or target.shape != (design.shape[0],):
        raise ValueError(f"shapes {design.shape} and {target.shape} do not fit")
    if not (np.isfinite(design).all() and np.isfinite(target).all()):
        raise ValueError("a value is not finite")
    return nnls_normal(design.T @ design, design.T @ target)


def nnls_normal(gram: Array, moment: Array, likely: Array | None = None) -> Array:
    """Return the minimiser for ``gram = A'A`` and ``moment = A'b``; empty columns get 0.

    ``likely`` coefficients of a similar problem save the search if the same columns are above 0.
    """
    scale = np.sqrt(np.clip(np.diag(gram), 0.0, None))
    used = scale > 0
    result = np.zeros(len(moment))
    if used.any():
        inverse = 1.0 / scale[used]
        scaled = gram[np.ix_(used, used)] * inverse[:, None] * inverse[None, :]
        target = moment[used] * inverse
        found = None if likely is None else _confirmed(scaled, target, likely[used] > 0)
        result[used] = (_active_set(scaled, target) if found is None else found) * inverse
    return result


def _confirmed(gram: Array, moment: Array, passive: NDArray[np.bool_]) -> Array | None:
    """Return the solution on these columns if it is the minimiser, ``None`` if it is not."""
    if not passive.any():
        return None
    solution = np.zeros(len(moment))
    solution[passive] = _solve(gram[np.ix_(passive, passive)], moment[passive])
    if solution[passive].min() <= 0:
        return None
    gradient = (moment - gram @ solution)[~passive]
    return solution if gradient.size == 0 or gradient.max() <= _tolerance(moment) else None


def _tolerance(moment: Array) -> float:
    return 1e-10 * max(1.0, float(np.abs(moment).max()))


def _active_set(gram: Array, moment: Array) -> Array:
    size = len(moment)
    solution = np.zeros(size)
    passive = np.zeros(size, dtype=bool)
    tolerance = _tolerance(moment)
    for _ in range(3 * size):
        gradient = moment - gram @ solution
        gradient[passive] = -np.inf
        entering = int(np.argmax(gradient))
        if passive.all() or gradient[entering] <= tolerance:
            break
        passive[entering] = True
        while True:
            trial = np.zeros(size)
            trial[passive] = _solve(gram[np.ix_(passive, passive)], moment[passive])
            if trial[passive].min() > 0:
                solution = trial
                break
            blocking = passive & (trial <= 0)
            fall = np.maximum(solution[blocking] - trial[blocking], 1e-300)
            step = float(np.min(solution[blocking] / fall))
            solution = solution + step * (trial - solution)
            # The term that stopped the step leaves the set exactly, whatever rounding left of it.
            passive &= solution > 1e-13
            passive &= ~(blocking & (solution <= 1e-13))
            solution[~passive] = 0.0
            if not passive.any():
                break
    return solution


def _solve(gram: Array, moment: Array) -> Array:
    try:
        return np.asarray(np.linalg.solve(gram, moment), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(gram, moment, rcond=None)[0], dtype=np.float64)
