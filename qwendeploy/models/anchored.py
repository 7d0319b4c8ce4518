"""Beyond a series' cells: the step physics of all machines, moved to the series' own level.

Costs fitted to a few cells say little about concurrencies and contexts far from them: with its
cells cut to four streams or to 32k a series alone errs by 8 % one to two octaves out, 16 % at two
to three and 38 % beyond (median over 973 cells of 14 series, the joint fit without their rows).
The joint physics knows the shape but not the host: its step times, times the ratio of measured to
predicted step time at the cells, the near ones first, err by 5 % at any of these distances.

Both are combined by their precision, so the physics grows in weight with the distance and is not
heard inside the cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qwendeploy.models.nnls import Array

SHAPE = 0.09
"""Deviation of the moved physics from a rate beside the cells, log units."""
SHAPE_PER_OCTAVE = 0.02
"""The same added by every octave outside the cells; with both, nine in ten of the cells above lie
in the combined band (0.94 one octave out, 0.88 at one to two, 0.94 beyond)."""
NEAR = 0.3
"""Octaves squared within which cells count as equally near."""


@dataclass(frozen=True)
class Anchor:
    """Where the physics stands against the cells of one series.

    ``coordinates`` are the cells' (log2 c, log2(1 + x/16k)), ``rest`` their log ratio of measured
    to predicted step time.
    """

    coordinates: Array
    rest: Array

    def shift(self, here: Array) -> tuple[float, float]:
        """Return the log ratio at coordinates ``here``, that of the cells by nearness.

        Beside it the deviation of the cells' ratios: where it is large they do not agree on one
        level (a draft that collapses with depth), and the physics says little.
        """
        apart = np.sum((self.coordinates - here) ** 2, axis=1)
        weight = 1 / (apart + NEAR) ** 2
        weight /= weight.sum()
        mean = float(weight @ self.rest)
        return mean, math.sqrt(float(weight @ (self.rest - mean) ** 2))


def combined(
    own: tuple[float, float], moved: tuple[float, float], octaves: float
) -> tuple[float, float]:
    """Return log step time and deviation from the series' own and the moved physics'.

    ``own`` is the series' log time with its deviation, ``moved`` the physics' with that of the
    cells' ratios; all deviations as of a normal distribution.
    """
    shape = max(math.hypot(SHAPE, SHAPE_PER_OCTAVE * octaves), moved[1])
    trust, other = 1 / max(own[1], 1e-6) ** 2, 1 / shape**2
    value = (trust * own[0] + other * moved[0]) / (trust + other)
    return value, 1 / math.sqrt(trust + other)
