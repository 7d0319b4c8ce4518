"""Step times of one option by the joint physics, for what lies beyond a series' cells."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np

from qwendeploy.models.nnls import Array
from qwendeploy.models.step import Features
from qwendeploy.planning.transfer_rows import transfer_fit


class StepTimes:
    """Log step times in seconds at points (concurrency, context); each is computed once.

    ``features`` are of the option as its series measured it; their own point is not used.
    """

    def __init__(self, features: Features) -> None:
        self._base = replace(features, capture_size=None)
        self._known: dict[tuple[float, float], float] = {}

    def __call__(self, points: Array) -> Array:
        """Return one log time a row of ``points``."""
        keys = [(float(c), float(x)) for c, x in points]
        missing = list(dict.fromkeys(key for key in keys if key not in self._known))
        if missing:
            asked = [replace(self._base, concurrency=c, context=x) for c, x in missing]
            rates = transfer_fit().log_rates(asked)
            for (c, x), rate in zip(missing, rates, strict=True):
                self._known[c, x] = math.log(c) - float(rate)
        return np.asarray([self._known[key] for key in keys])


@cache
def step_times(features: Features) -> StepTimes:
    """Return the step times of an option, the same for every image and scene that asks for it."""
    return StepTimes(features)
